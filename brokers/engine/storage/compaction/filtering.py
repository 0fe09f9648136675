"""Rewriting of a batch with only the records that the offset map retains (CMP-19, CMP-20, CMP-23, CMP-24). Pure.

Offsets, sequences, producer, epoch and codec are preserved (REC-26). Kept records are copied byte for byte, except
where a delete horizon replaces the base timestamp (REC-25): then they are encoded again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from brokers.engine.records import batch as layout
from brokers.engine.records.batch import BatchHeader
from brokers.engine.records.builder import records_block
from brokers.engine.records.compression import NONE, compress
from brokers.engine.storage.compaction.fields import Fields, read_fields
from brokers.engine.storage.compaction.offset_map import OffsetMap
from brokers.engine.wire.varints import encode_signed

NO_TIMESTAMP: Final = -1


class BatchRetention(NamedTuple):
    """Retention of a batch as far as it is known without its records.

    `drop_records`: the transaction was aborted, or all records are superseded, or the marker is no longer needed.
    `keep_empty`: the batch carries the last sequence of a producer. `is_marker_obsolete`: a control batch whose
    transaction has no data left; it gets a delete horizon.
    """

    drop_records: bool = False
    keep_empty: bool = False
    is_marker_obsolete: bool = False


class Rewritten(NamedTuple):
    """Result of rewriting a batch: `data`, None if the batch is removed, and the numbers of kept and dropped records.

    `keyless` counts the dropped records without a key. `largest_timestamp` is the maximum timestamp in the header,
    which followers, recovery and Kafka index even if no record is left.
    """

    data: bytes | bytearray | memoryview | None
    kept: int
    dropped: int
    keyless: int
    largest_timestamp: int


def delete_horizon_of(header: BatchHeader) -> int | None:
    """Returns the time after which the tombstones of the batch may be removed, None if it is not set yet."""
    return header.base_timestamp if header.attributes & layout.DELETE_HORIZON else None


def rewrite(
    data: memoryview,
    header: BatchHeader,
    offsets: OffsetMap,
    retention: BatchRetention,
    *,
    now_ms: int,
    delete_retention_ms: int,
) -> Rewritten:
    """Returns the batch in `data` with the retained records.

    Raises `walk.Malformed`, `compression.Undecodable` or `compression.Oversized` for a batch that cannot be read.
    """
    if retention.drop_records:
        return _drop_records(header, retention.keep_empty, header.record_count, 0)
    if header.base_offset > offsets.latest_offset:
        return Rewritten(data, header.record_count, 0, 0, header.max_timestamp)
    if header.record_count == 0:
        return _keep_unchanged(data, header) if retention.keep_empty else _drop_records(header, False, 0, 0)
    block = records_block(data)
    records = read_fields(block, header.record_count)
    if header.is_control:
        if not retention.is_marker_obsolete or delete_horizon_of(header) is not None:
            return Rewritten(data, len(records), 0, 0, header.max_timestamp)
        return _rebuild(header, block, records, 0, _delete_horizon_ms(now_ms, delete_retention_ms))
    kept, keyless, has_tombstones = _select_records(records, header, offsets, now_ms)
    dropped = len(records) - len(kept)
    if not kept:
        return _drop_records(header, retention.keep_empty, dropped, keyless)
    needs_horizon = has_tombstones and delete_horizon_of(header) is None and header.last_offset <= offsets.latest_offset
    if not dropped and not needs_horizon:
        return Rewritten(data, len(kept), 0, 0, header.max_timestamp)
    horizon = _delete_horizon_ms(now_ms, delete_retention_ms) if needs_horizon else None
    return _rebuild(header, block, kept, dropped, horizon)._replace(keyless=keyless)


def _select_records(
    records: list[Fields], header: BatchHeader, offsets: OffsetMap, now_ms: int
) -> tuple[list[Fields], int, bool]:
    """Returns (retained records, number of records without a key, whether tombstones are retained)."""
    latest_offset, last_offset_of, base = offsets.latest_offset, offsets.get, header.base_offset
    horizon = delete_horizon_of(header)
    keeps_tombstones = horizon is None or now_ms < horizon
    kept_records = []
    keyless = 0
    has_tombstones = False
    for record in records:
        offset = base + record[0]
        key = record[5]
        if offset <= latest_offset:
            if key is None:
                keyless += 1
                continue
            if offset < last_offset_of(key) or not (record[6] or keeps_tombstones):
                continue
        if not record[6]:
            has_tombstones = True
        kept_records.append(record)
    return kept_records, keyless, has_tombstones


def _keep_unchanged(data: memoryview, header: BatchHeader) -> Rewritten:
    return Rewritten(data, 0, 0, 0, header.max_timestamp)


def _drop_records(header: BatchHeader, keep_header: bool, dropped: int, keyless: int) -> Rewritten:
    """Returns the batch as removed or, with `keep_header`, reduced to its header (REC-26)."""
    if not keep_header:
        return Rewritten(None, 0, dropped, keyless, NO_TIMESTAMP)
    attributes = header.attributes & (layout.LOG_APPEND_TIME | layout.TRANSACTIONAL | layout.CONTROL)
    empty = _encode(header, b"", attributes, NO_TIMESTAMP, header.max_timestamp, 0)
    return Rewritten(empty, 0, dropped, keyless, header.max_timestamp)


def _rebuild(header: BatchHeader, block: bytes, kept: list[Fields], dropped: int, horizon: int | None) -> Rewritten:
    """Returns the batch with the `kept` records of `block` and the same codec, and with the delete `horizon` if it is
    given.
    """
    is_append_time = bool(header.attributes & layout.LOG_APPEND_TIME)
    base = header.base_timestamp
    largest = header.max_timestamp if is_append_time else _largest_timestamp(base, kept)
    attributes = header.attributes
    if horizon is None:
        content = b"".join([block[record[2] : record[4]] for record in kept])
    else:
        attributes |= layout.DELETE_HORIZON
        parts = []
        for record in kept:
            delta = layout.wrap_to_int64((header.max_timestamp if is_append_time else base + record[1]) - horizon)
            body = b"\x00" + encode_signed(delta) + block[record[3] : record[4]]
            parts += [encode_signed(len(body)), body]
        content = b"".join(parts)
        base = horizon
    batch = _encode(header, compress(header.codec, content), attributes, base, largest, len(kept))
    return Rewritten(batch, len(kept), dropped, 0, largest)


def _largest_timestamp(base: int, kept: list[Fields]) -> int:
    earliest, latest = base + min(record[1] for record in kept), base + max(record[1] for record in kept)
    if earliest >= layout.LONG_MIN and latest <= layout.LONG_MAX:
        return latest
    return max(layout.wrap_to_int64(base + record[1]) for record in kept)


def _delete_horizon_ms(now_ms: int, delete_retention_ms: int) -> int:
    """Returns the delete horizon in milliseconds, limited to the greatest timestamp for an unlimited retention."""
    return min(now_ms + delete_retention_ms, layout.LONG_MAX)


def _encode(
    header: BatchHeader, payload: bytes, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytearray:
    out = bytearray(layout.HEADER_BYTES)
    changed = header._replace(
        length=layout.HEADER_BYTES - layout.LOG_OVERHEAD_BYTES + len(payload),
        attributes=attributes if payload else attributes & ~layout.CODEC_MASK | NONE,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=count,
    )
    layout.HEADER.pack_into(out, 0, *changed)
    out += payload
    layout.write_crc(out)
    return out
