"""Limits for requests that repeat ids or partitions: the response to a repetition may be ten thousand times as long as
its name, so further repetitions are rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from brokers.engine.handlers.common.turns import LINES_PER_TURN_MAX
from brokers.engine.scheduling.time_slice import TimeSlice

# Maximum number of repetitions in one request, of ids and of partitions. Real clients repeat none.
REPEATED_IDS_MAX: Final = 10
REPEATED_LINES_MAX: Final = 1_000


def beyond_duplicate_limit(ids: Iterable[str]) -> Iterator[bool]:
    """Yields for each id True if it is repeated beyond the limit."""
    known: set[str] = set()
    repeated = 0
    for id in ids:
        is_repeated = id in known
        repeated += is_repeated
        known.add(id)
        yield is_repeated and repeated > REPEATED_IDS_MAX


class DuplicateLimits:
    """Counts repeated partitions in one request."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = 0

    def are_too_many(self, wanted: Sequence[tuple[str, Sequence[int]]]) -> bool:
        """True if the request exceeds the limit with these partitions, by topic."""
        lines = sum(len(indexes) for _, indexes in wanted)
        if lines > REPEATED_LINES_MAX - self._count:
            lines -= len({(name, index) for name, indexes in wanted for index in indexes})
        self._count += lines
        return self._count > REPEATED_LINES_MAX

    async def are_too_many_of(self, wanted: Sequence[tuple[str, Sequence[int]]]) -> bool:
        """Does the work of `are_too_many` for many partitions, and serves other requests in between."""
        time_slice = TimeSlice()
        known: set[tuple[str, int]] = set()
        for name, indexes in wanted:
            for begin in range(0, len(indexes), LINES_PER_TURN_MAX):
                part = indexes[begin : begin + LINES_PER_TURN_MAX]
                before = len(known)
                known.update([(name, index) for index in part])
                self._count += len(part) - (len(known) - before)
                await time_slice.pause()
            await time_slice.pause()  # a topic may have no partitions
        return self._count > REPEATED_LINES_MAX
