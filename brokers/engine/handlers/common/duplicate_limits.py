"""A request that names the same thing again and again: what is said of it may be ten thousand times as long as its
name, so only some repetitions are answered, and the others are told so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from brokers.engine.handlers.common.turns import LINES_PER_TURN_MAX
from brokers.engine.scheduling.time_slice import TimeSlice

# In one request, of ids and of partitions. Clients repeat none.
REPEATED_IDS_MAX: Final = 10
REPEATED_LINES_MAX: Final = 1_000


def beyond_duplicate_limit(ids: Iterable[str]) -> Iterator[bool]:
    """Of each, whether it is repeated once too often."""
    known: set[str] = set()
    repeated = 0
    for id in ids:
        is_repeated = id in known
        repeated += is_repeated
        known.add(id)
        yield is_repeated and repeated > REPEATED_IDS_MAX


class DuplicateLimits:
    """Of the partitions that one request names, by topic."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def are_too_many(self, wanted: Sequence[tuple[str, Sequence[int]]]) -> bool:
        """With these."""
        lines = sum(len(indexes) for _, indexes in wanted)
        if lines > REPEATED_LINES_MAX - self._count:
            lines -= len({(name, index) for name, indexes in wanted for index in indexes})
        self._count += lines
        return self._count > REPEATED_LINES_MAX

    async def are_too_many_of(self, wanted: Sequence[tuple[str, Sequence[int]]]) -> bool:
        """The same of many lines, in turns."""
        time_slice = TimeSlice()
        known: set[tuple[str, int]] = set()
        for name, indexes in wanted:
            for begin in range(0, len(indexes), LINES_PER_TURN_MAX):
                part = indexes[begin : begin + LINES_PER_TURN_MAX]
                before = len(known)
                known.update([(name, index) for index in part])
                self._count += len(part) - (len(known) - before)
                await time_slice.pause()
            await time_slice.pause()  # a topic may be named without partitions
        return self._count > REPEATED_LINES_MAX
