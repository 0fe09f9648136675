"""Builds and reads v2 batches record by record: the broker's own (usage, markers), and clients' batches that are
recompressed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from brokers.engine.records import batch as layout
from brokers.engine.records.compression import NONE, compress, compress_within, decompress
from brokers.engine.records.walk import read_headers, walk
from brokers.engine.wire.varints import encode_signed

NO_TIMESTAMP = -1


class Record(NamedTuple):
    """A record as an application sees it; a `timestamp_ms` of -1 means none."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    """Returns the encoded record with its length prefix (REC-22)."""
    body = bytearray(b"\x00")
    body += encode_signed(timestamp_delta)
    body += encode_signed(offset_delta)
    body += _encode_field(record.key)
    body += _encode_field(record.value)
    body += encode_signed(len(record.headers))
    for name, value in record.headers:
        body += _encode_field(name.encode())
        body += _encode_field(value)
    return encode_signed(len(body)) + bytes(body)


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: int = NONE,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """Returns a batch, with its checksum, of at least one record with consecutive offsets, of leader epoch 0.

    `attributes` adds flags to the codec bits.
    """
    assert records, "a batch holds at least one record"
    base_ms = records[0].timestamp_ms
    block = b"".join(
        encode_record(record, number, record.timestamp_ms - base_ms) for number, record in enumerate(records)
    )
    payload = compress(codec, block)
    out = bytearray(layout.HEADER_BYTES)
    layout.HEADER.pack_into(
        out,
        0,
        base_offset,
        layout.HEADER_BYTES - layout.LOG_OVERHEAD_BYTES + len(payload),
        0,
        layout.MAGIC,
        0,
        attributes | codec,
        len(records) - 1,
        base_ms,
        max(record.timestamp_ms for record in records),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    out += payload
    layout.write_crc(out)
    return out


def records_block(data: bytes | memoryview) -> bytes:
    """Returns the decompressed records of the batch that fills `data`. Raises compression.Undecodable or Oversized."""
    header = layout.read_header(data)
    payload = data[layout.HEADER_BYTES : header.size_bytes]
    return bytes(payload) if header.codec == NONE else decompress(header.codec, payload)


def read_records(data: bytes | memoryview) -> list[tuple[int, Record]]:
    """Returns (offset, record) of every record of the batch that fills `data` (REC-23).

    Raises walk.Malformed, compression.Undecodable or compression.Oversized.
    """
    header = layout.read_header(data)
    block = records_block(data)
    is_append_time = bool(header.attributes & layout.LOG_APPEND_TIME)
    result = []
    for walked in walk(block, header.record_count):
        created_ms = layout.wrap_to_int64(header.base_timestamp + walked.timestamp_delta)
        timestamp_ms = header.max_timestamp if is_append_time else created_ms
        key = None if walked.key is None else block[slice(*walked.key)]
        value = None if walked.value is None else block[slice(*walked.value)]
        record = Record(timestamp_ms, key, value, tuple(read_headers(block, walked)))
        result.append((header.base_offset + walked.offset_delta, record))
    return result


def recompress(data: memoryview | bytes, codec: int, bytes_max: int, block: bytes | None = None) -> bytearray:
    """Returns the batch with another codec (REC-32), at most `bytes_max` long, and with the records of `block` if it is
    given.

    Raises compression.Undecodable or Oversized.
    """
    header = layout.read_header(data)
    payload = compress_within(codec, records_block(data) if block is None else block, bytes_max - layout.HEADER_BYTES)
    out = bytearray(data[: layout.HEADER_BYTES])
    attributes = header.attributes & ~layout.CODEC_MASK | codec
    layout.OFFSET_AND_LENGTH.pack_into(
        out, 0, header.base_offset, layout.HEADER_BYTES - layout.LOG_OVERHEAD_BYTES + len(payload)
    )
    out += payload
    layout.set_attributes_and_timestamp(out, attributes, header.max_timestamp)
    return out


def _encode_field(value: bytes | None) -> bytes:
    return encode_signed(-1) if value is None else encode_signed(len(value)) + value
