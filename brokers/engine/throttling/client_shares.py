"""This broker's shares of the client quotas of one instance: a byte rate holds over all brokers together.

A limit is split by leader partitions. When a client has to wait for this broker's part, the limit is reported to the
flow master, which assigns to the broker what other brokers leave unused. At most `KEYS_MAX` limits of an instance are
shared at a time, so that invented client ids cannot load the flow master; further limits stay split by partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Final

from brokers.engine.throttling.charging import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, Limiter
from brokers.engine.throttling.flow_share import FlowShare
from brokers.engine.throttling.layout import STATIC, Layout, static_part
from brokers.engine.throttling.pool import NewPool, Pool

# Shared limits of one instance, both directions together.
KEYS_MAX: Final = 50
# Smaller limits are split by partitions only: a share of them would be a few bytes on each broker.
SHARED_BPS_MIN: Final = 1_000
PRODUCE: Final = 0
CONSUME: Final = 1
DIRECTIONS: Final = {PRODUCER_BYTE_RATE: PRODUCE, CONSUMER_BYTE_RATE: CONSUME}
_KEY_BYTES: Final = 16

Key = tuple[int, str]


def share_key(user: str, client_id: str) -> str:
    """Returns the name of a sharing group among brokers: a digest of fixed length, never empty."""
    return sha256(f"{len(user)}:{user}{client_id}".encode()).hexdigest()[: 2 * _KEY_BYTES]


class ClientShares:
    """Shares of the client quotas of one instance; implements `charging.LimitParts`. Times are monotonic ms."""

    __slots__ = ("_broker_id", "_layout_by_direction", "_new_pool", "flows")

    def __init__(self, new_pool: NewPool | None = None) -> None:
        self._new_pool = new_pool
        self._broker_id = -1
        # Layout of each direction.
        self._layout_by_direction: tuple[Layout, Layout] | None = None
        # Limits that are reported to the flow master, or that it has sent a share of.
        self.flows: dict[Key, FlowShare] = {}

    def update(self, broker_id: int, layout: Layout, now_ms: int, consume_layout: Layout | None = None) -> None:
        """Sets a new layout. Shared limits change at once, other limiters when they are looked up next."""
        self._broker_id, self._layout_by_direction = broker_id, (layout, consume_layout or layout)
        for key, flow in tuple(self.flows.items()):
            direction_layout = self._layout_by_direction[key[0]]
            if self._is_shared_out(direction_layout):
                self._rebase(flow, flow.whole_limit_per_s, direction_layout, now_ms)
            else:
                flow.close()
                del self.flows[key]

    def _layout_of(self, direction: int | None) -> Layout | None:
        """Returns the layout of a direction, None before the first one, and for limits that are no byte rates."""
        return None if direction is None or self._layout_by_direction is None else self._layout_by_direction[direction]

    def apply(self, quota: str, key: tuple[str, str, str], limiter: Limiter, limit_per_s: float, now_ms: int) -> None:
        direction = DIRECTIONS.get(quota)
        layout = self._layout_of(direction)
        if direction is None or layout is None or not layout.is_shared:
            limiter.set_limit(limit_per_s, now_ms)
            return
        if not limiter.share_key:
            limiter.share_key = share_key(key[1], key[2])
        flow = self.flows.get((direction, limiter.share_key))
        if flow is None:
            limiter.set_limit(static_part(limit_per_s, layout, self._broker_id), now_ms, limit_per_s)
            return
        flow.attach_limiter(limiter, now_ms)
        self._rebase(flow, limit_per_s, layout, now_ms)

    def _rebase(self, flow: FlowShare, limit_per_s: float, layout: Layout, now_ms: int) -> None:
        part = static_part(limit_per_s, layout, self._broker_id)
        flow.rebase(limit_per_s, part, layout.basis(int(limit_per_s)), layout.policy, now_ms)

    def on_delay(self, limiter: Limiter, now_ms: int) -> None:
        """Starts to share a limit that a client waits for, if there is room for one more."""
        direction = DIRECTIONS.get(limiter.rule.quota)
        layout = self._layout_of(direction)
        if not limiter.share_key or direction is None or layout is None or not self._is_shared_out(layout):
            return
        key = (direction, limiter.share_key)
        if key in self.flows or limiter.whole_limit_per_s < SHARED_BPS_MIN or not self._make_room():
            return
        flow = self.flows[key] = FlowShare(limiter, now_ms, self._create_pool(key))
        self._rebase(flow, limiter.whole_limit_per_s, layout, now_ms)

    def share_for_answer(self, key: Key, limit_bps: int, basis: int, now_ms: int) -> FlowShare | None:
        """Returns the share to which an answer of the flow master applies; None if it does not apply here.

        The share is created if no client has used the limit on this broker yet.
        """
        flow, layout = self.flows.get(key), self._layout_of(key[0])
        if flow is not None or layout is None:
            return flow
        if basis != layout.basis(limit_bps) or not self._is_shared_out(layout) or not self._make_room():
            return None
        flow = self.flows[key] = FlowShare(None, now_ms, self._create_pool(key))
        self._rebase(flow, limit_bps, layout, now_ms)
        return flow

    def _create_pool(self, key: Key) -> Pool | None:
        return None if self._new_pool is None else self._new_pool(*key)

    def _is_shared_out(self, layout: Layout) -> bool:
        return layout.is_shared and layout.effective_policy != STATIC

    def _make_room(self) -> bool:
        """Drops idle limits if there are too many. Returns True if one more limit can be shared."""
        if len(self.flows) >= KEYS_MAX:
            for key in [key for key, flow in self.flows.items() if flow.is_idle]:
                self.flows.pop(key).close()
        return len(self.flows) < KEYS_MAX

    def __iter__(self) -> Iterator[tuple[Key, FlowShare]]:
        return iter(self.flows.items())
