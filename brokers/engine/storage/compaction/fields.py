"""Record fields that the cleaner reads: position, key and whether there is a value (REC-22).

Records are plain tuples and short integers are decoded inline, because a cleaning run reads every record of the
uncleaned part of a log.
"""

from __future__ import annotations

from brokers.engine.records.walk import Malformed, read_integer
from brokers.engine.wire.varints import MalformedVarint, read_signed_long

# (offset delta, timestamp delta, start, position of the offset delta, end, key, whether there is a value)
Fields = tuple[int, int, int, int, int, bytes | None, bool]


def read_fields(block: bytes, count: int) -> list[Fields]:
    """Returns the fields of the `count` records that fill `block`, without parsing headers. Raises Malformed."""
    result: list[Fields] = []
    position = 0
    size = len(block)
    try:
        for _ in range(count):
            start = position
            length, position = read_integer(block, position, size)
            end = position + length
            if length < 0 or end > size:
                raise Malformed("a record reaches past the end of its batch")
            byte = block[position + 1]
            if byte < 0x80:
                timestamp_delta, delta_at = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                timestamp_delta, delta_at = read_signed_long(block, position + 1, end)
            offset_delta, position = read_integer(block, delta_at, end)
            length, position = read_integer(block, position, end)
            key: bytes | None = None
            if length >= 0:
                key = block[position : position + length]
                position += length
            length, position = read_integer(block, position, end)
            if position + max(length, 0) > end:
                raise Malformed("a field reaches past the end of its record")
            result.append((offset_delta, timestamp_delta, start, delta_at, end, key, length >= 0))
            position = end
    except (IndexError, MalformedVarint):
        raise Malformed("a record is cut off") from None
    if position != size:
        raise Malformed("bytes are left over after the last record")
    return result


def read_keys(block: bytes, count: int) -> list[tuple[int, bytes | None]]:
    """Returns (offset delta, key) of the `count` records that fill `block`, without parsing what follows the key.

    Raises Malformed.
    """
    result: list[tuple[int, bytes | None]] = []
    position = 0
    size = len(block)
    try:
        for _ in range(count):
            length, position = read_integer(block, position, size)
            end = position + length
            if length < 0 or end > size:
                raise Malformed("a record reaches past the end of its batch")
            if block[position + 1] < 0x80:
                position += 2
            else:
                _, position = read_signed_long(block, position + 1, end)
            byte = block[position]
            if byte < 0x80:
                offset_delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                offset_delta, position = read_integer(block, position, end)
            byte = block[position]
            if byte < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, position = read_integer(block, position, end)
            if position + length > end:
                raise Malformed("a key reaches past the end of its record")
            result.append((offset_delta, block[position : position + length] if length >= 0 else None))
            position = end
    except (IndexError, MalformedVarint):
        raise Malformed("a record is cut off") from None
    if position != size:
        raise Malformed("bytes are left over after the last record")
    return result
