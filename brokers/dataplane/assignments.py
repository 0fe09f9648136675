"""What a group's leader assigned to a member, out of the bytes clients exchange through the coordinator. Pure.

Consumer protocol, versions 0 to 3: int16 version, array of (topic, array of int32 partitions), user data. The bytes
are the clients' own (CKA-18), so anything may stand there: what does not parse is not known, never an error.
"""

from __future__ import annotations

import struct

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class _Unreadable(Exception):
    pass


def decode_assignment(raw: bytes) -> tuple[tuple[str, int], ...] | None:
    """Topics and partitions by name and index; None when the bytes are something else. Empty bytes assign nothing."""
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
    at = _INT16.size
    topics, at = _count(raw, at, _INT16.size + _INT32.size)
    result: list[tuple[str, int]] = []
    for _ in range(topics):
        (length,) = _INT16.unpack_from(raw, at)
        at += _INT16.size
        if length < 0 or at + length > len(raw):
            raise _Unreadable
        topic = raw[at : at + length].decode()
        at += length
        partitions, at = _count(raw, at, _INT32.size)
        indexes = struct.unpack_from(f">{partitions}i", raw, at)
        at += partitions * _INT32.size
        result += [(topic, index) for index in indexes]
    return tuple(sorted(result))


def _count(raw: bytes, at: int, least_bytes: int) -> tuple[int, int]:
    """The length of an array whose elements take at least so many bytes, and where they begin."""
    (count,) = _INT32.unpack_from(raw, at)
    at += _INT32.size
    if count < 0 or count * least_bytes > len(raw) - at:
        raise _Unreadable
    return count, at
