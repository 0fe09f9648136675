"""Small readers that every decoder here shares: compact lengths, and sections of unknown tagged fields.

They may read at or after `end` of the frame; callers compare positions with it, and treat IndexError as a short frame.
"""

from __future__ import annotations

from typing import Final

from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.wire.varints import UNSIGNED_BYTES_MAX

Buffer = bytes | bytearray | memoryview

# Of one struct. Kafka's own have four at most; two bytes on the wire are a field, and each takes time to step over.
TAGGED_FIELDS_MAX: Final = 16
# Also where the length on the wire could say more, as in Kafka: a compact length does.
TEXT_BYTES_MAX: Final = 32_767
# What stands for a byte that is not UTF-8 takes so many. Text that does not fit its length then cannot be answered.
REPLACEMENT_BYTES: Final = 3
# So many bytes of a topic's name count as one more item of a Produce or Fetch: no topic has a longer one, and answers
# repeat it.
NAME_BYTES_PER_ITEM: Final = 256


def rest_of_varint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """The unsigned integer whose first byte is `first` (its continuation bit set), and the position behind it.

    Raises IndexError behind the buffer, MalformedRequest when it has more than 5 bytes.
    """
    value = first & 0x7F
    for count in range(1, UNSIGNED_BYTES_MAX):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & 0xFFFF_FFFF, position
    raise MalformedRequest("a variable-length integer has more than 5 bytes")


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """A whole unsigned integer and the position behind it; raises as `rest_of_varint`."""
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    return rest_of_varint(buffer, position + 1, first)


def skip_tagged_fields(buffer: Buffer, position: int, end: int) -> int:
    """The position behind a section of tagged fields none of which we know.

    Tags that repeat or descend are accepted (observed of Kafka 3.9.1). Raises MalformedRequest.
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
