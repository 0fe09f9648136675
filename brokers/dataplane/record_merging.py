"""Conversion of stored batches to records, and of records to batches that a client may produce. Pure.

Keys, values, headers and timestamps are preserved byte for byte. The new batches have no producer id, no transaction
and no gaps between their offsets, as brokers require of a client.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import crc32c
import zstandard

from brokers.dataplane.inflating import DamagedBatch, TooLarge
from brokers.dataplane.record_batches import CODEC_MASK, Batch, parse_varint, records
from instances.copying.interfaces import CopiedBatch
from instances.copying.limits import COPY_BATCH_BYTES_MAX, COPY_BATCH_RECORDS_MAX, COPY_INFLATED_BYTES_MAX

ZSTD: Final = 4
MAGIC: Final = 2
NO_PRODUCER: Final = -1
NO_EPOCH: Final = -1
_OFFSET_AND_LENGTH = struct.Struct(">qi")
_BEFORE_CRC = struct.Struct(">ib")
_CRC = struct.Struct(">I")
_AFTER_CRC = struct.Struct(">hiqqqhii")


class StoredRecord(NamedTuple):
    """One record. `fields` are key, value and headers as they are encoded in a batch."""

    offset: int
    timestamp_ms: int
    fields: bytes
    is_compressed: bool


class Unpacked(NamedTuple):
    """Records of a range of offsets, and the number of records in batches that cannot be read."""

    records: list[StoredRecord]
    skipped_records: int


def unpack(batches: Sequence[Batch], aborted: Iterable[tuple[int, int]], start: int, stop: int) -> Unpacked:
    """Returns the records of `[start, stop)` that a consumer with read_committed would get.

    `aborted` are (producer id, first offset) of aborted transactions.
    """
    result: list[StoredRecord] = []
    skipped = 0
    for batch in _committed_batches(batches, aborted):
        if batch.last_offset < start or batch.base_offset >= stop:
            continue
        try:
            batch_records = [record for record in _parse_records(batch) if start <= record.offset < stop]
        except (DamagedBatch, TooLarge, struct.error, IndexError):
            skipped += max(batch.count, 1)
        else:
            result += batch_records
    return Unpacked(result, skipped)


def pack(stored: Sequence[StoredRecord], batch_bytes_max: int) -> Iterator[CopiedBatch]:
    """Yields batches of up to `batch_bytes_max` bytes before compression; a larger record is a batch of its own.

    A batch is compressed if any of its records was.
    """
    limit_bytes = min(batch_bytes_max, COPY_BATCH_BYTES_MAX)
    group: list[StoredRecord] = []
    size = 0
    for record in stored:
        if group and (size + len(record.fields) > limit_bytes or len(group) >= COPY_BATCH_RECORDS_MAX):
            yield _build_batch(group)
            group, size = [], 0
        group.append(record)
        size += len(record.fields) + 2 * _VARINT_BYTES
    if group:
        yield _build_batch(group)


# Estimated maximum size of a length, timestamp or offset of a record.
_VARINT_BYTES: Final = 10


def _committed_batches(batches: Sequence[Batch], aborted: Iterable[tuple[int, int]]) -> Iterator[Batch]:
    pending = deque(sorted(aborted, key=lambda entry: entry[1]))
    open_aborted: set[int] = set()
    for batch in batches:
        while pending and pending[0][1] <= batch.last_offset:
            open_aborted.add(pending.popleft()[0])
        if batch.is_control:
            open_aborted.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in open_aborted):
            yield batch


def _parse_records(batch: Batch) -> Iterator[StoredRecord]:
    body = bytes(batch.body(COPY_INFLATED_BYTES_MAX))
    is_compressed = bool(batch.attributes & CODEC_MASK)
    if batch.magic != MAGIC:
        for old in records(0, batch, body):
            yield StoredRecord(old.offset, old.timestamp_ms, _encode_fields(old.key, old.value), is_compressed)
        return
    position = 0
    for _ in range(batch.count):
        length, position = parse_varint(body, position)
        end = position + length
        if length <= 0 or end > len(body):
            raise DamagedBatch("a record is cut off")
        timestamp_delta, fields_position = parse_varint(body, position + 1)
        offset_delta, fields_position = parse_varint(body, fields_position)
        if fields_position > end:
            raise DamagedBatch("a field is cut off")
        timestamp_ms = batch.max_timestamp_ms if batch.is_append_time else batch.first_timestamp_ms + timestamp_delta
        yield StoredRecord(batch.base_offset + offset_delta, timestamp_ms, body[fields_position:end], is_compressed)
        position = end


def _encode_fields(key: bytes | None, value: bytes | None) -> bytes:
    parts = [encode_varint(-1) if part is None else encode_varint(len(part)) + part for part in (key, value)]
    return b"".join((*parts, encode_varint(0)))


def _build_batch(group: Sequence[StoredRecord]) -> CopiedBatch:
    first_ms = group[0].timestamp_ms
    body = bytearray()
    for index, record in enumerate(group):
        deltas = encode_varint(record.timestamp_ms - first_ms) + encode_varint(index)
        body += encode_varint(1 + len(deltas) + len(record.fields)) + b"\0" + deltas + record.fields
    payload, attributes = bytes(body), 0
    if any(record.is_compressed for record in group):
        compressed = zstandard.compress(payload)
        if len(compressed) < len(payload):
            payload, attributes = compressed, ZSTD
    max_ms = max(record.timestamp_ms for record in group)
    count = len(group)
    crc_protected = _AFTER_CRC.pack(
        attributes, count - 1, first_ms, max_ms, NO_PRODUCER, NO_EPOCH, NO_PRODUCER, count
    )  # fmt: skip
    after_length = (
        _BEFORE_CRC.pack(NO_EPOCH, MAGIC) + _CRC.pack(crc32c.crc32c(crc_protected + payload)) + crc_protected + payload
    )
    data = _OFFSET_AND_LENGTH.pack(0, len(after_length)) + after_length
    return CopiedBatch(data=data, records=count, next_offset=group[-1].offset + 1)


def encode_varint(number: int) -> bytes:
    """Returns a zigzag varint."""
    value = number << 1 if number >= 0 else (-number << 1) - 1
    result = bytearray()
    while value > 0x7F:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    result.append(value)
    return bytes(result)
