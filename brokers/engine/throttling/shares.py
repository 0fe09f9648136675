"""An instance's bandwidth on this broker: its share of what was bought, by leader partitions (CKA-25, CKA-27)."""

from __future__ import annotations

from collections.abc import Mapping

from brokers.engine.throttling.charging import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, Limiter, Quota, Rule, new_pace
from quotas.allocation import allocate
from quotas.pacing import BURST_MS


class InstanceShares:
    """`produce` and `consume` are None while this broker leads nothing of the instance: then nothing is charged
    here.
    """

    __slots__ = ("_burst_ms", "consume", "produce")

    def __init__(self, burst_ms: int = BURST_MS) -> None:
        self._burst_ms = burst_ms
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
            self.produce = self._limiter(PRODUCER_BYTE_RATE, produce, now_ms)
            self.consume = self._limiter(CONSUMER_BYTE_RATE, consume, now_ms)
        self.produce.limit(produce, now_ms)
        self.consume.limit(consume, now_ms)

    def _limiter(self, quota: Quota, limit_per_s: float, now_ms: int) -> Limiter:
        return Limiter(Rule("instance_bandwidth", quota, None, None), limit_per_s, now_ms, new_pace(self._burst_ms))
