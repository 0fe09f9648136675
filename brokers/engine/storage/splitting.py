"""Segments that hold offsets further from their base than an index can name become several (LOG-40, KAFKA-6264).

Cleaners of before Kafka 2.0 joined segments into such ones. The indexes beside them name offsets that ran over 32 bits
and are made again. The parts take the segment's place as a cleaned one does (`compaction.swap`), all or none.
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
from brokers.engine.storage.compaction.writing import CLEANED_SUFFIX, PARTS, RARE_PART, SWAP_SUFFIX, CleanedSegment
from brokers.engine.storage.files import OpenFiles, storage_errors, sync_directory
from brokers.engine.storage.indexes import AbortedIndex
from brokers.engine.storage.log import RELATIVE_OFFSET_MAX
from brokers.engine.storage.sanity_checks import intact, out_of_range
from brokers.engine.storage.segment import LOG_SUFFIX, Segment, base_name

WRITE_BYTES: Final = 1024 * 1024
HOP_BYTES: Final = 16 * 1024


class Batch(NamedTuple):
    """One batch where it lies in its segment."""

    position: int
    header: BatchHeader
    data: bytes

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        return self.header.last_offset


class Spans(Protocol):
    """What can be said of a batch without its content."""

    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...


Span = TypeVar("Span", bound=Spans)


class PartsWriter:
    """The `.cleaned` files of the segments that one becomes. A part ends where the next batch is out of its reach; the
    first one keeps the segment's base, even if nothing is within reach of it: there the log may begin.
    """

    def __init__(self, directory: str, root: Path, base_offset: int, interval_bytes: int) -> None:
        """Of the segment with that base in `directory`."""
        stem = f"{directory}/{base_name(base_offset)}"
        self.bases = [base_offset]
        self._directory = directory
        self._root = root
        self._interval_bytes = interval_bytes
        self._modified_ns = os.stat(stem + LOG_SUFFIX).st_mtime_ns  # noqa: PTH116
        self._aborted = AbortedIndex(stem + RARE_PART, root, base_offset, fresh=False)
        self._part = self._begun(base_offset)

    def _begun(self, base_offset: int) -> CleanedSegment:
        pacer = Pacer(0, clock=time.monotonic, wait=time.sleep)
        return CleanedSegment(self._directory, base_offset, self._interval_bytes, WRITE_BYTES, pacer)

    def add(self, data: bytes | bytearray, base_offset: int, last_offset: int, max_timestamp: int) -> None:
        """The next batch. Raises OSError."""
        if last_offset - self.bases[-1] > RELATIVE_OFFSET_MAX:
            self._end_part(base_offset)
            self.bases.append(base_offset)
            self._part = self._begun(base_offset)
        self._part.add(data, last_offset, max_timestamp)

    def add_rest(self, data: bytes) -> None:
        """What lies behind the last intact batch, as it is: recovery judges it, and tells of it."""
        self._part.add_rest(data)

    def _end_part(self, next_base: int) -> None:
        self._part.aborted.take(self._aborted, next_base)
        self._part.finish(self._modified_ns)

    def finish(self) -> None:
        """The parts take the segment's place. Raises OSError and StorageFailed."""
        self._end_part(LONG_MAX)
        # From the last to the first: as long as anything is called `.cleaned`, a start forgets all that lies above it.
        for base in reversed(self.bases):
            stem = f"{self._directory}/{base_name(base)}"
            for part in (*PARTS, RARE_PART):
                if part != RARE_PART or os.path.exists(stem + part + CLEANED_SUFFIX):  # noqa: PTH110
                    os.rename(stem + part + CLEANED_SUFFIX, stem + part + SWAP_SUFFIX)  # noqa: PTH104
        sync_directory(Path(self._directory), self._root)
        swap.complete(self._directory, self._root)
        sync_directory(Path(self._directory), self._root)

    def close(self) -> None:
        """Lets go of what is open, finished or not."""
        self._part.close()


