"""Parser of the record batches in a Fetch response, for all log formats and untrusted content. Pure.

kafka-python's reader decompresses without a limit and refuses header keys that are not UTF-8.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import crc32c

from brokers.dataplane.inflating import LZ4, DamagedBatch, inflate, with_corrected_checksum
from instances.messages.interfaces import ABORT, COMMIT, OTHER_MARKER, Record
from instances.messages.limits import HEADERS_SHOWN_MAX

_ENTRY = struct.Struct(">qi")  # offset, number of following bytes
_BATCH = struct.Struct(">qiibIhiqqqhii")
_BATCH_CRC_START: Final = 21
_OLD_MESSAGE = struct.Struct(">qiIbb")
_OLD_CRC_START: Final = 16
_LONG = struct.Struct(">q")
_INT = struct.Struct(">i")
_MARKER = struct.Struct(">hh")
_MAGIC_POSITION: Final = 16
CODEC_MASK: Final = 7
APPEND_TIME: Final = 8
TRANSACTIONAL: Final = 16
CONTROL: Final = 32
NO_PRODUCER: Final = -1
NO_TIMESTAMP: Final = -1
MARKERS: Final = {0: ABORT, 1: COMMIT}
VARINT_BYTES_MAX: Final = 10


@dataclass(slots=True, kw_only=True)
class Batch:
    """Header of one batch, and its raw records.

    A message of format 0 or 1 is a batch of its own. If it is compressed, `base_offset` is the offset of its last
    record.
    """

    base_offset: int
    last_offset: int
    magic: int
    attributes: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    count: int
    payload: memoryview
    is_damaged: bool

    @property
    def is_transactional(self) -> bool:
        """True for data of a transaction, False for its end marker."""
        return bool(self.attributes & TRANSACTIONAL) and not self.is_control

    @property
    def is_control(self) -> bool:
        return self.magic == 2 and bool(self.attributes & CONTROL)

    @property
    def is_append_time(self) -> bool:
        return self.magic > 0 and bool(self.attributes & APPEND_TIME)

    def body(self, bytes_max: int) -> bytes | memoryview:
        """Returns the records' bytes. Raises `DamagedBatch` and `TooLarge`."""
        if self.is_damaged:
            raise DamagedBatch("wrong checksum")
        codec = self.attributes & CODEC_MASK
        if not codec:
            return self.payload
        data = self.payload if self.magic == 2 else _parse_old_fields(self.payload, 0)[1]
        if data is None:
            raise DamagedBatch("nothing is compressed")
        if self.magic == 0 and codec == LZ4:
            data = with_corrected_checksum(bytes(data))
        return inflate(codec, memoryview(data), bytes_max)


def batches(raw: bytes) -> Iterator[Batch]:
    """Yields the complete batches of a partition's data; a truncated last one is omitted."""
    view, position = memoryview(raw), 0
    while position + _MAGIC_POSITION < len(view):
        _, length = _ENTRY.unpack_from(view, position)
        end = position + _ENTRY.size + length
        if length <= 0 or end > len(view):
            return
        entry = view[position:end]
        batch = _parse_batch(entry) if entry[_MAGIC_POSITION] == 2 else _parse_old_message(entry)
        if batch is None:
            return
        yield batch
        position = end


def _parse_batch(entry: memoryview) -> Batch | None:
    if len(entry) < _BATCH.size:
        return None
    base, _, _, magic, crc, attributes, last_delta, first_ms, max_ms, producer_id, _, _, count = _BATCH.unpack_from(
        entry
    )
    return Batch(
        base_offset=base, last_offset=base + max(last_delta, 0), magic=magic, attributes=attributes,
        first_timestamp_ms=first_ms, max_timestamp_ms=max_ms, producer_id=producer_id, count=count,
        payload=entry[_BATCH.size :], is_damaged=crc32c.crc32c(entry[_BATCH_CRC_START:]) != crc,
    )  # fmt: skip


def _parse_old_message(entry: memoryview) -> Batch | None:
    if len(entry) < _OLD_MESSAGE.size:
        return None
    offset, _, crc, magic, attributes = _OLD_MESSAGE.unpack_from(entry)
    position, timestamp_ms = _OLD_MESSAGE.size, NO_TIMESTAMP
    if magic == 1 and len(entry) >= position + _LONG.size:
        (timestamp_ms,) = _LONG.unpack_from(entry, position)
        position += _LONG.size
    return Batch(
        base_offset=offset, last_offset=offset, magic=magic, attributes=attributes, first_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms, producer_id=NO_PRODUCER, count=1, payload=entry[position:],
        is_damaged=magic not in (0, 1) or zlib.crc32(entry[_OLD_CRC_START:]) != crc,
    )  # fmt: skip


def records(partition: int, batch: Batch, body: bytes | memoryview, *, newest_first: bool = False) -> Iterator[Record]:
    """Yields the records in the order of their offsets, or the reverse. Raises `DamagedBatch`."""
    try:
        if batch.magic == 2:
            yield from _parse_records(partition, batch, bytes(body), newest_first)
        elif batch.attributes & CODEC_MASK:
            yield from _parse_wrapped_messages(partition, batch, bytes(body), newest_first)
        else:
            yield _to_record(partition, batch, batch.last_offset, batch.is_append_time, batch.max_timestamp_ms)
    except (struct.error, IndexError) as error:
        raise DamagedBatch(f"{type(error).__name__}: {error}") from None


