"""Filter for batches of the head without live records, which are removed without being decompressed. Pure.

A mapped record is live if the map has its offset, so a batch without such an offset has no live records. One byte
represents one offset, or two, four, ... adjacent offsets in a long head; then a batch may be decompressed in vain.
"""

from __future__ import annotations

from typing import Final

from brokers.engine.storage.compaction.offset_map import OffsetMap

PLACES_MAX: Final = 8 * 1024 * 1024


class LiveOffsetFilter:
    """Live offsets of a map that was filled from `first_dirty` on; later additions to the map are not included."""

    __slots__ = ("_end", "_first", "_places", "_shift")

    def __init__(self, offsets: OffsetMap, first_dirty: int, places_max: int = PLACES_MAX) -> None:
        self._first = first_dirty
        self._end = offsets.latest_offset + 1
        span = max(self._end - first_dirty, 0)
        self._shift = (span // places_max).bit_length()
        self._places = bytearray((span >> self._shift) + 1)
        for offset in offsets.offsets():
            if offset < self._end:  # the last batch may be mapped in part
                self._places[(offset - first_dirty) >> self._shift] = 1

    def any_of(self, base_offset: int, last_offset: int) -> bool:
        """True if a record between the two offsets, both included, may be live; always true outside the mapped
        range.
        """
        if base_offset < self._first or last_offset >= self._end:
            return True
        start = (base_offset - self._first) >> self._shift
        end = ((last_offset - self._first) >> self._shift) + 1
        return self._places.find(1, start, end) >= 0
