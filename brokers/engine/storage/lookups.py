"""Finding records by time (LOG-25, LOG-26): indexes narrow it to a batch, the batch's records answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from brokers.engine.records import batch as layout
from brokers.engine.records.batch import BatchHeader
from brokers.engine.records.builder import NO_TIMESTAMP, records_block
from brokers.engine.records.compression import Oversized, Undecodable
from brokers.engine.records.walk import Malformed, stamps
from brokers.engine.storage.indexes import TimeEntry
from brokers.engine.storage.log import Log
from brokers.engine.storage.segment import DamagedSegment, Segment


class FoundRecord(NamedTuple):
    timestamp_ms: int
    offset: int
    leader_epoch: int


def first_at_or_after(log: Log, timestamp_ms: int, wait: bool = True) -> FoundRecord | None:
    """The first record with a timestamp >= `timestamp_ms` and an offset >= the log start, None if there is none.

    Unless they may `wait` for the disk, the lookups raise NotCached rather than do so. Raises DamagedSegment where the
    search cannot go on.
    """
    for segment in log.segments:
        # Not `largest_timestamp`: a segment of records without times is as young as its file, and all in vain to read.
        if segment.size_bytes == 0 or segment.max_timestamp < timestamp_ms:
            continue
        end = start = _start(segment, timestamp_ms, log.log_start_offset, wait)
        for position, header in segment.headers(start, None, wait):
            end = position + header.size_bytes
            if header.max_timestamp < timestamp_ms or header.last_offset < log.log_start_offset:
                continue
            for record in _records(segment, position, header, wait):
                if record.timestamp_ms >= timestamp_ms and record.offset >= log.log_start_offset:
                    return record
            if header.record_count and header.base_offset >= log.log_start_offset:
                # Its producer made a greatest time up. Were it passed by, a log of such batches would be read whole.
                return _by_header(header)
        if end < segment.size_bytes:
            raise DamagedSegment(segment.file.path, end)
    return None


def _start(segment: Segment, timestamp_ms: int, log_start_offset: int, wait: bool) -> int:
    """The position to search from: of the batch that the time index names, if that batch has the time it says."""
    if not wait:
        segment.time_index.ready()
    entry = segment.time_index.lookup(timestamp_ms)
    position = 0
    if entry.timestamp_ms != NO_TIMESTAMP:
        named = segment.locate(entry.offset, wait)
        if named is None or named[1].max_timestamp != entry.timestamp_ms:
            return 0  # a damaged entry; without it the search is only longer
        position = named[0]
    if entry.timestamp_ms < timestamp_ms:
        position = max(position, _all_below(segment, timestamp_ms, wait))
    if log_start_offset > segment.base_offset:
        result = segment.locate(log_start_offset, wait)
        position = max(position, 0 if result is None else result[0])
    return position


def _all_below(segment: Segment, timestamp_ms: int, wait: bool) -> int:
    """A position before which no record is as late as `timestamp_ms`, which no entry of the time index has; 0 if none
    is known. The greatest entry below that time has been found to be right.

    Both indexes grow together: had something been as late when the offset entry before the first later batch was made,
    the time index would name it. So times that fall for long do not make a search long.
    """
    later = segment.time_index.above(timestamp_ms) or TimeEntry(segment.max_timestamp, segment.max_timestamp_offset)
    named = segment.locate(later.offset, wait)
    if named is None or named[1].max_timestamp != later.timestamp_ms:
        return 0
    before = segment.offset_index.floor(named[1].base_offset - 1)
    if before is None:
        return 0
    header = next((result for _, result in segment.headers(before.position, None, wait)), None)
    return before.position if header is not None and header.last_offset == before.offset else 0


def greatest_timestamp(log: Log, wait: bool = True) -> FoundRecord | None:
    """The first record that carries the greatest timestamp of the log (-3, KIP-734), None for an empty log.

    Where no record has a time, all have the same one, and the first record of the log is the answer.
    """
    holders = [segment for segment in log.segments if segment.size_bytes]
    if not holders:
        return None
    segment = max(holders, key=lambda holder: holder.max_timestamp)
    timed = segment.max_timestamp >= 0
    result = segment.locate(segment.max_timestamp_offset if timed else log.log_start_offset, wait)
    if result is None:
        return None
    return max(_records(segment, *result, wait), key=lambda record: (record.timestamp_ms, -record.offset), default=None)


def _records(segment: Segment, position: int, header: BatchHeader, wait: bool) -> Iterator[FoundRecord]:
    """The batch's records. Where a batch turns out to be rotten it answers by its header."""
    data = segment.batch_at(position, header.size_bytes, wait)
    stamped = bool(header.attributes & layout.LOG_APPEND_TIME)
    try:
        if layout.checksum(data) != header.crc:
            raise Malformed("the checksum does not hold")
        for offset_delta, timestamp_delta in stamps(records_block(data), header.record_count):
            created_ms = layout.wrapped(header.base_timestamp + timestamp_delta)
            timestamp_ms = header.max_timestamp if stamped else created_ms
            yield FoundRecord(timestamp_ms, header.base_offset + offset_delta, header.leader_epoch)
    except (Malformed, Undecodable, Oversized):
        yield _by_header(header)


def _by_header(header: BatchHeader) -> FoundRecord:
    return FoundRecord(header.max_timestamp, header.base_offset, header.leader_epoch)
