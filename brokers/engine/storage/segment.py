"""One segment: a `.log` file with its indexes, all named after its base offset (LOG-4, LOG-5).

Only the log's last segment is appended to. A segment that is not being used holds no descriptor and, once closed, no
index in memory.
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
# File systems give space away in blocks of this size.
BLOCK_BYTES: Final = 4096
SCAN_CHUNK_BYTES: Final = 16 * 1024
# Offsets behind damage that were asked for, whose readers are not worth another scan of the file.
DAMAGED_REMEMBERED_MAX: Final = 128


# (`index.interval.bytes`, `segment.index.bytes`)
IndexLimits = tuple[int, int]


def base_name(base_offset: int) -> str:
    """20 digits, zero-padded."""
    return f"{base_offset:020d}"


def blocks_bytes(size_bytes: int) -> int:
    """Bytes of the disk that a file of this size takes."""
    return -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES


class DamagedSegment(Exception):
    """Reading met bytes that are no batch where one must begin: in which file, at which byte."""

    def __init__(self, path: str, position: int) -> None:
        super().__init__(f"{path}: no batch begins at byte {position}")
        self.path = path
        self.position = position


class Segment:
    """A part of a log that begins at `base_offset`.

    `size_bytes` is the length of the log file; positions are byte positions in it. `aborted` is None unless some
    transaction was aborted here. `side_bytes` is what its other files take of the disk.
    """

    __slots__ = (
        "aborted",
        "base_offset",
        "bytes_since_entry",
        "created_ms",
        "damaged",
        "file",
        "first_timestamp",
        "indexed_timestamp",
        "indexes_full",
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
        """An existing segment when `size_bytes` is given, otherwise one whose files appear at the first append."""
        stem = f"{directory}/{base_name(base_offset)}"
        fresh = size_bytes is None
        self.base_offset = base_offset
        self.file = SegmentFile(stem + LOG_SUFFIX, root, files)
        self.offset_index = OffsetIndex(stem + INDEX_SUFFIX, root, base_offset, fresh=fresh)
        self.time_index = TimeIndex(stem + TIME_INDEX_SUFFIX, root, base_offset, fresh=fresh)
        self.aborted: AbortedIndex | None = None
        self.size_bytes = size_bytes or 0
        self.bytes_since_entry = 0
        self.created_ms = now_ms
        # Offset that was asked for -> where a batch should begin on the way to it and none does.
        self.damaged: dict[int, int] = {}
        self.first_timestamp: int | None = None
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.indexed_timestamp = -1
        self.indexes_full = False
        self.side_bytes = 0
        if not fresh:
            self.measure_side_files()

    @property
    def disk_bytes(self) -> int:
        """Bytes of the disk that it takes, with its indexes and the snapshot of producers at its beginning."""
        return blocks_bytes(self.size_bytes) + self.side_bytes

    @property
    def active_disk_bytes(self) -> int:
        """Bytes of the disk that it takes while it is appended to and its indexes grow in memory."""
        index_bytes = blocks_bytes(self.offset_index.loaded_bytes) + blocks_bytes(self.time_index.loaded_bytes)
        return blocks_bytes(self.size_bytes) + max(self.side_bytes, index_bytes)

    def measure_side_files(self) -> None:
        """Looks up what the files beside the log take. Call when they are written."""
        stem, side_bytes = self.file.path.removesuffix(LOG_SUFFIX), 0
        with storage_errors(self.file.root):
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, SNAPSHOT_SUFFIX):
                try:
                    side_bytes += blocks_bytes(os.stat(stem + suffix).st_size)  # noqa: PTH116
                except FileNotFoundError:
                    continue
        self.side_bytes = side_bytes

    def append(self, data: memoryview | bytes, last_offset: int, max_timestamp: int, limits: IndexLimits) -> None:
        """Writes one batch with its offsets already assigned. Raises StorageFailed and changes nothing then."""
        position = self.size_bytes
        append_all(self.file, data, position)
        size = len(data)
        self.size_bytes = position + size
        if position == 0:
            self.first_timestamp = max_timestamp
        self.account(position, size, last_offset, max_timestamp, limits)

    def append_many(
        self,
        data: memoryview,
        batches: list[tuple[int, int, int, int, int, int, int, int, int]],
        limits: IndexLimits,
    ) -> None:
        """As `append`, for the batches (`log.FollowedBatch`) that fill `data`."""
        position = self.size_bytes
        append_all(self.file, data, position)
        if position == 0:
            self.first_timestamp = batches[0][3]
        for size, _, last_offset, max_timestamp, _, _, _, _, _ in batches:
            self.size_bytes += size
            self.account(position, size, last_offset, max_timestamp, limits)
            position += size

    def account(self, position: int, size: int, last_offset: int, max_timestamp: int, limits: IndexLimits) -> None:
        """Index entries and the greatest timestamp, for a batch written at `position` (LOG-9)."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_entry > limits[0]:
            self.offset_index.add(last_offset, position)
            if self.max_timestamp > self.indexed_timestamp:
                self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
                self.indexed_timestamp = self.max_timestamp
            self.bytes_since_entry = 0
            self.indexes_full = self.offset_index.full(limits[1]) or self.time_index.full(limits[1])
        self.bytes_since_entry += size

    def add_aborted(self, aborted: Aborted) -> None:
        """The transaction's marker is the last batch that was written here."""
        index = self.aborted
        if index is None:
            index = self.aborted = self._aborted_index(fresh=True)
        index.add(aborted)

    def find_aborted(self) -> None:
        """Its file is there: it lists aborted transactions."""
        self.aborted = self._aborted_index(fresh=False)

    def _aborted_index(self, *, fresh: bool) -> AbortedIndex:
        path = self.file.path.removesuffix(LOG_SUFFIX) + TRANSACTION_INDEX_SUFFIX
        return AbortedIndex(path, self.file.root, self.base_offset, fresh=fresh)

    def indexes(self) -> list[OffsetIndex | TimeIndex | AbortedIndex]:
        """All it has."""
        if self.aborted is None:
            return [self.offset_index, self.time_index]
        return [self.offset_index, self.time_index, self.aborted]

    def headers(self, position: int, end: int | None = None, wait: bool = True) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch from `position`, read in chunks; stops before anything that is no batch.

        Unless they may `wait` for the disk, this and the other readers here raise NotCached rather than do so.
        """
        end = self.size_bytes if end is None else end
        chunk = b""
        chunk_at = position
        while position + layout.HEADER_BYTES <= end:
            if position + layout.HEADER_BYTES > chunk_at + len(chunk):
                chunk = read_at(self.file, position, min(SCAN_CHUNK_BYTES, end - position), wait)
                chunk_at = position
            try:
                header = layout.read_header(chunk, position - chunk_at)
            except struct.error:  # the file is shorter than it should be
                return
            size = header.size_bytes
            if header.magic != layout.MAGIC or size < layout.HEADER_BYTES or position + size > end:
                return
            if header.last_offset_delta < 0:  # whoever looks for an offset would pass it by
                return
            yield position, header
            position += size

    def locate(self, offset: int, wait: bool = True) -> tuple[int, BatchHeader] | None:
        """The first batch whose last offset is >= `offset` (LOG-22), None if this segment has none."""
        if not wait:
            self.offset_index.ready()
        start = self.offset_index.lookup(offset)
        believed = start == 0
        for position, header in self.headers(start, None, wait):
            if not believed:
                if header.base_offset > offset:
                    break
                believed = True
            if header.last_offset >= offset:
                return position, header
        return None if believed else self._search(offset, wait)

    def _search(self, offset: int, wait: bool) -> tuple[int, BatchHeader] | None:
        """`locate` without the index, whose entry named no batch at or before `offset`: it is damaged."""
        for position, header in self.headers(0, None, wait):
            if header.last_offset >= offset:
                return position, header
        return None

    def check_chain(self, offset: int, wait: bool = True) -> None:
        """That no batch holds `offset` or more is because there is none, not because something is in the way. Raises
        DamagedSegment.
        """
        end = 0
        for start in (self.offset_index.lookup(offset), 0):
            end = start
            for position, header in self.headers(start, None, wait):
                end = position + header.size_bytes
            if end == self.size_bytes:
                return
        if len(self.damaged) >= DAMAGED_REMEMBERED_MAX:
            self.damaged.clear()
        self.damaged[offset] = end
        raise DamagedSegment(self.file.path, end)

    def end_before(self, offset: int) -> tuple[int, int]:
        """(size, next offset) of what stays of the file if no batch may hold `offset` or more. Behind damage nobody can
        tell which batches do: none of them stays, to be followed by other ones of the same offsets.
        """
        result = self.locate(offset)
        if result is not None:
            return result[0], result[1].base_offset
        for start in (self.offset_index.lookup(offset), 0):
            end, next_offset = start, self.base_offset
            for position, header in self.headers(start):
                end, next_offset = position + header.size_bytes, header.next_offset
            if end == self.size_bytes:
                return end, offset
        return end, next_offset

    def batch_at(self, position: int, size: int, wait: bool = True) -> bytes:
        return read_at(self.file, position, size, wait)

    def largest_timestamp(self) -> int:
        """LOG-27: the greatest timestamp of its records, or the file's modification time if they carry none."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        with storage_errors(self.file.root):
            return int(Path(self.file.path).stat().st_mtime * 1000) if self.size_bytes else self.created_ms

    def load_first_timestamp(self) -> int:
        """The maximum timestamp of the first batch, -1 for an empty segment; the clock of LOG-16."""
        if self.first_timestamp is None:
            first = next(self.headers(0), None)
            if first is None:
                return -1
            self.first_timestamp = first[1].max_timestamp
        return self.first_timestamp

    def finish(self) -> None:
        """Final time entry and full index files: on roll and on clean stop (LOG-10)."""
        if self.size_bytes:
            self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
        for index in self.indexes():
            index.store()
            if not len(index) and index is not self.aborted:  # as the time index of records without times
                index.make_file()
        self.measure_side_files()

    def wake(self) -> None:
        """Closed until now, and to be appended to again: its indexes are in memory from here on."""
        for index in self.indexes():
            len(index)

    def rest(self) -> None:
        """Closed and idle: lets go of the descriptor and of the indexes' memory."""
        self.file.close()
        for index in self.indexes():
            index.unload()

    def truncate(self, size_bytes: int, next_offset: int) -> None:
        """Cuts the file at `size_bytes`, where the batch of `next_offset` began or would begin. Durably: what was cut
        must not come back beside what is written after it.
        """
        fd = self.file.open()
        with storage_errors(self.file.root, halfway=True):
            os.ftruncate(fd, size_bytes)
            os.fsync(fd)
        self.size_bytes = size_bytes
        self.damaged.clear()
        self.offset_index.truncate(next_offset)
        self.time_index.truncate(next_offset)
        if self.aborted is not None:
            self.aborted.truncate(next_offset)
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last
        self.indexed_timestamp = self.max_timestamp
        self.indexes_full = False
        self.bytes_since_entry = size_bytes - self.offset_index.last_position()
        for _, header in self.headers(self.offset_index.last_position()):
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        if not size_bytes:
            # Nobody stores the indexes of an empty segment; their files would go on naming what is gone.
            for index in self.indexes():
                index.store()

    def create_file(self) -> None:
        """Makes the empty log file exist: its name carries the log's end offset over a restart."""
        self.file.open()

    def paths(self) -> list[str]:
        stem = self.file.path.removesuffix(LOG_SUFFIX)
        return [stem + suffix for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)]

    def mark_deleted(self) -> list[str]:
        """Renames its files to `.deleted` and answers those names; readers keep their slices (LOG-44)."""
        self.file.retire()
        renamed = []
        with storage_errors(self.file.root, halfway=True):
            for path in self.paths():
                if os.path.exists(path):  # noqa: PTH110 (plain strings: a partition keeps no Path objects)
                    os.rename(path, path + DELETED_SUFFIX)  # noqa: PTH104
                    renamed.append(path + DELETED_SUFFIX)
        return renamed
