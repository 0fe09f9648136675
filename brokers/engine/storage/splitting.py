"""Splitting of segments with offsets further from their base than an index can express (LOG-40, KAFKA-6264).

Cleaners before Kafka 2.0 created them by merging segments. Their index entries overflowed 32 bits and are rebuilt. The
parts replace the segment like a compacted one (`compaction.swap`), all or none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

from brokers.engine.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    LONG_MAX,
    OFFSET_AND_LENGTH,
    BatchHeader,
)
from brokers.engine.storage.compaction import swap
from brokers.engine.storage.compaction.pacing import Pacer
from brokers.engine.storage.compaction.writing import (
    ABORTED_SUFFIX,
    CLEANED_SUFFIX,
    REQUIRED_SUFFIXES,
    SWAP_SUFFIX,
    CleanedSegment,
)
from brokers.engine.storage.files import OpenFiles, storage_errors, sync_directory
from brokers.engine.storage.indexes import AbortedIndex
from brokers.engine.storage.log import RELATIVE_OFFSET_MAX
from brokers.engine.storage.sanity_checks import has_bad_offsets, is_intact
from brokers.engine.storage.segment import LOG_SUFFIX, Segment, base_name

WRITE_BYTES: Final = 1024 * 1024
SKIP_CHUNK_BYTES: Final = 16 * 1024


class PositionedBatch(NamedTuple):
    """A batch and its position in the segment."""

    position: int
    header: BatchHeader
    data: bytes

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        return self.header.last_offset


class OffsetRange(Protocol):
    """Offset range of a batch."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...


RangedBatch = TypeVar("RangedBatch", bound=OffsetRange)


