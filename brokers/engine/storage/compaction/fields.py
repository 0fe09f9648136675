"""What the cleaner reads of each record: its place, its key, and whether it has a value (REC-22).

One tuple a record and the short integers in line: a run looks at every record of the head.
"""

from __future__ import annotations

from brokers.engine.records.walk import Malformed, read_integer
from brokers.engine.wire.varints import MalformedVarint, read_signed_long

# offset delta, timestamp delta, start, where the offset delta starts, end, key, whether there is a value
Fields = tuple[int, int, int, int, int, bytes | None, bool]


def read_fields(block: bytes, count: int) -> list[Fields]:
    """The `count` records that fill `block`. Raises Malformed; headers are not looked into."""
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
                stamp, rest = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                stamp, rest = read_signed_long(block, position + 1, end)
            delta, position = read_integer(block, rest, end)
            length, position = read_integer(block, position, end)
            key: bytes | None = None
            if length >= 0:
                key = block[position : position + length]
                position += length
            length, position = read_integer(block, position, end)
            if position + max(length, 0) > end:
                raise Malformed("a field reaches past the end of its record")
            result.append((delta, stamp, start, rest, end, key, length >= 0))
            position = end
    except (IndexError, MalformedVarint):
        raise Malformed("a record is cut off") from None
    if position != size:
        raise Malformed("bytes are left over after the last record")
    return result


def read_keys(block: bytes, count: int) -> list[tuple[int, bytes | None]]:
    """(offset delta, key) of the `count` records that fill `block`; what comes after a key is not looked at.

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
                delta, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                delta, position = read_integer(block, position, end)
            byte = block[position]
            if byte < 0x80:
                length, position = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, position = read_integer(block, position, end)
            if position + length > end:
                raise Malformed("a key reaches past the end of its record")
            result.append((delta, block[position : position + length] if length >= 0 else None))
            position = end
    except (IndexError, MalformedVarint):
        raise Malformed("a record is cut off") from None
    if position != size:
        raise Malformed("bytes are left over after the last record")
    return result
