"""Parsing of member assignments, which clients exchange through the group coordinator. Pure.

Consumer protocol, versions 0 to 3: int16 version, array of (topic, array of int32 partitions), user data. The bytes
come from clients (CKA-18) and may be arbitrary: an unparsable assignment is unknown, not an error.
"""

from __future__ import annotations

import struct

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class _Unreadable(Exception):
    pass


def decode_assignment(raw: bytes) -> tuple[tuple[str, int], ...] | None:
    """Returns topics and partitions; None for an unknown format. Empty bytes assign nothing."""
    if not raw:
        return ()
    try:
        return _read(raw)
    except (_Unreadable, struct.error, UnicodeDecodeError):
        return None


def _read(raw: bytes) -> tuple[tuple[str, int], ...]:
    (version,) = _INT16.unpack_from(raw, 0)
    if version < 0:
        raise _Unreadable
    position = _INT16.size
    topics, position = _read_array_length(raw, position, _INT16.size + _INT32.size)
    result: list[tuple[str, int]] = []
    for _ in range(topics):
        (length,) = _INT16.unpack_from(raw, position)
        position += _INT16.size
        if length < 0 or position + length > len(raw):
            raise _Unreadable
        topic = raw[position : position + length].decode()
        position += length
        partitions, position = _read_array_length(raw, position, _INT32.size)
        indexes = struct.unpack_from(f">{partitions}i", raw, position)
        position += partitions * _INT32.size
        result += [(topic, index) for index in indexes]
    return tuple(sorted(result))


def _read_array_length(raw: bytes, position: int, element_bytes_min: int) -> tuple[int, int]:
    """Returns the length of an array whose elements take at least `element_bytes_min`, and where they begin."""
    (count,) = _INT32.unpack_from(raw, position)
    position += _INT32.size
    if count < 0 or count * element_bytes_min > len(raw) - position:
        raise _Unreadable
    return count, position
