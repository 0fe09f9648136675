"""Variable-length integers: unsigned (flexible messages, WIRE-4) and zig-zag (inside record format v2, WIRE-6).

Readers take `(buffer, position, end)` and return `(value, next position)`. Nothing is read at or after `end`.
"""

from __future__ import annotations

from typing import Final

UNSIGNED_BYTES_MAX: Final = 5
LONG_BYTES_MAX: Final = 10

_MASK_32: Final = 0xFFFF_FFFF
_MASK_64: Final = 0xFFFF_FFFF_FFFF_FFFF

# Lengths in messages are nearly always short: their encodings are looked up, not computed.
SHORT_UNSIGNED: Final = tuple(bytes((value,)) for value in range(128))


class MalformedVarint(ValueError):
    """The integer has too many bytes, or the buffer ends inside it."""


def _read_varint(buffer: bytes | bytearray | memoryview, position: int, end: int, bytes_max: int) -> tuple[int, int]:
    value = 0
    for count in range(bytes_max):
        if position >= end:
            raise MalformedVarint("the buffer ends inside a variable-length integer")
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, position
    raise MalformedVarint(f"a variable-length integer has more than {bytes_max} bytes")


def read_unsigned(buffer: bytes | bytearray | memoryview, position: int, end: int) -> tuple[int, int]:
    """Reads an unsigned 32-bit integer of at most 5 bytes. Bits above the 32nd are dropped, as Kafka does.

    Raises MalformedVarint.
    """
    value, position = _read_varint(buffer, position, end, UNSIGNED_BYTES_MAX)
    return value & _MASK_32, position


def read_signed_int(buffer: bytes | bytearray | memoryview, position: int, end: int) -> tuple[int, int]:
    """Reads a zig-zag 32-bit integer (a record's lengths and offset delta). Raises MalformedVarint."""
    value, position = _read_varint(buffer, position, end, UNSIGNED_BYTES_MAX)
    value &= _MASK_32
    return (value >> 1) ^ -(value & 1), position


def read_signed_long(buffer: bytes | bytearray | memoryview, position: int, end: int) -> tuple[int, int]:
    """Reads a zig-zag 64-bit integer (a record's timestamp delta). Raises MalformedVarint."""
    value, position = _read_varint(buffer, position, end, LONG_BYTES_MAX)
    value &= _MASK_64
    return (value >> 1) ^ -(value & 1), position


def encode_unsigned(value: int) -> bytes:
    """Returns the shortest encoding of `0 <= value < 2^32`."""
    if value < 128:
        return SHORT_UNSIGNED[value]
    assert value <= _MASK_32, value
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_signed(value: int) -> bytes:
    """Returns the zig-zag encoding of a signed integer of up to 64 bits."""
    assert -(1 << 63) <= value < 1 << 63, value
    zigzag = (value << 1) ^ (value >> 63)
    zigzag &= _MASK_64
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def unsigned_size(value: int) -> int:
    """Returns the number of bytes of `encode_unsigned(value)`."""
    return 1 if value < 128 else (value.bit_length() + 6) // 7


def signed_size(value: int) -> int:
    """Returns the number of bytes of `encode_signed(value)`."""
    return unsigned_size(((value << 1) ^ (value >> 63)) & _MASK_64)