class PartsWriter:
    """Writes the `.cleaned` files of the segments that replace one segment.

    A part ends where the next batch is out of its range. The first part keeps the segment's base, even if no batch is
    within its range, because the log may start there.
    """

    def __init__(self, directory: str, root: Path, base_offset: int, interval_bytes: int) -> None:
        """Starts the first part of the segment with `base_offset` in `directory`."""
        stem = f"{directory}/{base_name(base_offset)}"
        self.bases = [base_offset]
        self._directory = directory
        self._root = root
        self._interval_bytes = interval_bytes
        self._modified_ns = os.stat(stem + LOG_SUFFIX).st_mtime_ns  # noqa: PTH116
        self._aborted = AbortedIndex(stem + ABORTED_SUFFIX, root, base_offset, is_new=False)
        self._current_part = self._begin_part(base_offset)

    def _begin_part(self, base_offset: int) -> CleanedSegment:
        pacer = Pacer(0, clock=time.monotonic, sleep=time.sleep)
        return CleanedSegment(self._directory, base_offset, self._interval_bytes, WRITE_BYTES, pacer)

    def add(self, data: bytes | bytearray, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """Adds the next batch, in a new part if it is out of range. Raises OSError."""
        if last_offset - self.bases[-1] > RELATIVE_OFFSET_MAX:
            self._end_part(base_offset)
            self.bases.append(base_offset)
            self._current_part = self._begin_part(base_offset)
        self._current_part.add(data, last_offset, max_timestamp)

    def add_trailing_bytes(self, data: bytes) -> None:
        """Adds the bytes behind the last intact batch unchanged; recovery checks and reports them."""
        self._current_part.add_trailing_bytes(data)

    def _end_part(self, next_base: int) -> None:
        self._current_part.aborted.copy_from(self._aborted, next_base)
        self._current_part.finish(self._modified_ns)

    def finish(self) -> None:
        """Replaces the segment by the parts. Raises OSError and StorageFailed."""
        self._end_part(LONG_MAX)
        # From the last to the first: while any file is called `.cleaned`, a start discards all above it.
        for base in reversed(self.bases):
            stem = f"{self._directory}/{base_name(base)}"
            for suffix in (*REQUIRED_SUFFIXES, ABORTED_SUFFIX):
                if suffix != ABORTED_SUFFIX or os.path.exists(stem + suffix + CLEANED_SUFFIX):  # noqa: PTH110
                    os.rename(stem + suffix + CLEANED_SUFFIX, stem + suffix + SWAP_SUFFIX)  # noqa: PTH104
        sync_directory(Path(self._directory), self._root)
        swap.complete_interrupted_swaps(self._directory, self._root)
        sync_directory(Path(self._directory), self._root)

    def close(self) -> None:
        """Closes the open files, finished or not."""
        self._current_part.close()


def split_far_segments(
    directory: str, root: Path, bases: Sequence[int], interval_bytes: int, recovery_point: int
) -> int:
    """Splits every segment of `directory` (`bases` in order) that needs it and returns how many.

    Raises StorageFailed.
    """
    count = 0
    for base, next_base in pairwise([*bases, LONG_MAX]):
        if next_base - base - 1 <= RELATIVE_OFFSET_MAX:
            continue  # the next segment begins before an offset could be out of range
        with storage_errors(root):
            size = os.stat(f"{directory}/{base_name(base)}{LOG_SUFFIX}").st_size  # noqa: PTH116
            segment = Segment(directory, root, base, OpenFiles(), now_ms=0, size_bytes=size)
            try:
                if needs_split(segment, next_base, recovery_point):
                    _split(segment, directory, root, next_base, interval_bytes, recovery_point)
                    count += 1
            finally:
                segment.file.close()
    return count


def needs_split(segment: Segment, next_base: int, recovery_point: int) -> bool:
    """True if the segment has intact and credible batches that are out of range, before any damage.

    `next_base` is the base of the next segment, LONG_MAX if there is none.
    """
    limit = segment.base_offset + RELATIVE_OFFSET_MAX
    if not segment.size_bytes or _find_last_offset(segment) <= limit:
        return False
    batches = filter_confirmed(_read_intact_batches(segment, next_base), segment.base_offset, next_base, recovery_point)
    return any(batch.last_offset > limit for batch in batches)


def _find_last_offset(segment: Segment) -> int:
    """Returns the last offset of the last batch, -1 if there is none; uses only the positions in the index."""
    for start in (max(segment.offset_index.find_floor_position(segment.size_bytes), 0), 0):
        for position in (_skip_to_last_batch(segment, start), start):
            last_offset = -1
            for _, header in segment.headers(position):
                last_offset = header.last_offset
            if last_offset >= 0:
                return last_offset
    return -1


def _skip_to_last_batch(segment: Segment, position: int) -> int:
    """Returns the position of the last whole batch if every length from `position` on is right.

    A start after a crash scans all unflushed batches this way, so only their lengths are read.
    """
    last_position, end = position, segment.size_bytes
    chunk, chunk_at = b"", position
    while position + HEADER_BYTES <= end:
        if position + LOG_OVERHEAD_BYTES > chunk_at + len(chunk):
            chunk, chunk_at = segment.batch_at(position, SKIP_CHUNK_BYTES), position
            if len(chunk) < LOG_OVERHEAD_BYTES:
                break
        next_position = position + LOG_OVERHEAD_BYTES + OFFSET_AND_LENGTH.unpack_from(chunk, position - chunk_at)[1]
        if not position + HEADER_BYTES <= next_position <= end:
            break
        last_position, position = position, next_position
    return last_position


def filter_confirmed(
    batches: Iterable[RangedBatch], base: int, next_base: int, recovery_point: int
) -> Iterator[RangedBatch]:
    """Yields those intact batches of a segment that go into its parts; `base` is the segment's base offset.

    No checksum covers a base offset, so a batch that is alone in a part at the end of the log may have a flipped bit.
    It needs confirmation by a batch behind it, by a segment or by the recovery point.
    """
    unconfirmed: RangedBatch | None = None
    for batch in batches:
        if unconfirmed is not None:
            yield unconfirmed
            base, unconfirmed = unconfirmed.base_offset, None
        if batch.last_offset - base > RELATIVE_OFFSET_MAX:
            if next_base == LONG_MAX and batch.last_offset >= recovery_point:
                unconfirmed = batch
                continue
            base = batch.base_offset
        yield batch


def _read_intact_batches(segment: Segment, next_base: int) -> Iterator[PositionedBatch]:
    """Yields the batches before the first that is damaged or out of order."""
    next_offset = segment.base_offset
    for position, header in segment.headers(0):
        data = segment.batch_at(position, header.size_bytes)
        if has_bad_offsets(header, next_offset, next_base) or not is_intact(data, header):
            return
        yield PositionedBatch(position, header, data)
        next_offset = header.next_offset


def _split(
    segment: Segment, directory: str, root: Path, next_base: int, interval_bytes: int, recovery_point: int
) -> None:
    parts = PartsWriter(directory, root, segment.base_offset, interval_bytes)
    try:
        end = 0
        batches = _read_intact_batches(segment, next_base)
        for position, header, data in filter_confirmed(batches, segment.base_offset, next_base, recovery_point):
            parts.add(data, header.base_offset, header.last_offset, header.max_timestamp)
            end = position + header.size_bytes
        while trailing_bytes := segment.batch_at(end, min(WRITE_BYTES, segment.size_bytes - end)):
            parts.add_trailing_bytes(trailing_bytes)
            end += len(trailing_bytes)
        parts.finish()
    finally:
        parts.close()
