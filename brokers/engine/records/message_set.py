"""Message formats 0 and 1: single messages, and sets of them in one compressed wrapper (REC-5 to REC-12).

Readers are generators and keep at most one decompressed wrapper in memory. Unreadable data raises `Corrupt` (error code
2) or `Invalid` (87).

Wrappers never use zstd (REC-4). Wrappers of format 0 have a wrong LZ4 header checksum, because the first LZ4 writers
included the frame's magic number. Readers of format 0 accept any checksum, writers of format 0 write the wrong one,
because old clients require it; from format 1 on the checksum is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

import lz4.frame
from xxhash import xxh32_intdigest

from brokers.engine.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    MAGIC_MAX,
    OFFSET_AND_LENGTH,
)
from brokers.engine.records.compression import LZ4, NONE, SNAPPY, Undecodable, compress, decompress
from brokers.engine.wire.checksum import crc32

CODEC_MAX: Final = LZ4
CODECS: Final = (NONE, 1, SNAPPY, LZ4)

_MAGIC_BYTES: Final = 4
_DESCRIPTOR_BYTES_MIN: Final = 3  # flags, block descriptor, checksum
_CONTENT_SIZE: Final = 0x08
_DICTIONARY_ID: Final = 0x01
NO_TIMESTAMP: Final = -1
MESSAGE_BYTES_MIN: Final = 14  # after offset and size (REC-7)
CRC_COVERED_FROM: Final = 16
_CRC: Final = Struct(">I")
_LENGTH: Final = Struct(">i")
_TIMESTAMP: Final = Struct(">q")
_HEADERS: Final = (Struct(">qiIbb"), Struct(">qiIbbq"))  # offset, size, checksum, magic, attributes, timestamp
_KEY_AT: Final = (18, 26)


def decompress_old(codec: int, data: bytes, magic: int) -> bytes:
    """Returns the messages in a wrapper of format `magic`. Raises Undecodable, also for zstd, or Oversized."""
    if not NONE < codec <= CODEC_MAX:
        raise Undecodable(f"codec {codec} has no place in message format {magic}")
    if codec == LZ4 and magic == 0:
        data = _with_checksum(data, covers_header=False)
    return decompress(codec, data)


def compress_old(codec: int, data: bytes, magic: int) -> bytes:
    """Returns `data` compressed by `codec` (1 to 3), readable by clients of format `magic`."""
    if codec != LZ4:
        return compress(codec, data)
    # Without the content size: the first readers expect a header of seven bytes.
    compressed: bytes = lz4.frame.compress(
        data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )
    return _with_checksum(compressed, covers_header=True) if magic == 0 else compressed


def _with_checksum(frame: bytes, *, covers_header: bool) -> bytes:
    """Returns the frame with the checksum of its descriptor, or of the `covers_header` header as in format 0."""
    if len(frame) < _MAGIC_BYTES + _DESCRIPTOR_BYTES_MIN:
        raise Undecodable("lz4 header is cut off")
    flags = frame[_MAGIC_BYTES]
    position = _MAGIC_BYTES + 2 + (8 if flags & _CONTENT_SIZE else 0) + (4 if flags & _DICTIONARY_ID else 0)
    if position >= len(frame):
        raise Undecodable("lz4 header is cut off")
    checksum = xxh32_intdigest(frame[0 if covers_header else _MAGIC_BYTES : position]) >> 8 & 0xFF
    return b"%b%c%b" % (frame[:position], checksum, frame[position + 1 :])


class Corrupt(ValueError):
    """The bytes are no message, or their checksum is wrong."""


class Invalid(ValueError):
    """The messages are readable but not allowed in their position."""


class MessagePosition(NamedTuple):
    """Position of a message or batch: `start` and `end` in the set, and the offset and magic in its first 17 bytes."""

    start: int
    end: int
    offset: int
    magic: int

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


class Message(NamedTuple):
    """A message as an application sees it; `timestamp_ms` is -1 in format 0, and `attributes` are not those of its
    wrapper.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    attributes: int = 0

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK


def read_entries(data: bytes) -> Iterator[MessagePosition]:
    """Yields the entries of a set in any format, without an incomplete one at the end (REC-60). Raises Corrupt."""
    start = 0
    while start + LOG_OVERHEAD_BYTES <= len(data):
        offset, length = OFFSET_AND_LENGTH.unpack_from(data, start)
        if length < MESSAGE_BYTES_MIN:
            raise Corrupt(f"an entry of {length} bytes is too short to be a message")
        if start + MAGIC_AT >= len(data):
            return
        magic = data[start + MAGIC_AT]
        if magic > MAGIC_MAX:
            raise Corrupt(f"message format {magic} is unknown")
        end = start + LOG_OVERHEAD_BYTES + length
        if end > len(data):
            return
        yield MessagePosition(start, end, offset, magic)
        start = end