def split_far_segments(
    directory: str, root: Path, bases: Sequence[int], interval_bytes: int, recovery_point: int
) -> int:
    """Splits every segment of `directory` (their `bases` in order) that needs it; answers how many. Raises
    StorageFailed.
    """
    count = 0
    for base, following in pairwise([*bases, LONG_MAX]):
        if following - base - 1 <= RELATIVE_OFFSET_MAX:
            continue  # no offset is left that would be too far
        with storage_errors(root):
            size = os.stat(f"{directory}/{base_name(base)}{LOG_SUFFIX}").st_size  # noqa: PTH116
            segment = Segment(directory, root, base, OpenFiles(), now_ms=0, size_bytes=size)
            try:
                if reaches_far(segment, following, recovery_point):
                    _split(segment, directory, root, following, interval_bytes, recovery_point)
                    count += 1
            finally:
                segment.file.close()
    return count


def reaches_far(segment: Segment, following: int, recovery_point: int) -> bool:
    """Whether batches of the segment lie too far from its base that are intact, before anything that is damaged, and
    believed. `following` is the base of the segment after it, LONG_MAX if there is none.
    """
    limit = segment.base_offset + RELATIVE_OFFSET_MAX
    if not segment.size_bytes or _last_offset(segment) <= limit:
        return False
    batches = believed(_intact_batches(segment, following), segment.base_offset, following, recovery_point)
    return any(batch.last_offset > limit for batch in batches)


def _last_offset(segment: Segment) -> int:
    """Of the last batch, -1 if there is none. Only the positions in the index are taken for true."""
    for start in (max(segment.offset_index.floor_position(segment.size_bytes), 0), 0):
        for way in (_hop(segment, start), start):
            last = -1
            for _, header in segment.headers(way):
                last = header.last_offset
            if last >= 0:
                return last
    return -1


def _hop(segment: Segment, position: int) -> int:
    """Where the last whole batch begins if from `position` on every length is true. A start after a crash goes this way
    through all that was not flushed, so it looks at nothing else.
    """
    last, end = position, segment.size_bytes
    chunk, chunk_at = b"", position
    while position + HEADER_BYTES <= end:
        if position + LOG_OVERHEAD_BYTES > chunk_at + len(chunk):
            chunk, chunk_at = segment.batch_at(position, HOP_BYTES), position
            if len(chunk) < LOG_OVERHEAD_BYTES:
                break
        following = position + LOG_OVERHEAD_BYTES + OFFSET_AND_LENGTH.unpack_from(chunk, position - chunk_at)[1]
        if not position + HEADER_BYTES <= following <= end:
            break
        last, position = position, following
    return last


def believed(batches: Iterable[Span], base: int, following: int, recovery_point: int) -> Iterator[Span]:
    """The batches that go into parts, of the intact ones of a segment with that `base`. A base offset is under no
    checksum: the only batch of a part at the end of the log may be one with a flipped bit. Something else must speak
    for it: a batch behind it, a segment, or the recovery point.
    """
    alone: Span | None = None
    for batch in batches:
        if alone is not None:
            yield alone
            base, alone = alone.base_offset, None
        if batch.last_offset - base > RELATIVE_OFFSET_MAX:
            if following == LONG_MAX and batch.last_offset >= recovery_point:
                alone = batch
                continue
            base = batch.base_offset
        yield batch


def _intact_batches(segment: Segment, following: int) -> Iterator[Batch]:
    """Those before the first that is damaged or out of order."""
    next_offset = segment.base_offset
    for position, header in segment.headers(0):
        data = segment.batch_at(position, header.size_bytes)
        if out_of_range(header, next_offset, following) or not intact(data, header):
            return
        yield Batch(position, header, data)
        next_offset = header.next_offset


def _split(
    segment: Segment, directory: str, root: Path, following: int, interval_bytes: int, recovery_point: int
) -> None:
    parts = PartsWriter(directory, root, segment.base_offset, interval_bytes)
    try:
        end = 0
        batches = _intact_batches(segment, following)
        for position, header, data in believed(batches, segment.base_offset, following, recovery_point):
            parts.add(data, header.base_offset, header.last_offset, header.max_timestamp)
            end = position + header.size_bytes
        while rest := segment.batch_at(end, min(WRITE_BYTES, segment.size_bytes - end)):
            parts.add_rest(rest)
            end += len(rest)
        parts.finish()
    finally:
        parts.close()
