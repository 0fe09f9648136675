"""Record sets for produce requests: right ones, and ones that are wrong in exactly one place."""

from __future__ import annotations

import gzip
import zlib
from struct import pack

import cramjam
import lz4.frame

from brokers.engine.wire.checksum import crc32c
from brokers.engine.wire.varints import encode_signed

# Every record carries a time in 2020 unless a script says otherwise.
TIME_MS = 1_600_000_000_000
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20


def record(
    index: int, key: bytes | None, value: bytes | None, *, time_delta_ms: int = 0, offset_delta: int | None = None
) -> bytes:
    """One record of format 2."""
    body = b"\x00" + encode_signed(time_delta_ms) + encode_signed(index if offset_delta is None else offset_delta)
    for part in (key, value):
        body += encode_signed(-1) if part is None else encode_signed(len(part)) + part
    body += encode_signed(0)
    return encode_signed(len(body)) + body


def compressed(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec == SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(data))
        return b"\x82SNAPPY\x00" + pack(">iii", 1, 1, len(block)) + block
    if codec == LZ4:
        return bytes(lz4.frame.compress(data, block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX64KB))
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    return data


def batch(
    *values: bytes | None,
    key: bytes | None = b"k",
    codec: int = 0,
    attributes: int = 0,
    base_offset: int = 0,
    base_time_ms: int = TIME_MS,
    max_time_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    last_offset_delta: int | None = None,
    count: int | None = None,
    crc: int | None = None,
    magic: int = 2,
    length: int | None = None,
    payload: bytes | None = None,
) -> bytes:
    """A batch of format 2 with a record a value; every header field can be forged."""
    records = b"".join(record(index, key, value, time_delta_ms=index) for index, value in enumerate(values))
    payload = compressed(codec, records) if payload is None else payload
    last = len(values) - 1
    tail = pack(
        ">hiqqqhii",
        attributes | codec,
        last if last_offset_delta is None else last_offset_delta,
        base_time_ms,
        base_time_ms + max(last, 0) if max_time_ms is None else max_time_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        len(values) if count is None else count,
    )
    checked = tail + payload
    size = 9 + len(checked)
    head = pack(
        ">qiibI", base_offset, size if length is None else length, -1, magic, crc32c(checked) if crc is None else crc
    )
    return head + checked


def message(
    value: bytes | None, *, magic: int = 1, key: bytes | None = b"k", offset: int = 0, crc: int | None = None
) -> bytes:
    """A message of format 0 or 1."""
    body = pack(">bb", magic, 0) + (pack(">q", TIME_MS) if magic else b"")
    for part in (key, value):
        body += pack(">i", -1) if part is None else pack(">i", len(part)) + part
    checksum = zlib.crc32(body) if crc is None else crc
    return pack(">qiI", offset, 4 + len(body), checksum) + body
