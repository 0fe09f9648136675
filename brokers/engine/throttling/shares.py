"""Bandwidth of an instance on this broker: its share of the bought bandwidth, by leader partitions or by demand
(CKA-25, CKA-27).
"""

from __future__ import annotations

from typing import Final

from brokers.engine.throttling.charging import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    Limiter,
    Quota,
    Rule,
    new_pace,
)
from brokers.engine.throttling.flow_share import FlowShare
from brokers.engine.throttling.layout import Layout
from brokers.engine.throttling.pool import NewPool
from quotas.pacing import BURST_MS, Pace
from quotas.rates import WINDOW, Window

# Minimum rate of records that coordinators write for an instance: consumers must be able to commit offsets, however
# small the instance's bandwidth on this broker is.
STATE_BYTES_PER_S_MIN: Final = 100_000
# Maximum burst of these records after idle time, for groups that write much when they begin.
STATE_BURST_MS: Final = 2_000


class InstanceShares:
    """Limiters of one instance's bandwidth on this broker.

    Requests are received and refused even if this broker leads no partition of the instance. Its limits are then those
    of one more broker with an equal share.

    Attributes:
        produce, consume: the limiters of both directions, None until the first `update`.
        flows: the shares of both, produce first, while this broker leads partitions of the instance.
        state: the limiter of records that coordinators write, with the static share of `produce`. These bytes are
            charged to `produce` as well, so that they reduce the bandwidth left for produces; but an instance that
            produces at its limit still commits offsets without delay.
        leaders: number of the instance's partitions that this broker leads.
    """

    __slots__ = ("_burst_ms", "_new_pool", "_window", "consume", "flows", "leaders", "produce", "state")

    def __init__(self, burst_ms: int = BURST_MS, window: Window = WINDOW, new_pool: NewPool | None = None) -> None:
        self._new_pool = new_pool
        self._burst_ms = burst_ms
        self._window = window
        self.produce: Limiter | None = None
        self.consume: Limiter | None = None
        self.state: Limiter | None = None
        self.flows: tuple[FlowShare, ...] = ()
        self.leaders = 0

    def charge_state(self, size_bytes: int, now_ms: int) -> None:
        """Charges bytes that coordinators appended for the instance; the delay of `produce` is ignored."""
        if self.state is not None and self.state.pace is not None:
            self.state.pace.charge(size_bytes, self.state.limit_per_s, now_ms)
        if self.produce is not None:
            self.produce.charge(size_bytes, now_ms)

    def state_debt_ms(self, now_ms: int) -> int:
        """Returns the time until the coordinators' bytes are paid for, in milliseconds."""
        state = self.state
        return 0 if state is None or state.pace is None else state.pace.debt_ms(now_ms)

    def update(self, broker_id: int, layout: Layout, produce_bps: int, consume_bps: int, now_ms: int) -> None:
        """Sets this broker's part of the bought bandwidth; the samples of the limiters stay."""
        self.leaders = layout.leaders.get(broker_id, 0)
        produce, consume = self.produce, self.consume
        if produce is None or consume is None:
            produce = self.produce = self._limiter(PRODUCER_BYTE_RATE, now_ms)
            consume = self.consume = self._limiter(CONSUMER_BYTE_RATE, now_ms)
        if not self.leaders:
            for flow in self.flows:
                flow.close()
            self.flows = ()
            for limiter, bought_bps in ((produce, produce_bps), (consume, consume_bps)):
                limiter.limit(bought_bps // (len(layout.leaders) + 1), now_ms, bought_bps)
            self._update_state(produce_bps // (len(layout.leaders) + 1), now_ms)
            return
        if not self.flows:
            self.flows = tuple(
                FlowShare(limiter, now_ms, None if self._new_pool is None else self._new_pool(direction, ""))
                for direction, limiter in enumerate((produce, consume))
            )
        for flow, bought_bps in zip(self.flows, (produce_bps, consume_bps), strict=True):
            static_bps = layout.static_bps(bought_bps)[broker_id]
            flow.rebase(bought_bps, static_bps, layout.basis(bought_bps), layout.effective_policy, now_ms)
        self._update_state(self.flows[0].static_bps, now_ms)

    def _update_state(self, limit_per_s: float, now_ms: int) -> None:
        limit_per_s = max(limit_per_s, STATE_BYTES_PER_S_MIN)
        if self.state is None:
            rule = Rule("instance_bandwidth", PRODUCER_BYTE_RATE, None, None)
            self.state = Limiter(rule, limit_per_s, now_ms, Pace(STATE_BURST_MS))
        self.state.limit(limit_per_s, now_ms)

    def _limiter(self, quota: Quota, now_ms: int) -> Limiter:
        rule = Rule("instance_bandwidth", quota, None, None)
        return Limiter(rule, 0, now_ms, new_pace(self._burst_ms), self._window)
