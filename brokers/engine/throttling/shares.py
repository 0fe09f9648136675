"""An instance's bandwidth on this broker: its share of what was bought, by leader partitions or by demand (CKA-25,
CKA-27).
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

# What coordinators write for an instance may go on however little bandwidth it has on this broker: commits belong to
# reading.
STATE_BYTES_PER_S_MIN: Final = 100_000
# Unused bandwidth is worth so long at most: groups that begin write much at once.
STATE_BURST_MS: Final = 2_000


class InstanceShares:
    """The limiters of one instance's bandwidth on this broker. `produce` and `consume` are None until the first
    `update`; `flows` has the share of each, produce first, while this broker leads something of the instance. Where it
    leads nothing, requests are still received and refused: they may take as much as if it were one more of those that
    lead. `state` is for what coordinators write: it has the static share of
    `produce`, and where nothing is led, as much as if this broker were one more of those that lead. What is written is
    charged to both, so that it takes from what may be produced; but who produces as much as it bought commits its
    offsets without delay.
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
        # Partitions led here.
        self.leaders = 0

    def charge_state(self, size_bytes: int, now_ms: int) -> None:
        """Coordinators appended so much for the instance. Nobody waits for `produce` on account of it."""
        if self.state is not None and self.state.pace is not None:
            self.state.pace.charge(size_bytes, self.state.limit_per_s, now_ms)
        if self.produce is not None:
            self.produce.charge(size_bytes, now_ms)

    def state_debt_ms(self, now_ms: int) -> int:
        """How long until what was written is paid for."""
        state = self.state
        return 0 if state is None or state.pace is None else state.pace.debt_ms(now_ms)

    def update(self, broker_id: int, layout: Layout, produce_bps: int, consume_bps: int, now_ms: int) -> None:
        """Puts the part of this broker in force. Samples stay when it changes."""
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
