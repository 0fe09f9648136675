"""Deadlines of one shard. Postponing a deadline costs one look-up and no allocation."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Final

# Stale heap entries are removed when they outnumber the live ones by more than this.
STALE_ENTRIES_MAX: Final = 256


class Timers:
    """A heap of deadlines by key, in monotonic milliseconds.

    A postponed deadline stays in the heap under its earlier time and is queued again when that time comes. A cancelled
    deadline stays there until its time or until `_sweep`: members that join and leave must not fill the memory with
    session deadlines half an hour away.
    """

    __slots__ = ("_deadlines", "_heap", "_queued", "_sequence")

    def __init__(self) -> None:
        self._deadlines: dict[Hashable, int] = {}
        self._queued: dict[Hashable, int] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: Hashable, deadline_ms: int) -> None:
        """Sets the deadline of a key, which replaces its previous one."""
        self._deadlines[key] = deadline_ms
        queued_ms = self._queued.get(key)
        if queued_ms is None or queued_ms > deadline_ms:
            self._push(key, deadline_ms)

    def cancel(self, key: Hashable) -> None:
        if self._deadlines.pop(key, None) is not None:
            self._sweep()

    @property
    def heap_size(self) -> int:
        """Number of heap entries, stale ones included."""
        return len(self._heap)

    @property
    def next_ms(self) -> int | None:
        """Lower bound of the earliest deadline; None if the heap is empty."""
        return self._heap[0][0] if self._heap else None

    def pop_due_keys(self, now_ms: int, at_most: int = 1 << 30) -> list[Hashable]:
        """Removes and returns up to `at_most` keys whose deadline has passed, earliest first; the others stay due."""
        result: list[Hashable] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ms and len(result) < at_most:
            queued_ms, _, key = heappop(heap)
            if self._queued.get(key) != queued_ms:
                # Stale: this key was queued again at an earlier time.
                continue
            del self._queued[key]
            deadline_ms = self._deadlines.get(key)
            if deadline_ms is None:
                continue
            if deadline_ms <= now_ms:
                del self._deadlines[key]
                result.append(key)
            else:
                self._push(key, deadline_ms)
        return result

    def _push(self, key: Hashable, deadline_ms: int) -> None:
        self._sequence += 1
        self._queued[key] = deadline_ms
        heappush(self._heap, (deadline_ms, self._sequence, key))
        self._sweep()

    def _sweep(self) -> None:
        """Rebuilds the heap without stale entries when they are the larger part; amortised constant time per `set`."""
        if len(self._heap) <= 2 * len(self._deadlines) + STALE_ENTRIES_MAX:
            return
        self._queued = {key: self._queued[key] for key in self._deadlines}
        self._heap[:] = [(queued_ms, sequence, key) for sequence, (key, queued_ms) in enumerate(self._queued.items())]
        heapify(self._heap)
