"""Search of record batches for bytes that a wanted record must contain, before any record is parsed. Pure."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from brokers.dataplane.inflating import DamagedBatch
from brokers.dataplane.record_batches import Batch, offset_at, record_at, record_starts, records, timestamp_at
from instances.messages.interfaces import Record

# Bytes of a batch whose literals are counted to find the rarest ones.
SAMPLE_BYTES: Final = 16_384


@dataclass(slots=True, kw_only=True)
class PassedOver:
    """Successive records of a batch that lack the wanted bytes, in the order of reading: the time of the first one, and
    the offset of the last one.
    """

    timestamp_ms: int
    offset: int
    count: int


def search(
    partition: int,
    batch: Batch,
    body: bytes | memoryview,
    literals: Sequence[Sequence[bytes]],
    offsets: range,
    *,
    newest_first: bool,
) -> Iterator[Record | PassedOver]:
    """Yields the records of a batch within a range of offsets; those that lack all alternatives of one of
    `literals` are passed over.

    Bytes are searched for in the whole body, so that a batch without them costs no more than reading it, and only
    records in which they begin are parsed. Markers and old formats are always parsed. Raises `DamagedBatch`: what is
    passed over is not checked beyond the batch's checksum.
    """
    if literals and batch.magic == 2 and not batch.is_control:
        yield from _searched(partition, batch, bytes(body), literals, offsets, newest_first)
    else:
        for record in records(partition, batch, body, newest_first=newest_first):
            if record.offset in offsets:
                yield record


def _searched(
    partition: int, batch: Batch, body: bytes, literals: Sequence[Sequence[bytes]], offsets: range, newest_first: bool
) -> Iterator[Record | PassedOver]:
    is_candidate = all(any(text in body for text in alternatives) for alternatives in literals)
    if not is_candidate and offsets.start <= batch.base_offset and batch.last_offset < offsets.stop:
        if batch.count > 0:
            yield _whole(batch, newest_first)
        return
    try:
        starts = record_starts(body, batch.count)
        numbers = _candidates(body, starts, literals) if is_candidate else ()
        yield from _Parsed(partition, batch, body, starts, newest_first).between(numbers, offsets)
    except (struct.error, IndexError) as error:
        raise DamagedBatch(f"{type(error).__name__}: {error}") from None


def _whole(batch: Batch, newest_first: bool) -> PassedOver:
    is_last_time = newest_first or batch.is_append_time
    return PassedOver(
        timestamp_ms=batch.max_timestamp_ms if is_last_time else batch.first_timestamp_ms,
        offset=batch.base_offset if newest_first else batch.last_offset,
        count=batch.count,
    )


def _candidates(body: bytes, starts: Sequence[int], literals: Sequence[Sequence[bytes]]) -> Sequence[int]:
    """Returns the numbers of the records that have an alternative of each of `literals`, and of some that have not.

    The rarest alternatives are sought in the whole body, the others in what has these. All records are returned where
    even these are frequent, since parsing a record costs little more than finding it.
    """
    sample = min(len(body), SAMPLE_BYTES)
    occurrences = [sum(body.count(text, 0, sample) for text in alternatives) for alternatives in literals]
    rarest = min(range(len(literals)), key=lambda at: (occurrences[at], -max(map(len, literals[at]))))
    if 2 * occurrences[rarest] * len(body) > sample * (len(starts) - 1):
        return range(len(starts) - 1)
    sought, others = literals[rarest], [literals[at] for at in range(len(literals)) if at != rarest]
    numbers = {number for text in sought for number in _numbers_with(body, starts, text)}
    return [
        number
        for number in sorted(numbers)
        if all(
            any(body.find(text, starts[number], starts[number + 1]) >= 0 for text in alternatives)
            for alternatives in others
        )
    ]


def _numbers_with(body: bytes, starts: Sequence[int], text: bytes) -> Iterator[int]:
    """Yields the numbers of the records in which a text begins."""
    last = len(starts) - 1
    at = body.find(text)
    while at >= 0:
        number = bisect_right(starts, at) - 1
        if number >= last:
            return
        yield number
        at = body.find(text, starts[number + 1])


@dataclass(slots=True)
class _Parsed:
    """Records of a batch by their numbers. `starts` also has the end of the last one."""

    partition: int
    batch: Batch
    body: bytes
    starts: Sequence[int]
    newest_first: bool

    def between(self, numbers: Sequence[int], offsets: range) -> Iterator[Record | PassedOver]:
        """Yields the records with these ascending numbers, and what is passed over before, between and after them."""
        low, high = self._first_from(offsets.start), self._first_from(offsets.stop)
        chosen = numbers[bisect_left(numbers, low) : bisect_left(numbers, high)]
        if self.newest_first:
            for number in reversed(chosen):
                if number + 1 < high:
                    yield self._passed(number + 1, high)
                yield self._record(number)
                high = number
        else:
            for number in chosen:
                if low < number:
                    yield self._passed(low, number)
                yield self._record(number)
                low = number + 1
        if low < high:
            yield self._passed(low, high)

    def _first_from(self, offset: int) -> int:
        """Returns the number of the first record at an offset or after it."""
        count = len(self.starts) - 1
        if offset <= self.batch.base_offset:
            return 0
        if offset > self.batch.last_offset:
            return count
        return bisect_left(range(count), offset, key=self._offset)

    def _offset(self, number: int) -> int:
        return offset_at(self.batch, self.body, self.starts[number])

    def _record(self, number: int) -> Record:
        return record_at(self.partition, self.batch, self.body, self.starts[number])

    def _passed(self, low: int, high: int) -> PassedOver:
        first, last = (high - 1, low) if self.newest_first else (low, high - 1)
        return PassedOver(
            timestamp_ms=timestamp_at(self.batch, self.body, self.starts[first]),
            offset=self._offset(last),
            count=high - low,
        )
