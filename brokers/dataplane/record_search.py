"""Search of record batches for bytes that a wanted record must contain, before any record is parsed. Pure."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from brokers.dataplane.inflating import DamagedBatch
from brokers.dataplane.record_batches import Batch, offset_at, record_at, record_starts, records, timestamp_at
from instances.messages.interfaces import Record


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
    literals: Sequence[bytes],
    offsets: range,
    *,
    newest_first: bool,
) -> Iterator[Record | PassedOver]:
    """Yields the records of a batch within a range of offsets; those that lack one of `literals` are passed over.

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
    partition: int, batch: Batch, body: bytes, literals: Sequence[bytes], offsets: range, newest_first: bool
) -> Iterator[Record | PassedOver]:
    is_candidate = all(literal in body for literal in literals)
    if not is_candidate and offsets.start <= batch.base_offset and batch.last_offset < offsets.stop:
        if batch.count > 0:
            yield _whole(batch, newest_first)
        return
    try:
        starts = record_starts(body, batch.count)
        yield from _Parsed(partition, batch, body, starts, newest_first).between(
            _candidates(body, starts, literals) if is_candidate else [], offsets
        )
    except (struct.error, IndexError) as error:
        raise DamagedBatch(f"{type(error).__name__}: {error}") from None


def _whole(batch: Batch, newest_first: bool) -> PassedOver:
    is_last_time = newest_first or batch.is_append_time
    return PassedOver(
        timestamp_ms=batch.max_timestamp_ms if is_last_time else batch.first_timestamp_ms,
        offset=batch.base_offset if newest_first else batch.last_offset,
        count=batch.count,
    )


def _candidates(body: bytes, starts: Sequence[int], literals: Sequence[bytes]) -> list[int]:
    """Returns the numbers of the records that contain all literals, and perhaps of a few others; it searches for the
    longest literal.
    """
    sought, *others = sorted(literals, key=len, reverse=True)
    candidates, last = [], len(starts) - 1
    at = body.find(sought)
    while at >= 0:
        number = bisect_right(starts, at) - 1
        if number >= last:
            break
        end = starts[number + 1]
        if all(body.find(other, starts[number], end) >= 0 for other in others):
            candidates.append(number)
        at = body.find(sought, end)
    return candidates


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