def _parse_records(partition: int, batch: Batch, body: bytes, newest_first: bool) -> Iterator[Record]:
    starts = record_starts(body, batch.count)[:-1]
    for start in reversed(starts) if newest_first else starts:
        yield record_at(partition, batch, body, start)


def record_starts(body: bytes, count: int) -> array[int]:
    """Returns the positions of the records in order of their offsets, and the end of the last one. Raises `IndexError`
    and `DamagedBatch`.
    """
    starts, position, size = array("I", [0]), 0, len(body)
    append = starts.append
    for _ in range(count):
        byte = body[position]
        if byte < 0x80:
            length, position = (byte >> 1) ^ -(byte & 1), position + 1
        else:
            length, position = parse_varint(body, position)
        position += length
        if length <= 0 or position > size:
            raise DamagedBatch("a record is cut off")
        append(position)
    return starts


def offset_at(batch: Batch, body: bytes, position: int) -> int:
    """Returns the offset of the record that begins at a position. Raises `IndexError` and `DamagedBatch`."""
    _, position = parse_varint(body, position)
    _, position = parse_varint(body, position + 1)
    return batch.base_offset + parse_varint(body, position)[0]


def timestamp_at(batch: Batch, body: bytes, position: int) -> int:
    """Returns the time of the record that begins at a position. Raises `IndexError` and `DamagedBatch`."""
    if batch.is_append_time:
        return batch.max_timestamp_ms
    _, position = parse_varint(body, position)
    return batch.first_timestamp_ms + parse_varint(body, position + 1)[0]


def record_at(partition: int, batch: Batch, body: bytes, position: int) -> Record:
    """Returns the record that begins at a position. Raises `IndexError`, `struct.error` and `DamagedBatch`."""
    length, position = parse_varint(body, position)
    end = position + length
    timestamp_delta, position = parse_varint(body, position + 1)
    offset_delta, position = parse_varint(body, position)
    key, position = _parse_bytes(body, position, end)
    value, position = _parse_bytes(body, position, end)
    header_count, position = parse_varint(body, position)
    headers: list[tuple[bytes, bytes | None]] = []
    for _ in range(min(header_count, HEADERS_SHOWN_MAX)):
        name, position = _parse_bytes(body, position, end)
        header_value, position = _parse_bytes(body, position, end)
        headers.append((name or b"", header_value))
    if position > end:
        raise DamagedBatch("a field is cut off")
    is_append_time, is_marker = batch.is_append_time, batch.is_control
    return Record(
        partition=partition,
        offset=batch.base_offset + offset_delta,
        timestamp_ms=batch.max_timestamp_ms if is_append_time else batch.first_timestamp_ms + timestamp_delta,
        is_append_time=is_append_time,
        key=None if is_marker else key,
        value=None if is_marker else value,
        headers=headers,
        header_count=max(header_count, 0),
        marker=_marker_kind(key) if is_marker else None,
    )


def _marker_kind(key: bytes | None) -> str:
    return MARKERS.get(_MARKER.unpack_from(key or b"")[1], OTHER_MARKER)


def _parse_wrapped_messages(partition: int, batch: Batch, body: bytes, newest_first: bool) -> Iterator[Record]:
    """Yields the records of a compressed message. In format 1 their offsets are relative, and the offset of the wrapper
    is that of the last one.
    """
    inner = list(batches(body))
    if not inner or any(message.is_damaged for message in inner):
        raise DamagedBatch("no message is compressed, or one has a wrong checksum")
    base_offset = batch.last_offset - inner[-1].last_offset if batch.magic == 1 else 0
    for message in reversed(inner) if newest_first else inner:
        timestamp_ms = batch.max_timestamp_ms if batch.is_append_time else message.max_timestamp_ms
        yield _to_record(partition, message, message.last_offset + base_offset, batch.is_append_time, timestamp_ms)


def _to_record(partition: int, message: Batch, offset: int, is_append_time: bool, timestamp_ms: int) -> Record:
    key, value = _parse_old_fields(message.payload, 0)
    return Record(
        partition=partition, offset=offset, timestamp_ms=timestamp_ms, is_append_time=is_append_time, key=key,
        value=value,
    )  # fmt: skip


def _parse_old_fields(payload: memoryview, position: int) -> tuple[bytes | None, bytes | None]:
    result: list[bytes | None] = []
    for _ in ("key", "value"):
        (length,) = _INT.unpack_from(payload, position)
        position += _INT.size
        if length > len(payload) - position:
            raise DamagedBatch("a message is cut off")
        result.append(None if length < 0 else bytes(payload[position : position + length]))
        position += max(length, 0)
    return result[0], result[1]


def _parse_bytes(body: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = parse_varint(body, position)
    if length < 0:
        return None, position
    if position + length > end:
        raise DamagedBatch("a field is cut off")
    return body[position : position + length], position + length


def parse_varint(body: bytes, position: int) -> tuple[int, int]:
    """Returns a zigzag varint and the position after it. Raises `IndexError` and `DamagedBatch`."""
    byte = body[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, shift, start = byte & 0x7F, 7, position
    while True:
        position += 1
        byte = body[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
        if position - start >= VARINT_BYTES_MAX:
            raise DamagedBatch("a number without an end")
