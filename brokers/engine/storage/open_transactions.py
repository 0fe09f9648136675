"""Which transactions of a log keep readers of committed data back (TXN-20, TXN-23).

Those that are open, and those that ended with a marker that is not committed yet: until it is, another leader may
come that has not got it. Pure: offsets in, offsets out.
"""

from __future__ import annotations

from collections import deque
from typing import Final

# Above every offset; small enough to be a plain machine word where this is compiled.
NO_OFFSET: Final = (1 << 62) - 1
NONE_OPEN: Final = -1


class OpenTransactions:
    """`first_unstable_offset` is where the earliest of all of them begins, NO_OFFSET when there are none."""

    __slots__ = ("_ended", "_open", "first_unstable_offset")

    def __init__(self) -> None:
        # By producer id, in the order of their first offsets: that is the order in which they began.
        self._open: dict[int, int] = {}
        # (marker's offset, first offset), both growing. Of two with the later one beginning earlier only that one
        # counts: it stays at least as long.
        self._ended: deque[tuple[int, int]] = deque()
        self.first_unstable_offset = NO_OFFSET

    def __len__(self) -> int:
        return len(self._open)

    @property
    def first_open_offset(self) -> int:
        """Where the earliest transaction without a marker begins, NO_OFFSET when there is none."""
        return next(iter(self._open.values()), NO_OFFSET)

    def first_offset_of(self, producer_id: int) -> int:
        """Where the producer's open transaction began, NONE_OPEN if it has none."""
        return self._open.get(producer_id, NONE_OPEN)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Call in the order of `first_offset`."""
        self._open[producer_id] = first_offset
        if first_offset < self.first_unstable_offset:
            self.first_unstable_offset = first_offset

    def end(self, producer_id: int, marker_offset: int) -> int:
        """The transaction's first offset, NONE_OPEN if there was none."""
        first_offset = self._open.pop(producer_id, NONE_OPEN)
        if first_offset >= 0:
            ended = self._ended
            while ended and ended[-1][1] >= first_offset:
                ended.pop()
            ended.append((marker_offset, first_offset))
        return first_offset

    def complete(self, high_watermark: int) -> int:
        """`first_unstable_offset` after markers below the high watermark have done their work."""
        ended = self._ended
        while ended and ended[0][0] < high_watermark:
            ended.popleft()
        first = self.first_open_offset
        if ended and ended[0][1] < first:
            first = ended[0][1]
        self.first_unstable_offset = first
        return first

    def clear(self) -> None:
        self._open.clear()
        self._ended.clear()
        self.first_unstable_offset = NO_OFFSET
