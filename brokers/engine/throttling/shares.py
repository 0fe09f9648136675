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
from quotas.pacing import BURST_MS, Pace
from quotas.rates import WINDOW, Window

# What coordinators write for an instance may go on however little bandwidth it has on this broker: commits belong to
# reading.
STATE_BYTES_PER_S_MIN: Final = 100_000
# Unused bandwidth is worth so long at most: groups that begin write much at once.
STATE_BURST_MS: Final = 2_000


class InstanceShares:
    """`produce` and `consume` are None while this broker leads nothing of the instance: then nothing is charged here;
    `flows` has the share of each, produce first. `state` is for what coordinators write: it has the static share of
    `produce`, and where nothing is led, as much as if this broker were one more of those that lead. What is written is
    charged to both, so that it takes from what may be produced; but who produces as much as it bought commits its
    offsets without delay.
    """

    __slots__ = ("_burst_ms", "_window", "consume", "flows", "leaders", "produce", "state")

    def __init__(self, burst_ms: int = BURST_MS, window: Window = WINDOW) -> None:
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
        produce = self.produce
        if produce is not None:
            produce.used_ms = now_ms
            produce.admitted_bytes += size_bytes
            produce.rate.record(size_bytes, now_ms)
            if produce.pace is not None:
                produce.pace.charge(size_bytes, produce.limit_per_s, now_ms)

    def state_debt_ms(self, now_ms: int) -> int:
        """How long until what was written is paid for."""
        state = self.state
        return 0 if state is None or state.pace is None else state.pace.debt_ms(now_ms)

    def update(self, broker_id: int, layout: Layout, produce_bps: int, consume_bps: int, now_ms: int) -> None:
        """Samples stay when a share changes."""
        self.leaders = layout.leaders.get(broker_id, 0)
        if not self.leaders:
            self.produce = self.consume = None
            self.flows = ()
            self._update_state(produce_bps // (len(layout.leaders) + 1), now_ms)
            return
        if self.produce is None or self.consume is None:
            self.produce = self._limiter(PRODUCER_BYTE_RATE, now_ms)
            self.consume = self._limiter(CONSUMER_BYTE_RATE, now_ms)
            self.flows = (FlowShare(self.produce, now_ms), FlowShare(self.consume, now_ms))
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
