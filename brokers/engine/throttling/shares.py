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
from brokers.engine.throttling.client_shares import DIRECTIONS
from brokers.engine.throttling.flow_share import FlowShare
from brokers.engine.throttling.layout import Layout
from brokers.engine.throttling.pool import NewPool
from quotas.pacing import BURST_MS, Pace
from quotas.rates import SAMPLE_SETTINGS, SampleSettings

# Minimum rate of records that coordinators write for an instance: consumers must be able to commit offsets, however
# small the instance's bandwidth on this broker is.
STATE_BYTES_PER_S_MIN: Final = 100_000
# Maximum burst of these records after idle time, for groups that write much when they begin.
STATE_BURST_MS: Final = 2_000


class InstanceShares:
    """Limiters of one instance's bandwidth on this broker.

    Requests are received and refused even if this broker leads no partition of the instance. The limits are then
    computed as if this broker were one more leader with an equal share.

    Attributes:
        produce, consume: the limiters of both directions, None until the first `update`.
        flows: the shares of both, produce first, while this broker leads partitions of the instance; None for a
            direction in which no clients are served here.
        state: the limiter of records that coordinators write, with the static share of `produce`. These bytes are
            charged to `produce` as well, so that they reduce the bandwidth left for produces; but an instance that
            produces at its limit still commits offsets without delay.
        leaders: number of the instance's partitions that this broker leads.
        reads_followers: True if consumers may read from followers. `consume` is then divided by replicas.
    """

    __slots__ = (
        "_burst_ms", "_new_pool", "_window", "consume", "flows", "leaders", "produce", "reads_followers", "state",
    )  # fmt: skip

    def __init__(
        self, burst_ms: int = BURST_MS, window: SampleSettings = SAMPLE_SETTINGS, new_pool: NewPool | None = None
    ) -> None:
        self._new_pool = new_pool
        self._burst_ms = burst_ms
        self._window = window
        self.produce: Limiter | None = None
        self.consume: Limiter | None = None
        self.state: Limiter | None = None
        self.flows: tuple[FlowShare | None, ...] = ()
        self.leaders = 0
        self.reads_followers = False

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

    def update(
        self,
        broker_id: int,
        layout: Layout,
        produce_bps: int,
        consume_bps: int,
        now_ms: int,
        consume_layout: Layout | None = None,
    ) -> None:
        """Sets this broker's part of the bought bandwidth; the samples of the limiters stay.

        `consume_layout` counts replicas instead of leaders, if consumers may read from followers.
        """
        self.leaders = layout.leaders.get(broker_id, 0)
        self.reads_followers = consume_layout is not None
        produce, consume = self.produce, self.consume
        if produce is None or consume is None:
            produce = self.produce = self._create_limiter(PRODUCER_BYTE_RATE, now_ms)
            consume = self.consume = self._create_limiter(CONSUMER_BYTE_RATE, now_ms)
        previous_flows = self.flows or (None, None)
        flows = (
            self._update_flow(previous_flows[0], produce, broker_id, layout, produce_bps, now_ms),
            self._update_flow(previous_flows[1], consume, broker_id, consume_layout or layout, consume_bps, now_ms),
        )
        self.flows = flows if flows != (None, None) else ()
        produce_flow = flows[0]
        self._update_state(
            _part_without_partitions(produce_bps, layout) if produce_flow is None else produce_flow.static_bps, now_ms
        )

    def _update_flow(
        self, flow: FlowShare | None, limiter: Limiter, broker_id: int, layout: Layout, bought_bps: int, now_ms: int
    ) -> FlowShare | None:
        """Returns the share of a direction, None if the broker has no part in it."""
        if broker_id not in layout.leaders:
            if flow is not None:
                flow.close()
            limiter.set_limit(_part_without_partitions(bought_bps, layout), now_ms, bought_bps)
            return None
        if flow is None:
            direction = DIRECTIONS[limiter.rule.quota]
            flow = FlowShare(limiter, now_ms, None if self._new_pool is None else self._new_pool(direction, ""))
        static_bps = layout.static_bps(bought_bps)[broker_id]
        flow.rebase(bought_bps, static_bps, layout.basis(bought_bps), layout.effective_policy, now_ms)
        return flow

    def _update_state(self, limit_per_s: float, now_ms: int) -> None:
        limit_per_s = max(limit_per_s, STATE_BYTES_PER_S_MIN)
        if self.state is None:
            rule = Rule("instance_bandwidth", PRODUCER_BYTE_RATE, None, None)
            self.state = Limiter(rule, limit_per_s, now_ms, Pace(STATE_BURST_MS))
        self.state.set_limit(limit_per_s, now_ms)

    def _create_limiter(self, quota: Quota, now_ms: int) -> Limiter:
        rule = Rule("instance_bandwidth", quota, None, None)
        return Limiter(rule, 0, now_ms, new_pace(self._burst_ms), self._window)


def _part_without_partitions(bought_bps: int, layout: Layout) -> int:
    """Returns the part of a broker that leads no partition: an equal part, as if it were one more leader."""
    return bought_bps // (len(layout.leaders) + 1)
