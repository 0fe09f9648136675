"""Indexes of a segment, kept in memory exactly as they are stored on disk (LOG-8 to LOG-12, LOG-14).

Entries are packed big-endian and sorted strictly by key. The entries of the active segment are collected in memory and
written when the log is flushed, rolled or closed: an unclean stop rebuilds them from the log anyway. The files are not
preallocated, which Kafka accepts.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from brokers.engine.page_cache import read_cached
from brokers.engine.records.batch import LONG_MAX
from brokers.engine.storage.files import NotCached, UncachedFile, storage_errors

OFFSET_ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")
ABORTED_ENTRY: Final = Struct(">hqqqq")
ABORTED_VERSION: Final = 0


# Stored size of an index file whose content is invalid.
INVALID_CONTENT: Final = -1


class TimeEntry(NamedTuple):
    """The greatest timestamp up to a point of the segment, and the last offset of the batch that carries it."""

    timestamp_ms: int
    offset: int


class OffsetEntry(NamedTuple):
    """The last offset of an append, and the position where that append starts."""

    offset: int
    position: int


class Aborted(NamedTuple):
    """An aborted transaction: its first offset, the offset of its marker, and the last stable offset after the
    marker.
    """

    producer_id: int
    first_offset: int
    marker_offset: int
    stable_offset: int


class _Index:
    """Entries of one segment index; `_entries` is None while an idle closed segment has none in memory."""

    __slots__ = ("_entries", "_is_file_longer", "_stored_bytes", "base_offset", "is_synced", "path", "root")
    layout: Struct

    def __init__(self, path: str, root: Path, base_offset: int, *, is_new: bool) -> None:
        self.path = path
        self.root = root
        self.base_offset = base_offset
        self._entries: bytearray | bytes | None = b"" if is_new else None
        self._stored_bytes = 0
        self._is_file_longer = False  # the file is longer than the stored entries
        # True if the content of the file is on disk, which is assumed of a file that was found at start.
        self.is_synced = True

    @property
    def entries(self) -> bytearray | bytes:
        """The packed entries, which are read from the file unless they are in memory."""
        if self._entries is None:
            with storage_errors(self.root):
                self._entries = Path(self.path).read_bytes() if Path(self.path).exists() else b""
            self._stored_bytes = len(self._entries)
        return self._entries

    @property
    def loaded_bytes(self) -> int:
        """Size in bytes of the entries in memory, 0 if they are not loaded."""
        return 0 if self._entries is None else len(self._entries)

    def require_cached(self) -> None:
        """Loads the entries into memory. Raises NotCached if that requires waiting for the disk."""
        if self._entries is not None or not os.path.exists(self.path):  # noqa: PTH110
            return
        with storage_errors(self.root):
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                entries = read_cached(fd, os.fstat(fd).st_size, 0)
            finally:
                os.close(fd)
        if entries is None:
            raise NotCached(UncachedFile(self.path))
        self._entries = entries
        self._stored_bytes = len(entries)

    def __len__(self) -> int:
        return len(self.entries) // self.layout.size

    def _add(self, entry: bytes) -> None:
        entries = self.entries
        if not isinstance(entries, bytearray):
            entries = self._entries = bytearray(entries)
        entries += entry

    def _find_floor(self, key: int) -> int:
        """Returns the number of the greatest entry whose first field is <= `key`, -1 if there is none."""
        entries, layout = self.entries, self.layout
        low, high = 0, len(entries) // layout.size
        while low < high:
            middle = (low + high) // 2
            if layout.unpack_from(entries, middle * layout.size)[0] <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def store(self, *, durable: bool = False) -> None:
        """Writes the entries that the file lacks and truncates it to them; `durable` adds an fsync."""
        if self._entries is None:
            return
        if self._stored_bytes == len(self._entries) and not self._is_file_longer and not durable:
            return
        stored_bytes = max(self._stored_bytes, 0)
        with storage_errors(self.root):
            fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(fd, stored_bytes)
                self.is_synced = False
                position = stored_bytes
                while position < len(self._entries):
                    position += os.pwrite(fd, memoryview(self._entries)[position:], position)
                if durable:
                    os.fsync(fd)
            finally:
                os.close(fd)
        self._stored_bytes = len(self._entries)
        self._is_file_longer = False
        self.is_synced = durable

    def make_file(self) -> None:
        """Creates an empty file for an index without entries when its segment is closed.

        Kafka and recovery treat an index without a file as lost.
        """
        if not os.path.exists(self.path):  # noqa: PTH110
            with storage_errors(self.root):
                os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def unload(self) -> None:
        """Frees the entries of a closed segment; the next use reads the file again."""
        if self._entries is not None and self._stored_bytes == len(self._entries) and not self._is_file_longer:
            self._entries = None

    def _keep_first(self, count: int) -> None:
        """Keeps the first `count` entries."""
        kept_bytes = count * self.layout.size
        self._entries = bytearray(self.entries[:kept_bytes])
        self._is_file_longer = self._is_file_longer or kept_bytes < self._stored_bytes
        self._stored_bytes = min(self._stored_bytes, kept_bytes)

    def reset(self) -> None:
        """Empties the index before it is rebuilt from the log, and marks the content of its file as invalid."""
        self._entries = bytearray()
        self._stored_bytes = INVALID_CONTENT


class OffsetIndex(_Index):
    """Offset index (`.index`): last offset of an append -> position where that append starts."""

    __slots__ = ()
    layout = OFFSET_ENTRY

    def is_full(self, bytes_max: int) -> bool:
        """True if one more entry would exceed `bytes_max` (`segment.index.bytes`)."""
        return len(self.entries) + OFFSET_ENTRY.size > bytes_max

    def add(self, offset: int, position: int) -> None:
        self._add(OFFSET_ENTRY.pack(offset - self.base_offset, position))

    def lookup(self, offset: int) -> int:
        """Returns a position from which a forward scan meets the batch that contains `offset` (LOG-11)."""
        number = self._find_floor(offset - self.base_offset)
        # A negative position is damage; the whole segment is scanned then.
        return 0 if number < 0 else max(int(OFFSET_ENTRY.unpack_from(self.entries, number * OFFSET_ENTRY.size)[1]), 0)

    def find_floor(self, offset: int) -> OffsetEntry | None:
        """Returns the greatest entry of an append that ends at or before `offset`, or None."""
        number = self._find_floor(offset - self.base_offset)
        if number < 0:
            return None
        relative_offset, position = OFFSET_ENTRY.unpack_from(self.entries, number * OFFSET_ENTRY.size)
        return OffsetEntry(self.base_offset + relative_offset, position)

    def find_floor_position(self, position: int) -> int:
        """Returns the greatest indexed batch position <= `position`, 0 if there is none."""
        entries = self.entries
        low, high = 0, len(entries) // OFFSET_ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if OFFSET_ENTRY.unpack_from(entries, middle * OFFSET_ENTRY.size)[1] <= position:
                low = middle + 1
            else:
                high = middle
        return 0 if low == 0 else int(OFFSET_ENTRY.unpack_from(entries, (low - 1) * OFFSET_ENTRY.size)[1])

    def offset_at_or_after(self, position: int) -> int:
        """Returns the offset of the first entry whose append starts at `position` or later, -1 if there is none."""
        entries = self.entries
        low, high = 0, len(entries) // OFFSET_ENTRY.size
        while low < high:
            middle = (low + high) // 2
            if OFFSET_ENTRY.unpack_from(entries, middle * OFFSET_ENTRY.size)[1] < position:
                low = middle + 1
            else:
                high = middle
        if low == len(entries) // OFFSET_ENTRY.size:
            return -1
        return self.base_offset + int(OFFSET_ENTRY.unpack_from(entries, low * OFFSET_ENTRY.size)[0])

    @property
    def last(self) -> OffsetEntry | None:
        """The last entry, None if there is none."""
        entries = self.entries
        if not entries:
            return None
        relative_offset, position = OFFSET_ENTRY.unpack_from(entries, len(entries) - OFFSET_ENTRY.size)
        return OffsetEntry(self.base_offset + relative_offset, position)

    def last_position(self) -> int:
        """Returns the position of the last entry, 0 if there is none."""
        entries = self.entries
        return int(OFFSET_ENTRY.unpack_from(entries, len(entries) - OFFSET_ENTRY.size)[1]) if entries else 0

    def truncate(self, offset: int) -> None:
        """Removes the entries of appends that contain `offset` or a later one."""
        self._keep_first(self._find_floor(offset - self.base_offset - 1) + 1)

    def is_sane(self, segment_bytes: int) -> bool:
        """True if all entries are whole and the last one is not before the base offset and is inside the log file
        (LOG-14).
        """
        entries = self.entries
        if len(entries) % OFFSET_ENTRY.size:
            return False
        if not entries:
            return True
        relative_offset, position = OFFSET_ENTRY.unpack_from(entries, len(entries) - OFFSET_ENTRY.size)
        return bool(relative_offset >= 0 and 0 <= position < segment_bytes)


class TimeIndex(_Index):
    """Time index (`.timeindex`): greatest timestamp so far -> last offset of the batch that carries it."""

    __slots__ = ()
    layout = TIME_ENTRY

    def is_full(self, bytes_max: int) -> bool:
        """True one entry before the index is full, so that the final entry of a roll fits (LOG-10)."""
        return len(self.entries) + 2 * TIME_ENTRY.size > bytes_max

    @property
    def last(self) -> TimeEntry:
        """The last entry, (-1, base offset) if there is none."""
        entries = self.entries
        if not entries:
            return TimeEntry(-1, self.base_offset)
        timestamp_ms, relative_offset = TIME_ENTRY.unpack_from(entries, len(entries) - TIME_ENTRY.size)
        return TimeEntry(timestamp_ms, self.base_offset + relative_offset)

    def add(self, timestamp_ms: int, offset: int) -> None:
        """Adds the entry if its timestamp is greater than that of the last one."""
        if timestamp_ms > self.last.timestamp_ms:
            self._add(TIME_ENTRY.pack(timestamp_ms, offset - self.base_offset))

    def lookup(self, timestamp_ms: int) -> TimeEntry:
        """Returns the greatest entry with a timestamp <= `timestamp_ms`, (-1, base offset) if there is none."""
        number = self._find_floor(timestamp_ms)
        if number < 0:
            return TimeEntry(-1, self.base_offset)
        entry_timestamp_ms, relative_offset = TIME_ENTRY.unpack_from(self.entries, number * TIME_ENTRY.size)
        return TimeEntry(entry_timestamp_ms, self.base_offset + relative_offset)

    def find_first_above(self, timestamp_ms: int) -> TimeEntry | None:
        """Returns the first entry with a timestamp > `timestamp_ms`, or None."""
        number = self._find_floor(timestamp_ms) + 1
        if number >= len(self):
            return None
        entry_timestamp_ms, relative_offset = TIME_ENTRY.unpack_from(self.entries, number * TIME_ENTRY.size)
        return TimeEntry(entry_timestamp_ms, self.base_offset + relative_offset)

    def truncate(self, offset: int) -> None:
        """Removes the entries that point at `offset` or later."""
        entries = self.entries
        count = len(entries) // TIME_ENTRY.size
        while count and TIME_ENTRY.unpack_from(entries, (count - 1) * TIME_ENTRY.size)[1] >= offset - self.base_offset:
            count -= 1
        self._keep_first(count)

    def is_sane(self) -> bool:
        """True if all entries are whole, the last offset is not before the base offset and the last timestamp is not
        before the first one (LOG-14).
        """
        entries = self.entries
        if len(entries) % TIME_ENTRY.size:
            return False
        if not entries:
            return True
        first_timestamp_ms = TIME_ENTRY.unpack_from(entries)[0]
        last, relative_offset = TIME_ENTRY.unpack_from(entries, len(entries) - TIME_ENTRY.size)
        return bool(relative_offset >= 0 and last >= first_timestamp_ms)


class AbortedIndex(_Index):
    """Transaction index (`.txnindex`): aborted transactions whose markers are in the segment, in marker order (LOG-12).

    Most segments have no such entries and no file.
    """

    __slots__ = ()
    layout = ABORTED_ENTRY

    def add(self, aborted: Aborted) -> None:
        self._add(ABORTED_ENTRY.pack(ABORTED_VERSION, *aborted))

    def copy_from(self, source: AbortedIndex, end_offset: int) -> None:
        """Adds the entries of another index whose markers are at or above this base offset and below `end_offset`.

        A damaged source is copied whole, so that a later check finds this index damaged and rebuilds it.
        """
        if not source.is_sane(LONG_MAX):
            self._add(bytes(source.entries))
            return
        for number in range(source.first_number_from(self.base_offset), source.first_number_from(end_offset)):
            self.add(source.entry(number))

    def entry(self, number: int) -> Aborted:
        """Returns an entry by its number, from 0 on."""
        _, producer_id, first_offset, marker_offset, stable_offset = ABORTED_ENTRY.unpack_from(
            self.entries, number * ABORTED_ENTRY.size
        )
        return Aborted(producer_id, first_offset, marker_offset, stable_offset)

    def first_number_from(self, offset: int) -> int:
        """Returns the number of the first entry whose marker is at `offset` or later, the entry count if there is
        none.
        """
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle).marker_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def truncate(self, offset: int) -> None:
        """Removes the entries whose markers are at `offset` or later."""
        self._keep_first(self.first_number_from(offset))

    def is_sane(self, next_offset: int) -> bool:
        """True if all entries are whole, have the known version, and their markers increase below `next_offset`
        (LOG-14).
        """
        entries = self.entries
        if len(entries) % ABORTED_ENTRY.size:
            return False
        previous_marker_offset = self.base_offset - 1
        for number in range(len(self)):
            version, _, first_offset, marker_offset, _ = ABORTED_ENTRY.unpack_from(entries, number * ABORTED_ENTRY.size)
            if (
                version != ABORTED_VERSION
                or not previous_marker_offset < marker_offset < next_offset
                or not 0 <= first_offset <= marker_offset
            ):
                return False
            previous_marker_offset = marker_offset
        return True
