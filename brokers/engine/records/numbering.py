"""Checks that the offset deltas of a compressed batch's records are 0, 1, 2…, as Kafka does.

As in `walk.check_lengths`, runs of records of equal size are checked column by column at C speed: the bytes of deltas
that increase by one are known in advance.
"""

from __future__ import annotations

from typing import Final

from brokers.engine.records.walk import RUN_MIN, Malformed, check_fields, measure_run, read_integer
from brokers.engine.wire.varints import MalformedVarint, encode_signed, read_signed_long

# Maximum number of records in one column.
COLUMN_RECORDS_MAX: Final = 1_024
# Number of records that are checked one by one after a run before the next search for a run, and after a search without
# result.
SINGLE_STEPS_AFTER_A_RUN: Final = 64
SINGLE_STEPS_MAX: Final = 1_024
TIMESTAMP_BYTES_MAX: Final = 10

# Deltas below these numbers are encoded in one, two and three bytes. The last one is
# `validation.RECORDS_PER_BATCH_MAX`.
_ONE_BYTE: Final = 1 << 6
_TWO_BYTES: Final = 1 << 13
_THREE_BYTES: Final = 1 << 18
# Columns of encoded deltas: byte string N has at position D the byte N of delta D, for deltas that are encoded in one
# byte, in two or in three.
_ONLY_BYTE: Final = bytes(2 * delta for delta in range(_ONE_BYTE))
_FIRST_OF_SEVERAL: Final = bytes(2 * delta & 0x7F | 0x80 for delta in range(64)) * (_THREE_BYTES // 64)
_SECOND_OF_TWO: Final = b"".join(bytes((high,)) * 64 for high in range(128))
_SECOND_OF_THREE: Final = b"".join(bytes((high | 0x80,)) * 64 for high in range(128)) * (_THREE_BYTES // _TWO_BYTES)
_THIRD_OF_THREE: Final = b"".join(bytes((high,)) * _TWO_BYTES for high in range(_THREE_BYTES // _TWO_BYTES))
_HIGH_BIT_FLIPPED: Final = bytes(byte ^ 0x80 for byte in range(256))


def has_consecutive_deltas(data: bytes, count: int) -> bool:
    """True if the `count` records, which `check_lengths` accepted, have the offset deltas 0 to `count` - 1.

    Raises Malformed.
    """
    try:
        return _has_consecutive_deltas(data, count)
    except (IndexError, MalformedVarint):
        raise Malformed("a record is cut off") from None


def _has_consecutive_deltas(data: bytes, count: int) -> bool:
    position = index = 0
    size = len(data)
    single_steps = SINGLE_STEPS_AFTER_A_RUN
    while index < count:
        stride, run = measure_run(data, position, size, min(count - index, COLUMN_RECORDS_MAX))
        run = min(run, _first_wider_delta(index) - index)
        if run >= RUN_MIN and _has_run_consecutive_deltas(data, position, stride, run, index):
            position += stride * run
            index += run
            single_steps = SINGLE_STEPS_AFTER_A_RUN
            continue
        if index >= _ONE_BYTE:
            end = min(index + single_steps, count, _first_wider_delta(index))
            position = _position_after(data, position, size, index, end)
            if position < 0:
                return False
            index, single_steps = end, SINGLE_STEPS_MAX
            continue
        for _ in range(min(single_steps, count - index)):
            byte = data[position]
            if byte < 0x80:
                start, length = position + 1, byte >> 1
            else:
                length, start = read_integer(data, position, size)
            field_at = start + 1  # after the attributes
            end = field_at + TIMESTAMP_BYTES_MAX
            while data[field_at] >= 0x80:
                field_at += 1
                if field_at >= end:
                    raise Malformed("a timestamp does not end")
            if read_integer(data, field_at + 1, size)[0] != index:
                return False
            position = start + length
            index += 1
        single_steps = SINGLE_STEPS_MAX
    return True


def _position_after(data: bytes, position: int, size: int, index: int, end: int) -> int:
    """Returns the position after the next records if they have the offset deltas `index` to `end` - 1, which take two
    or three bytes; otherwise -1.
    """
    is_wide = index >= _TWO_BYTES
    middle = _SECOND_OF_THREE if is_wide else _SECOND_OF_TWO
    for low, high, top in zip(_FIRST_OF_SEVERAL[index:end], middle[index:end], _THIRD_OF_THREE[index:end], strict=True):
        byte = data[position]
        if byte < 0x80:
            field_at = position + 2
            position += 1 + (byte >> 1)
        elif data[position + 1] < 0x80:
            field_at = position + 3
            position += 2 + ((byte & 0x7F) >> 1) + (data[position + 1] << 6)
        else:
            length, start = read_integer(data, position, size)
            field_at = start + 1
            position = start + length
        while data[field_at] >= 0x80:
            field_at += 1
            if field_at >= position:
                raise Malformed("a timestamp does not end")
        if data[field_at + 1] != low or data[field_at + 2] != high or (is_wide and data[field_at + 3] != top):
            return -1
    return position


def _first_wider_delta(index: int) -> int:
    """Returns the first delta that is encoded in more bytes than `index`."""
    if index < _ONE_BYTE:
        return _ONE_BYTE
    return _TWO_BYTES if index < _TWO_BYTES else _THREE_BYTES


def _has_run_consecutive_deltas(data: bytes, position: int, stride: int, run: int, index: int) -> bool:
    """True if `run` records of `stride` bytes have the deltas from `index` on; False also if that cannot be
    determined.
    """
    end = position + stride * run
    field_at = position + (1 if data[position] < 0x80 else 2) + 1
    for _ in range(TIMESTAMP_BYTES_MAX):
        column = data[field_at:end:stride]
        field_at += 1
        if column.isascii():
            break
        if not column.translate(_HIGH_BIT_FLIPPED).isascii():
            return False
    end_index = index + run
    if index < _ONE_BYTE:
        return data[field_at:end:stride] == _ONLY_BYTE[index:end_index]
    if data[field_at:end:stride] != _FIRST_OF_SEVERAL[index:end_index]:
        return False
    if index < _TWO_BYTES:
        return data[field_at + 1 : end : stride] == _SECOND_OF_TWO[index:end_index]
    second_matches = data[field_at + 1 : end : stride] == _SECOND_OF_THREE[index:end_index]
    return second_matches and data[field_at + 2 : end : stride] == _THIRD_OF_THREE[index:end_index]


def renumber(data: bytes, count: int) -> bytes:
    """Returns the records with the offset deltas 0 to `count` - 1. Raises Malformed if a record is invalid."""
    check_fields(data, count)
    result = bytearray()
    position = 0
    for index in range(count):
        length, position = read_integer(data, position, len(data))
        end = position + length
        _, delta_at = read_signed_long(data, position + 1, end)
        _, rest_at = read_integer(data, delta_at, end)
        body = data[position:delta_at] + encode_signed(index) + data[rest_at:end]
        result += encode_signed(len(body)) + body
        position = end
    return bytes(result)
