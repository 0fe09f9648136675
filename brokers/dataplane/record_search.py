"""Search of record batches for the byte strings that matching records contain, before records are parsed. Pure."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from brokers.dataplane.inflating import DamagedBatch
from brokers.dataplane.record_batches import Batch, offset_at, record_at, record_starts, records, timestamp_at
from instances.messages.interfaces import Record

# Bytes at the start of a batch in which the literals are counted, to find the rarest ones.
SAMPLE_BYTES: Final = 16_384


@dataclass(slots=True, kw_only=True)
class SkippedRecords:
    """Successive records of a batch that do not match: timestamp of the first and offset of the last, in the order of
    reading.
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
) -> Iterator[Record | SkippedRecords]:
    """Yields the records of a batch within a range of offsets.

    A record matches if it contains, for each element of `literals`, at least one of its alternatives. Others may be
    yielded together as `SkippedRecords`. The whole body is searched at once, and only records in which a literal begins
    are parsed. Markers and old formats are always parsed. Raises `DamagedBatch`; skipped records are checked by the
    batch's checksum only.
    """
    if literals and batch.magic == 2 and not batch.is_control:
        yield from _search_literals(partition, batch, bytes(body), literals, offsets, newest_first)
    else:
        for record in records(partition, batch, body, newest_first=newest_first):
            if record.offset in offsets:
                yield record


def _search_literals(
    partition: int, batch: Batch, body: bytes, literals: Sequence[Sequence[bytes]], offsets: range, newest_first: bool
) -> Iterator[Record | SkippedRecords]:
    is_candidate = all(any(text in body for text in alternatives) for alternatives in literals)
    if not is_candidate and offsets.start <= batch.base_offset and batch.last_offset < offsets.stop:
        if batch.count > 0:
            yield _skip_whole_batch(batch, newest_first)
        return
    try:
        positions = record_starts(body, batch.count)
        numbers = _candidate_numbers(body, positions, literals) if is_candidate else ()
        yield from _RecordReader(partition, batch, body, positions, newest_first).read_range(numbers, offsets)
    except (struct.error, IndexError) as error:
        raise DamagedBatch(f"{type(error).__name__}: {error}") from None


def _skip_whole_batch(batch: Batch, newest_first: bool) -> SkippedRecords:
    is_last_time = newest_first or batch.is_append_time
    return SkippedRecords(
        timestamp_ms=batch.max_timestamp_ms if is_last_time else batch.first_timestamp_ms,
        offset=batch.base_offset if newest_first else batch.last_offset,
        count=batch.count,
    )


def _candidate_numbers(body: bytes, positions: Sequence[int], literals: Sequence[Sequence[bytes]]) -> Sequence[int]:
    """Returns the numbers of the records that may match `literals`; a number is a record's index in its batch.

    The whole body is searched for the rarest alternatives only, and the records found for the other ones. If even the
    rarest are frequent, all records are returned, because parsing a record costs little more than finding it.
    """
    sample_bytes = min(len(body), SAMPLE_BYTES)
    occurrences = [sum(body.count(text, 0, sample_bytes) for text in alternatives) for alternatives in literals]
    rarest_index = min(range(len(literals)), key=lambda index: (occurrences[index], -max(map(len, literals[index]))))
    if 2 * occurrences[rarest_index] * len(body) > sample_bytes * (len(positions) - 1):
        return range(len(positions) - 1)
    rarest_alternatives, other_literals = (
        literals[rarest_index],
        [literals[index] for index in range(len(literals)) if index != rarest_index],
    )
    numbers = {number for text in rarest_alternatives for number in _record_numbers_with(body, positions, text)}
    return [
        number
        for number in sorted(numbers)
        if all(
            any(body.find(text, positions[number], positions[number + 1]) >= 0 for text in alternatives)
            for alternatives in other_literals
        )
    ]


def _record_numbers_with(body: bytes, positions: Sequence[int], text: bytes) -> Iterator[int]:
    """Yields the numbers of the records in which a text begins."""
    record_count = len(positions) - 1
    position = body.find(text)
    while position >= 0:
        number = bisect_right(positions, position) - 1
        if number >= record_count:
            return
        yield number
        position = body.find(text, positions[number + 1])


@dataclass(slots=True)
class _RecordReader:
    """Parser of single records of a batch by their numbers. `positions` are their starts and the end of the last."""

    partition: int
    batch: Batch
    body: bytes
    positions: Sequence[int]
    newest_first: bool

    def read_range(self, numbers: Sequence[int], offsets: range) -> Iterator[Record | SkippedRecords]:
        """Yields the records with these ascending numbers, and the skipped ones before, between and after them."""
        low, high = self._first_number_from(offsets.start), self._first_number_from(offsets.stop)
        numbers_in_range = numbers[bisect_left(numbers, low) : bisect_left(numbers, high)]
        if self.newest_first:
            for number in reversed(numbers_in_range):
                if number + 1 < high:
                    yield self._skip(number + 1, high)
                yield self._parse_record(number)
                high = number
        else:
            for number in numbers_in_range:
                if low < number:
                    yield self._skip(low, number)
                yield self._parse_record(number)
                low = number + 1
        if low < high:
            yield self._skip(low, high)

    def _first_number_from(self, offset: int) -> int:
        """Returns the number of the first record at an offset or after it."""
        count = len(self.positions) - 1
        if offset <= self.batch.base_offset:
            return 0
        if offset > self.batch.last_offset:
            return count
        return bisect_left(range(count), offset, key=self._offset_of)

    def _offset_of(self, number: int) -> int:
        return offset_at(self.batch, self.body, self.positions[number])

    def _parse_record(self, number: int) -> Record:
        return record_at(self.partition, self.batch, self.body, self.positions[number])

    def _skip(self, low: int, high: int) -> SkippedRecords:
        first, last = (high - 1, low) if self.newest_first else (low, high - 1)
        return SkippedRecords(
            timestamp_ms=timestamp_at(self.batch, self.body, self.positions[first]),
            offset=self._offset_of(last),
            count=high - low,
        )
