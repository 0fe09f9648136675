"""Header of a v2 record batch in a buffer (REC-20): one precompiled struct, no object per record. Message formats 0 and
1 are detected, so that they are refused for the right reason (REC-42, REC-48).

Positions are relative to the first byte of the batch. The broker may write base offset and leader epoch freely, because
the checksum starts after them (REC-21); after any other write it must call `write_crc`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from brokers.engine.wire.checksum import crc32c

Buffer = bytes | bytearray | memoryview

MAGIC: Final = 2
HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12  # base offset and length, which the length field does not include
UP_TO_MAGIC_BYTES: Final = 17
ENTRY_LENGTH_MIN: Final = 14  # a v0 message without key and value (REC-7)

CRC_AT: Final = 17
CRC_COVERED_FROM: Final = 21
MAGIC_AT: Final = 16
ATTRIBUTES_AT: Final = 22  # the second of its two bytes, which has all flags in use

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

SEQUENCE_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
LONG_MIN: Final = -(2**63)

HEADER: Final = Struct(">qiibIhiqqqhii")
OFFSET_AND_LENGTH: Final = Struct(">qi")
ATTRIBUTES: Final = Struct(">h")
MAX_TIMESTAMP: Final = Struct(">q")
_RECORD_COUNT: Final = Struct(">i")
_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_CRC = Struct(">I")
MAGIC_MAX: Final = MAGIC


class BatchHeader(NamedTuple):
    """Fields of the 61 bytes before the records."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def last_sequence(self) -> int:
        return advance_sequence(self.base_sequence, self.last_offset_delta)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Returns the header at byte `position`. Raises struct.error if fewer than 61 bytes are left."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def record_count(batch: Buffer) -> int:
    """Returns the record count in the header of the batch. Raises struct.error like `read_header`."""
    count: int = _RECORD_COUNT.unpack_from(batch, 57)[0]
    return count


def advance_sequence(sequence: int, count: int) -> int:
    """Returns the sequence number `count` later, which wraps from 2^31-1 to 0 (REC-23); -1 (no sequence) stays."""
    if sequence < 0:
        return sequence
    sequence += count
    return sequence if sequence <= SEQUENCE_MAX else sequence - SEQUENCE_MAX - 1


def wrap_to_int64(number: int) -> int:
    """Returns the number wrapped to 64 bits.

    Timestamps set by a producer may overflow (REC-23), and every reader must get the same ones.
    """
    if LONG_MIN <= number <= LONG_MAX:
        return number
    return (number - LONG_MIN) % (LONG_MAX - LONG_MIN + 1) + LONG_MIN


def checksum(batch: Buffer) -> int:
    """Returns the crc32c of everything after the checksum field of the batch that fills `batch`."""
    return crc32c(memoryview(batch)[CRC_COVERED_FROM:])


def set_offset_and_epoch(batch: memoryview | bytearray, base_offset: int, leader_epoch: int) -> None:
    """Sets the base offset and the leader epoch of the batch; the checksum is not affected."""
    _BASE_OFFSET.pack_into(batch, 0, base_offset)
    _LEADER_EPOCH.pack_into(batch, LOG_OVERHEAD_BYTES, leader_epoch)


def set_attributes_and_timestamp(batch: memoryview | bytearray, attributes: int, max_timestamp: int) -> None:
    """Sets attributes and maximum timestamp (for LogAppendTime or to correct a wrong maximum) and updates the
    checksum.
    """
    ATTRIBUTES.pack_into(batch, 21, attributes)
    MAX_TIMESTAMP.pack_into(batch, 35, max_timestamp)
    write_crc(batch)


def write_crc(batch: memoryview | bytearray) -> None:
    """Recomputes the checksum of the batch that fills `batch`."""
    _CRC.pack_into(batch, CRC_AT, checksum(batch))


def scan_headers(buffer: Buffer, start: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yields (position, header) of every complete v2 batch from `start`; stops at an incomplete or foreign entry."""
    end = len(buffer)
    while start + HEADER_BYTES <= end:
        header = read_header(buffer, start)
        size = header.size_bytes
        if header.magic != MAGIC or size < HEADER_BYTES or start + size > end:
            return
        yield start, header
        start += size


def first_entry(records: memoryview | bytes) -> tuple[int, int] | None:
    """Returns (size with its 12-byte prefix, magic) of the first complete entry, None if there is none.

    A size below the smallest message is returned as -1, and an unknown magic unchanged: both are corrupt (REC-48).
    """
    if len(records) < UP_TO_MAGIC_BYTES:
        return None
    _, length = OFFSET_AND_LENGTH.unpack_from(records)
    magic = records[MAGIC_AT]
    if length < ENTRY_LENGTH_MIN:
        return -1, magic
    size = length + LOG_OVERHEAD_BYTES
    if magic <= MAGIC_MAX and size > len(records):
        return None
    return size, magic
