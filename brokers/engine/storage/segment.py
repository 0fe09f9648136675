"""Segment of a log: a `.log` file with its indexes, all named after its base offset (LOG-4, LOG-5).

Only the last segment of a log is appended to. An unused segment has no open descriptor and, once it is closed, no index
in memory.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from brokers.engine.records import batch as layout
from brokers.engine.records.batch import BatchHeader
from brokers.engine.storage.files import OpenFiles, SegmentFile, append_all, read_at, storage_errors
from brokers.engine.storage.indexes import Aborted, AbortedIndex, OffsetIndex, TimeIndex
from brokers.engine.storage.producer_state import SNAPSHOT_SUFFIX

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
DELETED_SUFFIX: Final = ".deleted"
# Block size in which file systems allocate disk space.
BLOCK_BYTES: Final = 4096
SCAN_CHUNK_BYTES: Final = 16 * 1024
# Maximum number of offsets behind damage that are cached, so that repeated reads do not scan the file again.
DAMAGES_CACHED_MAX: Final = 128


# (`index.interval.bytes`, `segment.index.bytes`)
IndexLimits = tuple[int, int]


def base_name(base_offset: int) -> str:
    """Returns the base offset as 20 digits, zero-padded."""
    return f"{base_offset:020d}"


def allocated_bytes(size_bytes: int) -> int:
    """Returns the disk space in bytes that a file of this size takes."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


class DamagedSegment(Exception):
    """A read met bytes that are no batch where a batch must begin; carries the file and the position."""

    def __init__(self, path: str, position: int) -> None:
        super().__init__(f"{path}: no batch begins at byte {position}")
        self.path = path
        self.position = position


