"""Readers shared by all decoders: compact lengths, names as bytes, and sections of unknown tagged fields.

They may read past the `end` of the frame. Callers compare positions with it and treat IndexError as a short frame.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.wire.varints import UNSIGNED_BYTES_MAX

Buffer = bytes | bytearray | memoryview

# Maximum number of tagged fields of one struct. Kafka's structs have four at most; a field takes only two bytes but
# time to be skipped.
TAGGED_FIELDS_MAX: Final = 16
# Maximum length of a string, as in Kafka also in flexible versions, whose encoding allows greater lengths.
TEXT_BYTES_MAX: Final = 32_767
# Size of the replacement character of one invalid byte: decoding may make a string longer than a response allows.
REPLACEMENT_BYTES: Final = 3
# Bytes of a topic name that count as one item of a Produce or Fetch: names of topics are shorter, and responses repeat
# them.
NAME_BYTES_PER_ITEM: Final = 256
_SHORT: Final = Struct(">h")


def rest_of_varint(buffer: Buffer, position: int, first_byte: int) -> tuple[int, int]:
    """Reads the remaining bytes of an unsigned integer after `first_byte`, whose continuation bit is set.

    Returns the integer and the position after it. Raises IndexError at the end of the buffer, MalformedRequest if the
    integer has more than 5 bytes.
    """
    value = first_byte & 0x7F
    for count in range(1, UNSIGNED_BYTES_MAX):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & 0xFFFF_FFFF, position
    raise MalformedRequest("a variable-length integer has more than 5 bytes")


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Reads an unsigned integer; returns it and the position after it. Raises the errors of `rest_of_varint`."""
    first_byte = buffer[position]
    if first_byte < 0x80:
        return first_byte, position + 1
    return rest_of_varint(buffer, position + 1, first_byte)


def skip_tagged_fields(buffer: Buffer, position: int, end: int) -> int:
    """Skips a section of unknown tagged fields and returns the position after it.

    Repeated and descending tags are accepted, as by Kafka 3.9.1. Raises MalformedRequest.
    """
    try:
        count, position = read_varint(buffer, position)
        if count > TAGGED_FIELDS_MAX:
            raise MalformedRequest(f"more than {TAGGED_FIELDS_MAX} tagged fields in one struct")
        for _ in range(count):
            _, position = read_varint(buffer, position)
            size_bytes, position = read_varint(buffer, position)
            if size_bytes > end - position:
                raise MalformedRequest("a tagged field runs past the frame")
            position += size_bytes
    except IndexError as error:
        raise MalformedRequest("the frame ends inside tagged fields") from error
    if position > end:
        raise MalformedRequest("the frame ends inside tagged fields")
    return position


def read_compact_name(buffer: Buffer, position: int, end: int) -> tuple[bytes, int]:
    """Reads a compact string; returns the name and the position after it.

    Raises MalformedRequest, and IndexError at the end of the buffer.
    """
    length, position = read_varint(buffer, position)
    name_end = position + length - 1
    if not 0 < length <= TEXT_BYTES_MAX + 1 or name_end > end:
        raise MalformedRequest("a name is null, too long or runs past the frame")
    return bytes(buffer[position:name_end]), name_end


def read_classic_name(buffer: Buffer, position: int, end: int) -> tuple[bytes, int]:
    """Reads a classic string; returns the name and the position after it.

    Raises MalformedRequest, and struct.error at the end of the buffer.
    """
    (length,) = _SHORT.unpack_from(buffer, position)
    name_end = position + 2 + length
    if length < 0 or name_end > end:
        raise MalformedRequest("a name is null or runs past the frame")
    return bytes(buffer[position + 2 : name_end]), name_end