def is_checksum_valid(data: bytes, entry: MessagePosition) -> bool:
    """True if the checksum of a message is right (REC-6, REC-48)."""
    (declared,) = _CRC.unpack_from(data, entry.start + LOG_OVERHEAD_BYTES)
    return bool(declared == crc32(memoryview(data)[entry.start + CRC_COVERED_FROM : entry.end]))


def read_message(data: bytes, entry: MessagePosition) -> Message:
    """Returns the message of format 0 or 1 at `entry`; the caller verifies the checksum. Raises Corrupt."""
    start, end, offset, magic = entry
    position = start + _KEY_AT[magic]
    if position + 8 > end:
        raise Corrupt("a message is too short for its fields")
    timestamp_ms = _TIMESTAMP.unpack_from(data, start + 18)[0] if magic else NO_TIMESTAMP
    key, position = _read_field(data, position, end)
    value, position = _read_field(data, position, end)
    return Message(offset, timestamp_ms, key, value, data[start + 17])


def _read_field(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    if position + 4 > end:
        raise Corrupt("a message is too short for its fields")
    (length,) = _LENGTH.unpack_from(data, position)
    position += 4
    if length < 0:
        return None, position
    if position + length > end:
        raise Corrupt("a field reaches past the end of its message")
    return data[position : position + length], position + length


def unwrap_messages(wrapper: Message, magic: int) -> Iterator[Message]:
    """Yields the messages in a wrapper of format `magic`, with absolute offsets and real timestamps (REC-8 to REC-12).

    Raises Corrupt, Invalid, and compression.Oversized.
    """
    if wrapper.value is None:
        raise Invalid("a wrapper without a value")
    try:
        inner_set = decompress_old(wrapper.codec, wrapper.value, magic)
    except Undecodable as error:
        raise Corrupt(str(error)) from None
    last_entry = None
    for last_entry in read_entries(inner_set):
        if last_entry.magic != magic:
            raise Invalid(f"a message of format {last_entry.magic} in a wrapper of format {magic}")
    if last_entry is None:
        raise Invalid("a wrapper without messages")
    base = 0
    if magic and wrapper.offset:
        # A wrapper with offset 0, which some clients send for any content, does not change the inner offsets.
        base = wrapper.offset - last_entry.offset
        if base < 0:
            raise Invalid("a wrapper's offset is below that of its last message")
    is_append_time = bool(magic and wrapper.attributes & LOG_APPEND_TIME)
    for entry in read_entries(inner_set):
        message = read_message(inner_set, entry)
        if message.codec != NONE:
            raise Invalid("a wrapper inside a wrapper")
        if not is_checksum_valid(inner_set, entry):
            raise Corrupt("the checksum of an inner message is wrong")
        timestamp_ms = wrapper.timestamp_ms if is_append_time else message.timestamp_ms
        yield message._replace(offset=base + message.offset, timestamp_ms=timestamp_ms)


def read_set(data: bytes) -> Iterator[Message]:
    """Yields every message of a set of formats 0 and 1 as a consumer sees it. Raises like `unwrap_messages`."""
    for entry in read_entries(data):
        if entry.magic >= MAGIC_MAX:
            raise Invalid("a record batch in a message set")
        if not is_checksum_valid(data, entry):
            raise Corrupt("the checksum of a message is wrong")
        message = read_message(data, entry)
        if message.codec == NONE:
            yield message
        else:
            yield from unwrap_messages(message, entry.magic)


def encode_message(
    magic: int, offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, attributes: int = 0
) -> bytes:
    """Returns an encoded message with its checksum; format 0 has no timestamp."""
    header = _HEADERS[magic]
    out = bytearray(header.size)
    out += _encode_field(key)
    out += _encode_field(value)
    fields = (offset, len(out) - LOG_OVERHEAD_BYTES, 0, magic, attributes)
    header.pack_into(out, 0, *(fields if magic == 0 else (*fields, timestamp_ms)))
    _CRC.pack_into(out, LOG_OVERHEAD_BYTES, crc32(memoryview(out)[CRC_COVERED_FROM:]))
    return bytes(out)


def _encode_field(field: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if field is None else _LENGTH.pack(len(field)) + field