class Segment:
    """A part of a log that begins at `base_offset`.

    `size_bytes` is the length of the log file, and positions are byte positions in it. `aborted` is None unless a
    transaction was aborted in this segment. `side_bytes` is the disk space that the other files of the segment take.
    """

    __slots__ = (
        "aborted",
        "base_offset",
        "bytes_since_entry",
        "created_ms",
        "damage_by_offset",
        "file",
        "first_timestamp",
        "has_full_index",
        "indexed_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "side_bytes",
        "size_bytes",
        "time_index",
    )

    def __init__(
        self,
        directory: str,
        root: Path,
        base_offset: int,
        files: OpenFiles,
        *,
        now_ms: int,
        size_bytes: int | None = None,
    ) -> None:
        """Opens an existing segment if `size_bytes` is given; otherwise its files are created by the first append."""
        stem = f"{directory}/{base_name(base_offset)}"
        is_new = size_bytes is None
        self.base_offset = base_offset
        self.file = SegmentFile(stem + LOG_SUFFIX, root, files)
        self.offset_index = OffsetIndex(stem + INDEX_SUFFIX, root, base_offset, is_new=is_new)
        self.time_index = TimeIndex(stem + TIME_INDEX_SUFFIX, root, base_offset, is_new=is_new)
        self.aborted: AbortedIndex | None = None
        self.size_bytes = size_bytes or 0
        self.bytes_since_entry = 0
        self.created_ms = now_ms
        # Offset that was looked up -> position on the way to it where a batch should begin and none does.
        self.damage_by_offset: dict[int, int] = {}
        self.first_timestamp: int | None = None
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.indexed_timestamp = -1
        self.has_full_index = False
        self.side_bytes = 0
        if not is_new:
            self.measure_side_files()

    @property
    def disk_bytes(self) -> int:
        """Disk space in bytes, including the indexes and the producer snapshot at the base offset."""
        return allocated_bytes(self.size_bytes) + self.side_bytes

    @property
    def active_disk_bytes(self) -> int:
        """Disk space in bytes while the segment is appended to and its indexes grow in memory."""
        index_bytes = allocated_bytes(self.offset_index.loaded_bytes) + allocated_bytes(self.time_index.loaded_bytes)
        return allocated_bytes(self.size_bytes) + max(self.side_bytes, index_bytes)

    def measure_side_files(self) -> None:
        """Measures the disk space of the files beside the log; called after they are written."""
        stem, side_bytes = self.file.path.removesuffix(LOG_SUFFIX), 0
        with storage_errors(self.file.root):
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX):
                try:
                    side_bytes += allocated_bytes(os.stat(stem + suffix).st_size)  # noqa: PTH116
                except FileNotFoundError:
                    continue
        self.side_bytes = side_bytes

    def append(self, data: memoryview | bytes, last_offset: int, max_timestamp: int, limits: IndexLimits) -> None:
        """Writes one batch whose offsets are already assigned. Raises StorageFailed, and then changes nothing."""
        position = self.size_bytes
        append_all(self.file, data, position)
        size = len(data)
        self.size_bytes = position + size
        if position == 0:
            self.first_timestamp = max_timestamp
        self.index_batch(position, size, last_offset, max_timestamp, limits)

    def append_many(
        self,
        data: memoryview,
        batches: list[tuple[int, int, int, int, int, int, int, int, int]],
        limits: IndexLimits,
    ) -> None:
        """Writes the batches (`as_follower.FollowedBatch`) that fill `data`. Raises StorageFailed, and then
        changes nothing.
        """
        position = self.size_bytes
        append_all(self.file, data, position)
        if position == 0:
            self.first_timestamp = batches[0][3]
        for size, _, last_offset, max_timestamp, _, _, _, _, _ in batches:
            self.size_bytes += size
            self.index_batch(position, size, last_offset, max_timestamp, limits)
            position += size

    def index_batch(self, position: int, size: int, last_offset: int, max_timestamp: int, limits: IndexLimits) -> None:
        """Adds index entries and tracks the greatest timestamp for a batch that was written at `position` (LOG-9)."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_entry > limits[0]:
            self.offset_index.add(last_offset, position)
            if self.max_timestamp > self.indexed_timestamp:
                self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
                self.indexed_timestamp = self.max_timestamp
            self.bytes_since_entry = 0
            self.has_full_index = self.offset_index.is_full(limits[1]) or self.time_index.is_full(limits[1])
        self.bytes_since_entry += size

    def add_aborted(self, aborted: Aborted) -> None:
        """Lists an aborted transaction whose marker is the last batch that was written to this segment."""
        index = self.aborted
        if index is None:
            index = self.aborted = self._aborted_index(is_new=True)
        index.add(aborted)

    def open_aborted_index(self) -> None:
        """Opens the index of aborted transactions, whose file exists."""
        self.aborted = self._aborted_index(is_new=False)

    def _aborted_index(self, *, is_new: bool) -> AbortedIndex:
        path = self.file.path.removesuffix(LOG_SUFFIX) + TRANSACTION_INDEX_SUFFIX
        return AbortedIndex(path, self.file.root, self.base_offset, is_new=is_new)

    def indexes(self) -> list[OffsetIndex | TimeIndex | AbortedIndex]:
        """Returns all indexes of the segment."""
        if self.aborted is None:
            return [self.offset_index, self.time_index]
        return [self.offset_index, self.time_index, self.aborted]

    def headers(
        self, position: int, end: int | None = None, may_wait: bool = True
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yields (position, header) of each batch from `position` on, read in chunks; stops before anything that is no
        batch.

        Without `may_wait`, all readers of the segment raise NotCached instead of waiting for the disk.
        """
        end = self.size_bytes if end is None else end
        chunk = b""
        chunk_at = position
        while position + layout.HEADER_BYTES <= end:
            if position + layout.HEADER_BYTES > chunk_at + len(chunk):
                chunk = read_at(self.file, position, min(SCAN_CHUNK_BYTES, end - position), may_wait)
                chunk_at = position
            try:
                header = layout.read_header(chunk, position - chunk_at)
            except struct.error:  # the file is shorter than `size_bytes`
                return
            size = header.size_bytes
            if header.magic != layout.MAGIC or size < layout.HEADER_BYTES or position + size > end:
                return
            if header.last_offset_delta < 0:  # a search for an offset would skip this batch
                return
            yield position, header
            position += size

    def locate(self, offset: int, may_wait: bool = True) -> tuple[int, BatchHeader] | None:
        """Returns (position, header) of the first batch whose last offset is >= `offset` (LOG-22), or None."""
        if not may_wait:
            self.offset_index.require_cached()
        start = self.offset_index.lookup(offset)
        is_index_trusted = start == 0
        for position, header in self.headers(start, None, may_wait):
            if not is_index_trusted:
                if header.base_offset > offset:
                    break
                is_index_trusted = True
            if header.last_offset >= offset:
                return position, header
        return None if is_index_trusted else self._search(offset, may_wait)

    def _search(self, offset: int, may_wait: bool) -> tuple[int, BatchHeader] | None:
        """Searches as `locate` does but without the index, whose entry points past `offset` because it is damaged."""
        for position, header in self.headers(0, None, may_wait):
            if header.last_offset >= offset:
                return position, header
        return None

    def raise_if_damaged(self, offset: int, may_wait: bool = True) -> None:
        """Raises DamagedSegment if damage, not the end of the segment, is the reason that `locate(offset)` failed."""
        end = 0
        for start in (self.offset_index.lookup(offset), 0):
            end = start
            for position, header in self.headers(start, None, may_wait):
                end = position + header.size_bytes
            if end == self.size_bytes:
                return
        if len(self.damage_by_offset) >= DAMAGES_CACHED_MAX:
            self.damage_by_offset.clear()
        self.damage_by_offset[offset] = end
        raise DamagedSegment(self.file.path, end)

    def find_truncation_point(self, offset: int) -> tuple[int, int]:
        """Returns (size in bytes, next offset) of the file once every batch with `offset` or a later one is removed.

        Batches behind damage are removed too: their offsets are unknown, and batches that are written later must not
        repeat them.
        """
        located = self.locate(offset)
        if located is not None:
            return located[0], located[1].base_offset
        for start in (self.offset_index.lookup(offset), 0):
            end, next_offset = start, self.base_offset
            for position, header in self.headers(start):
                end, next_offset = position + header.size_bytes, header.next_offset
            if end == self.size_bytes:
                return end, offset
        return end, next_offset

    def batch_at(self, position: int, size: int, may_wait: bool = True) -> bytes:
        """Returns the `size` bytes at `position`, fewer at the end of the file."""
        return read_at(self.file, position, size, may_wait)

    def largest_timestamp(self) -> int:
        """Greatest timestamp of the records, or the modification time of the file if they carry none (LOG-27)."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        with storage_errors(self.file.root):
            return int(Path(self.file.path).stat().st_mtime * 1000) if self.size_bytes else self.created_ms

    def load_first_timestamp(self) -> int:
        """Returns the maximum timestamp of the first batch, -1 for an empty segment; time-based rolling starts there
        (LOG-16).
        """
        if self.first_timestamp is None:
            first_batch = next(self.headers(0), None)
            if first_batch is None:
                return -1
            self.first_timestamp = first_batch[1].max_timestamp
        return self.first_timestamp

    def finish(self) -> None:
        """Adds the final time index entry and writes complete index files, on roll and on a clean stop (LOG-10)."""
        if self.size_bytes:
            self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
        for index in self.indexes():
            index.store()
            if not len(index) and index is not self.aborted:  # the time index of records without timestamps is empty
                index.make_file()
        self.measure_side_files()

    def load_indexes(self) -> None:
        """Loads the indexes of a closed segment that is appended to again."""
        for index in self.indexes():
            len(index)

    def free_memory(self) -> None:
        """Closes the descriptor of an idle closed segment and frees the memory of its indexes."""
        self.file.close()
        for index in self.indexes():
            index.unload()

    def truncate(self, size_bytes: int, next_offset: int) -> None:
        """Truncates the file to `size_bytes`, where the batch of `next_offset` began or would begin.

        The truncation is fsynced: removed batches must not reappear beside batches that are written later.
        """
        fd = self.file.open()
        with storage_errors(self.file.root, halfway=True):
            os.ftruncate(fd, size_bytes)
            os.fsync(fd)
        self.size_bytes = size_bytes
        self.damage_by_offset.clear()
        self.offset_index.truncate(next_offset)
        self.time_index.truncate(next_offset)
        if self.aborted is not None:
            self.aborted.truncate(next_offset)
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last
        self.indexed_timestamp = self.max_timestamp
        self.has_full_index = False
        self.bytes_since_entry = size_bytes - self.offset_index.last_position()
        for _, header in self.headers(self.offset_index.last_position()):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        if not size_bytes:
            # The indexes of an empty segment are not stored elsewhere; their files would still name the removed
            # batches.
            for index in self.indexes():
                index.store()

    def create_file(self) -> None:
        """Creates the empty log file: its name preserves the log end offset over a restart."""
        self.file.open()

    def paths(self) -> list[str]:
        """Returns the paths of the log and of all index files that a segment may have."""
        stem = self.file.path.removesuffix(LOG_SUFFIX)
        return [stem + suffix for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)]

    def mark_deleted(self) -> list[str]:
        """Renames the files to `.deleted` and returns the new names; readers keep their slices (LOG-44)."""
        self.file.retire()
        renamed = []
        with storage_errors(self.file.root, halfway=True):
            for path in self.paths():
                if os.path.exists(path):  # noqa: PTH110 (plain strings: a partition keeps no Path objects)
                    os.rename(path, path + DELETED_SUFFIX)  # noqa: PTH104
                    renamed.append(path + DELETED_SUFFIX)
        return renamed
