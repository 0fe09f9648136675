"""An instance's bandwidth on this broker: its share of what was bought, by leader partitions (CKA-25, CKA-27)."""

from __future__ import annotations

from collections.abc import Mapping

from brokers.engine.throttling.charging import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, Limiter, Rule
from quotas.allocation import allocate


class InstanceShares:
    """`produce` and `consume` are None while this broker leads nothing of the instance: then nothing is charged
    here.
    """

    __slots__ = ("consume", "produce")

    def __init__(self) -> None:
        self.produce: Limiter | None = None
        self.consume: Limiter | None = None

    def update(
        self, broker_id: int, leaders: Mapping[int, int], produce_bps: int, consume_bps: int, now_ms: int
    ) -> None:
        """`leaders` counts the instance's leader partitions by broker id. Samples stay when a share changes."""
        brokers = sorted(broker for broker, count in leaders.items() if count)
        if broker_id not in brokers:
            self.produce = self.consume = None
            return
        mine = brokers.index(broker_id)
        counts = [leaders[broker] for broker in brokers]
        idle = [0] * len(brokers)
        produce = allocate(produce_bps, counts, idle, "static")[mine]
        consume = allocate(consume_bps, counts, idle, "static")[mine]
        if self.produce is None or self.consume is None:
            self.produce = Limiter(Rule("instance_bandwidth", PRODUCER_BYTE_RATE, None, None), produce, now_ms)
            self.consume = Limiter(Rule("instance_bandwidth", CONSUMER_BYTE_RATE, None, None), consume, now_ms)
        self.produce.limit_per_s = produce
        self.consume.limit_per_s = consume
