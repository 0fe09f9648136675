"""Deadlines of one shard. Moving one further out, which every heartbeat does, costs one look-up and no allocation."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush


class Timers:
    """Monotonic milliseconds. A deadline may be queued earlier than it is: it is moved when that comes up."""

    __slots__ = ("_deadlines", "_heap", "_made", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[Hashable, int] = {}
        self._queued: dict[Hashable, int] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._made = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: Hashable, deadline_ms: int) -> None:
        self._deadlines[key] = deadline_ms
        queued_ms = self._queued.get(key)
        if queued_ms is None or queued_ms > deadline_ms:
            self._push(key, deadline_ms)

    def cancel(self, key: Hashable) -> None:
        self._deadlines.pop(key, None)

    @property
    def next_ms(self) -> int | None:
        """No deadline comes before this; None when there is none."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[Hashable]:
        """Takes out what is due, earliest first."""
        found: list[Hashable] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            queued_ms, _, key = heappop(heap)
            if self._queued.get(key) != queued_ms:
                # A later entry that an earlier one has replaced.
                continue
            del self._queued[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None:
                continue
            if deadline_ms <= now_ms:
                del self._deadlines[key]
                found.append(key)
            else:
                self._push(key, deadline_ms)
        return found

    def _push(self, key: Hashable, deadline_ms: int) -> None:
        self._made += 1
        self._queued[key] = deadline_ms
        heappush(self._heap, (deadline_ms, self._made, key))
