"""Readers of names as bytes, from compact or classic strings that must not be null."""

from __future__ import annotations

from struct import Struct
from typing import Final

from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.lengths import TEXT_BYTES_MAX, Buffer, read_varint

_SHORT: Final = Struct(">h")


def compact_name(buffer: Buffer, position: int, end: int) -> tuple[bytes, int]:
    """Reads a compact string; returns the name and the position after it.

    Raises MalformedRequest, and IndexError at the end of the buffer.
    """
    length, position = read_varint(buffer, position)
    stop = position + length - 1
    if not 0 < length <= TEXT_BYTES_MAX + 1 or stop > end:
        raise MalformedRequest("a name is null, too long or runs past the frame")
    return bytes(buffer[position:stop]), stop


def classic_name(buffer: Buffer, position: int, end: int) -> tuple[bytes, int]:
    """Reads a classic string; returns the name and the position after it.

    Raises MalformedRequest, and struct.error at the end of the buffer.
    """
    (length,) = _SHORT.unpack_from(buffer, position)
    stop = position + 2 + length
    if length < 0 or stop > end:
        raise MalformedRequest("a name is null or runs past the frame")
    return bytes(buffer[position + 2 : stop]), stop
