"""Transactions of a log that limit the last stable offset (TXN-20, TXN-23).

These are the open ones and those whose end marker is not committed yet: until it is, a leader without the marker may be
elected. Pure: offsets in, offsets out.
"""

from __future__ import annotations

from collections import deque
from typing import Final

# Greater than every offset, and small enough to be a plain machine word in compiled code.
NO_OFFSET: Final = (1 << 62) - 1
NO_OPEN_TRANSACTION: Final = -1


class OpenTransactions:
    """Open and uncommitted transactions of a partition.

    `first_unstable_offset` is the first offset of the earliest one, NO_OFFSET if there is none.
    """

    __slots__ = ("_ended_transactions", "_first_offset_by_producer", "first_unstable_offset")

    def __init__(self) -> None:
        # First offset by producer id, ascending: in the order in which the transactions began.
        self._first_offset_by_producer: dict[int, int] = {}
        # (marker offset, first offset), both ascending. An entry is dropped when a later one begins earlier, because
        # that one stays at least as long.
        self._ended_transactions: deque[tuple[int, int]] = deque()
        self.first_unstable_offset = NO_OFFSET

    def __len__(self) -> int:
        return len(self._first_offset_by_producer)

    @property
    def first_open_offset(self) -> int:
        """First offset of the earliest transaction without a marker, NO_OFFSET if there is none."""
        return next(iter(self._first_offset_by_producer.values()), NO_OFFSET)

    def first_offset_of(self, producer_id: int) -> int:
        """Returns the first offset of the producer's open transaction, NONE_OPEN if it has none."""
        return self._first_offset_by_producer.get(producer_id, NO_OPEN_TRANSACTION)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Adds an open transaction; must be called in the order of `first_offset`."""
        self._first_offset_by_producer[producer_id] = first_offset
        if first_offset < self.first_unstable_offset:
            self.first_unstable_offset = first_offset

    def end(self, producer_id: int, marker_offset: int) -> int:
        """Ends the producer's transaction and returns its first offset, NONE_OPEN if there was none."""
        first_offset = self._first_offset_by_producer.pop(producer_id, NO_OPEN_TRANSACTION)
        if first_offset >= 0:
            ended = self._ended_transactions
            while ended and ended[-1][1] >= first_offset:
                ended.pop()
            ended.append((marker_offset, first_offset))
        return first_offset

    def complete(self, high_watermark: int) -> int:
        """Removes the transactions whose markers are below the high watermark and returns `first_unstable_offset`."""
        ended = self._ended_transactions
        while ended and ended[0][0] < high_watermark:
            ended.popleft()
        unstable_offset = self.first_open_offset
        if ended and ended[0][1] < unstable_offset:
            unstable_offset = ended[0][1]
        self.first_unstable_offset = unstable_offset
        return unstable_offset

    def clear(self) -> None:
        self._first_offset_by_producer.clear()
        self._ended_transactions.clear()
        self.first_unstable_offset = NO_OFFSET
