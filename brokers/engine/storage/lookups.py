"""Record lookups by timestamp (LOG-25, LOG-26): the indexes select a batch, whose records are then searched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from brokers.engine.records import batch as layout
from brokers.engine.records.batch import BatchHeader
from brokers.engine.records.builder import NO_TIMESTAMP, records_block
from brokers.engine.records.compression import Oversized, Undecodable
from brokers.engine.records.walk import Malformed, record_deltas
from brokers.engine.storage.indexes import TimeEntry
from brokers.engine.storage.log import Log
from brokers.engine.storage.segment import DamagedSegment, Segment


class FoundRecord(NamedTuple):
    """Timestamp, offset and leader epoch of a record, as ListOffsets returns them."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def find_first_at_or_after(log: Log, timestamp_ms: int, may_wait: bool = True) -> FoundRecord | None:
    """Returns the first record with a timestamp >= `timestamp_ms` and an offset >= the log start, or None.

    Without `may_wait`, the lookups raise NotCached instead of waiting for the disk. Raises DamagedSegment where the
    search cannot continue.
    """
    for segment in log.segments:
        # `largest_timestamp` is not used, because it is the file time for records without timestamps: the segment would
        # be read without result.
        if segment.size_bytes == 0 or segment.max_timestamp < timestamp_ms:
            continue
        end = start = _search_position(segment, timestamp_ms, log.log_start_offset, may_wait)
        for position, header in segment.headers(start, None, may_wait):
            end = position + header.size_bytes
            if header.max_timestamp < timestamp_ms or header.last_offset < log.log_start_offset:
                continue
            for record in _read_records(segment, position, header, may_wait):
                if record.timestamp_ms >= timestamp_ms and record.offset >= log.log_start_offset:
                    return record
            if header.record_count and header.base_offset >= log.log_start_offset:
                # The producer set a maximum timestamp that no record has. If such batches were skipped, a log full of
                # them would be read to its end.
                return _record_from_header(header)
        if end < segment.size_bytes:
            raise DamagedSegment(segment.file.path, end)
    return None


def _search_position(segment: Segment, timestamp_ms: int, log_start_offset: int, may_wait: bool) -> int:
    """Returns the position to search from: the batch of the time index entry, if that batch has the entry's
    timestamp.
    """
    if not may_wait:
        segment.time_index.require_cached()
    entry = segment.time_index.lookup(timestamp_ms)
    position = 0
    if entry.timestamp_ms != NO_TIMESTAMP:
        entry_batch = segment.locate(entry.offset, may_wait)
        if entry_batch is None or entry_batch[1].max_timestamp != entry.timestamp_ms:
            return 0  # a damaged entry; without it the search only takes longer
        position = entry_batch[0]
    if entry.timestamp_ms < timestamp_ms:
        position = max(position, _position_after_older(segment, timestamp_ms, may_wait))
    if log_start_offset > segment.base_offset:
        located = segment.locate(log_start_offset, may_wait)
        position = max(position, 0 if located is None else located[0])
    return position


def _position_after_older(segment: Segment, timestamp_ms: int, may_wait: bool) -> int:
    """Returns a position before which every record is older than `timestamp_ms`, 0 if none is known.

    Both indexes get their entries at the same appends: if a record up to the returned offset index entry were as late,
    the time index would have an entry for it. So decreasing timestamps do not make a search long. The caller verified
    the time index entry below `timestamp_ms`.
    """
    later_entry = segment.time_index.find_first_above(timestamp_ms) or TimeEntry(
        segment.max_timestamp, segment.max_timestamp_offset
    )
    entry_batch = segment.locate(later_entry.offset, may_wait)
    if entry_batch is None or entry_batch[1].max_timestamp != later_entry.timestamp_ms:
        return 0
    entry_before = segment.offset_index.find_floor(entry_batch[1].base_offset - 1)
    if entry_before is None:
        return 0
    header = next((candidate for _, candidate in segment.headers(entry_before.position, None, may_wait)), None)
    return entry_before.position if header is not None and header.last_offset == entry_before.offset else 0


def find_greatest_timestamp(log: Log, may_wait: bool = True) -> FoundRecord | None:
    """Returns the first record with the greatest timestamp of the log (-3, KIP-734), None for an empty log.

    If no record has a timestamp, that is the first record of the log.
    """
    segments = [segment for segment in log.segments if segment.size_bytes]
    if not segments:
        return None
    segment = max(segments, key=lambda segment: segment.max_timestamp)
    has_timestamps = segment.max_timestamp >= 0
    located = segment.locate(segment.max_timestamp_offset if has_timestamps else log.log_start_offset, may_wait)
    if located is None:
        return None
    return max(
        _read_records(segment, *located, may_wait),
        key=lambda record: (record.timestamp_ms, -record.offset),
        default=None,
    )


def _read_records(segment: Segment, position: int, header: BatchHeader, may_wait: bool) -> Iterator[FoundRecord]:
    """Yields the records of a batch, or a record built from its header if the batch is corrupt."""
    data = segment.batch_at(position, header.size_bytes, may_wait)
    is_append_time = bool(header.attributes & layout.LOG_APPEND_TIME)
    try:
        if layout.checksum(data) != header.crc:
            raise Malformed("the checksum is wrong")
        for offset_delta, timestamp_delta in record_deltas(records_block(data), header.record_count):
            created_ms = layout.wrap_to_int64(header.base_timestamp + timestamp_delta)
            timestamp_ms = header.max_timestamp if is_append_time else created_ms
            yield FoundRecord(timestamp_ms, header.base_offset + offset_delta, header.leader_epoch)
    except (Malformed, Undecodable, Oversized):
        yield _record_from_header(header)


def _record_from_header(header: BatchHeader) -> FoundRecord:
    return FoundRecord(header.max_timestamp, header.base_offset, header.leader_epoch)
