"""Checks of the records of one batch: `walk` and `check_fields` check every field, `check_lengths` reads lengths only.

`check_lengths` proves the property on which the log relies: exactly `count` records, back to back, fill the block. It
costs a fraction of a full check because most records come in runs of equal size: one column of length bytes of such a
run is extracted by a strided slice and compared at C speed. Decision 11 (docs/decisions/0011) has measurements and says
which check is used when.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import sleep
from typing import Final, NamedTuple

from brokers.engine.wire.varints import MalformedVarint, read_signed_int, read_signed_long

PROBE_RECORDS: Final = 64  # first look-ahead for a run; quadrupled while runs fill it
SINGLE_STEPS_MAX: Final = 1_024  # records read singly between two look-aheads, where there are no runs
RUN_MIN: Final = 8
SINGLE_STEPS_FIRST: Final = 2
SINGLE_STEPS_AFTER_A_SHORT_RUN: Final = 64
HEADERS_PER_BATCH_MAX: Final = 262_144
# Longer walks over one batch run in a thread, which releases the interpreter lock after this number of records.
RECORDS_PER_TURN: Final = 8_192
RECORD_BYTES_MIN: Final = 7  # length, attributes, two deltas, key and value lengths, header count


class Malformed(ValueError):
    """The bytes are no records: a length is wrong, a varint does not end, or bytes are left over."""


class TooManyHeaders(Malformed):
    """The batch has more than `HEADERS_PER_BATCH_MAX` headers. A kilobyte can decompress to more, and reading them
    takes long.
    """


class WalkedRecord(NamedTuple):
    """One record in place: `key` and `value` are (start, end) in the walked data, None for null."""

    offset_delta: int
    timestamp_delta: int
    key: tuple[int, int] | None
    value: tuple[int, int] | None
    headers_at: int
    end: int


def check_lengths(data: bytes, count: int) -> None:
    """Checks that exactly `count` length-prefixed records fill `data`. Raises Malformed otherwise."""
    position = record_count = 0
    end = len(data)
    stride_of = _STRIDE_OF
    single_steps, probe = SINGLE_STEPS_FIRST, PROBE_RECORDS
    try:
        while position < end:
            for _ in range(single_steps):
                first_byte = data[position]
                if first_byte < 0x80:
                    position += stride_of[first_byte]
                else:
                    second_byte = data[position + 1]
                    if second_byte < 0x80:
                        position += stride_of[first_byte] + (second_byte << 6)
                    else:
                        position += _long_stride(data, position, end)
                record_count += 1
                if position >= end:
                    break
            else:
                stride, run = measure_run(data, position, end, probe)
                record_count += run
                position += stride * run
                if run == probe:
                    single_steps, probe = 0, probe * 4
                elif run >= RUN_MIN:
                    single_steps = 0
                else:
                    single_steps = (
                        SINGLE_STEPS_MAX if record_count > SINGLE_STEPS_MAX else SINGLE_STEPS_AFTER_A_SHORT_RUN
                    )
                    probe = PROBE_RECORDS
    except (IndexError, MalformedVarint):
        raise Malformed("a record length is cut off or impossible") from None
    if position != end:
        raise Malformed("the last record reaches past the end of its batch")
    if record_count != count:
        raise Malformed(f"{record_count} records where {count} were declared")


# Distance to the next record by the first byte of the length; for the two-byte form the part of the first byte. An
# invalid length leads far outside the data, where the next access raises IndexError.
_NOWHERE: Final = -(2**62)
_STRIDE_OF: Final = tuple(
    _NOWHERE
    if first & 1 or (first < 0x80 and (first >> 1) + 1 < RECORD_BYTES_MIN)
    else (first >> 1) + 1
    if first < 0x80
    else ((first & 0x7F) >> 1) + 2
    for first in range(256)
)


def _long_stride(data: bytes, position: int, end: int) -> int:
    """Returns the stride of a record whose length takes three bytes or more."""
    length, body = read_signed_int(data, position, end)
    if length < 0:
        raise Malformed("a record has a negative length")
    return body - position + length


def measure_run(data: bytes, position: int, end: int, probe: int) -> tuple[int, int]:
    """Returns (stride, number) of consecutive records from `position` on with equal length, of at most `probe`
    records.
    """
    if position >= end:
        return 0, 0
    first_byte = data[position]
    second_byte = data[position + 1]
    if first_byte >= 0x80 and second_byte >= 0x80:
        return _long_stride(data, position, end), 1
    stride = _STRIDE_OF[first_byte] + (second_byte << 6 if first_byte >= 0x80 else 0)
    if stride < RECORD_BYTES_MIN:
        raise Malformed("a record is too short to be one")
    window = position + stride * probe
    column = data[position:window:stride]
    run = len(column) - len(column.lstrip(column[:1]))
    if first_byte >= 0x80:
        column = data[position + 1 : window : stride]
        run = min(run, len(column) - len(column.lstrip(column[:1])))
    return stride, run


def check_fields(data: bytes, count: int) -> tuple[int, int, list[int], bool]:
    """Checks every field of every record without creating objects, several times as fast as `walk`.

    Returns (least and greatest timestamp delta, indexes of records without a key, whether the offset deltas are 0 to
    `count` - 1). Raises Malformed in the same cases as `walk`.
    """
    try:
        return _check_fields(data, count)
    except (IndexError, MalformedVarint):
        raise Malformed("a record is cut off") from None


def _check_fields(data: bytes, count: int) -> tuple[int, int, list[int], bool]:
    """Decodes integers of one and two bytes, as nearly all are, inline; wrong lengths show at the end of a record."""
    position, size = 0, len(data)
    least_delta = greatest_delta = headers = mismatch_bits = 0
    keyless: list[int] = []
    for index in range(count):
        byte, second_byte = data[position], data[position + 1]
        if byte < 0x80:
            end = position + 1 + (byte >> 1)
            position += 2
        elif second_byte < 0x80:
            end = position + 2 + ((byte & 0x7F | second_byte << 7) >> 1)
            position += 3
        else:
            length, position = read_signed_int(data, position, size)
            end, position = position + length, position + 1
        if byte & 1 or end > size:
            raise Malformed("a record reaches past the end of its batch")
        byte, second_byte = data[position], data[position + 1]
        if byte < 0x80:
            delta = (byte >> 1) ^ -(byte & 1)
            position += 1
        elif second_byte < 0x80:
            byte = byte & 0x7F | second_byte << 7
            delta = (byte >> 1) ^ -(byte & 1)
            position += 2
        else:
            delta, position = read_signed_long(data, position, end)
        greatest_delta = delta if delta > greatest_delta or not index else greatest_delta
        least_delta = delta if delta < least_delta or not index else least_delta
        byte, second_byte = data[position], data[position + 1]
        if byte < 0x80 or second_byte < 0x80:
            mismatch_bits |= (byte if byte < 0x80 else byte & 0x7F | second_byte << 7) ^ index << 1
            position += 1 if byte < 0x80 else 2
        else:
            offset_delta, position = read_integer(data, position, end)
            mismatch_bits |= offset_delta ^ index
        byte = data[position]
        if byte & 1:
            keyless.append(index)
        field_bytes = 1 if byte & 1 else 1 + (byte >> 1)
        position = position + field_bytes if byte < 0x80 else _skip_bytes_field(data, position, end)
        byte, second_byte = data[position], data[position + 1]
        if byte < 0x80:
            position += 1 if byte & 1 else 1 + (byte >> 1)
        elif second_byte < 0x80 and not byte & 1:
            position += 2 + ((byte & 0x7F | second_byte << 7) >> 1)
        else:
            position = _skip_bytes_field(data, position, end)
        if data[position] == 0 and position + 1 == end:
            position = end
        else:
            headers, position = _skip_headers(data, position, end, headers)
        if position != end:
            raise Malformed("the fields of a record do not fill it")
        if index % RECORDS_PER_TURN == RECORDS_PER_TURN - 1:
            sleep(0)
    if position != size:
        raise Malformed("bytes are left over after the last record")
    return least_delta, greatest_delta, keyless, not mismatch_bits


def read_integer(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Returns a zig-zag 32-bit integer and the position after it; decodes the usual forms of one and two bytes inline.

    Raises IndexError or MalformedVarint where it is truncated.
    """
    first_byte = data[position]
    if first_byte < 0x80:
        return (first_byte >> 1) ^ -(first_byte & 1), position + 1
    second_byte = data[position + 1]
    if second_byte < 0x80:
        first_byte = first_byte & 0x7F | second_byte << 7
        return (first_byte >> 1) ^ -(first_byte & 1), position + 2
    return read_signed_int(data, position, end)


def _skip_bytes_field(data: bytes, position: int, end: int) -> int:
    """Returns the position after a nullable bytes field."""
    length, start = read_integer(data, position, end)
    if length < 0:
        return start
    if start + length > end:
        raise Malformed("a field reaches past the end of its record")
    return start + length


def _skip_headers(data: bytes, position: int, end: int, headers_before: int) -> tuple[int, int]:
    """Returns (number of headers including `headers_before` of earlier records, position after them)."""
    headers, position = _read_header_count(data, position, end, headers_before)
    for number in range(headers):
        name, position = _read_span(data, position, end)
        if name is None:
            raise Malformed("a header has no key")
        position = _skip_bytes_field(data, position, end)
        if number % RECORDS_PER_TURN == RECORDS_PER_TURN - 1:
            sleep(0)
    return headers_before + headers, position


def has_headers_at_most(data: memoryview, count: int, headers_max: int) -> bool:
    """True if the first `count` records of `data` declare at most `headers_max` headers in total.

    Records from the first invalid one on count as having none, because a walk ends there.
    """
    position, size, headers = 0, len(data), 0
    try:
        for _ in range(count):
            length, position = read_signed_int(data, position, size)
            end = position + length
            _, position = read_signed_long(data, position + 1, size)
            _, position = read_signed_int(data, position, size)
            for _ in range(2):
                field_bytes, position = read_signed_int(data, position, size)
                position += max(field_bytes, 0)
            record_headers, _ = read_signed_int(data, position, size)
            headers += record_headers
            if length < 0 or headers > headers_max:
                return headers <= headers_max
            position = end
    except (IndexError, MalformedVarint):
        pass
    return headers <= headers_max


def _read_header_count(data: bytes, position: int, end: int, headers_before: int) -> tuple[int, int]:
    headers, position = read_signed_int(data, position, end)
    if not 0 <= headers <= end - position:
        raise Malformed("a record has an impossible number of headers")
    if headers_before + headers > HEADERS_PER_BATCH_MAX:
        raise TooManyHeaders("the records of a batch have too many headers")
    return headers, position


def walk(data: bytes, count: int) -> Iterator[WalkedRecord]:
    """Yields every record with its fields checked (REC-22, REC-24). Raises Malformed at the first invalid one."""
    try:
        yield from _walk(data, count)
    except MalformedVarint as error:
        raise Malformed(str(error)) from None


def _walk(data: bytes, count: int) -> Iterator[WalkedRecord]:
    position = total_headers = 0
    size = len(data)
    for _ in range(count):
        length, position = read_signed_int(data, position, size)
        end = position + length
        if length < 0 or end > size:
            raise Malformed("a record reaches past the end of its batch")
        timestamp_delta, position = read_signed_long(data, position + 1, end)
        offset_delta, position = read_signed_int(data, position, end)
        key, position = _read_span(data, position, end)
        value, position = _read_span(data, position, end)
        headers_at = position
        headers, position = _read_header_count(data, position, end, total_headers)
        total_headers += headers
        for _ in range(headers):
            name, position = _read_span(data, position, end)
            if name is None:
                raise Malformed("a header has no key")
            _, position = _read_span(data, position, end)
        if position != end:
            raise Malformed("the fields of a record do not fill it")
        yield WalkedRecord(offset_delta, timestamp_delta, key, value, headers_at, end)
    if position != size:
        raise Malformed("bytes are left over after the last record")


def record_deltas(data: bytes, count: int) -> Iterator[tuple[int, int]]:
    """Yields (offset delta, timestamp delta) of every record without parsing its other fields. Raises Malformed."""
    position = 0
    size = len(data)
    try:
        for _ in range(count):
            length, position = read_integer(data, position, size)
            end = position + length
            if length < 0 or end > size:
                raise Malformed("a record reaches past the end of its batch")
            timestamp_delta, position_after_timestamp = read_signed_long(data, position + 1, end)
            offset_delta, _ = read_integer(data, position_after_timestamp, end)
            yield offset_delta, timestamp_delta
            position = end
    except (IndexError, MalformedVarint):
        raise Malformed("a record is cut off") from None


def read_headers(data: bytes, record: WalkedRecord) -> list[tuple[str, bytes | None]]:
    """Returns the headers of a record that `walk` accepted, in their order."""
    number, position = read_signed_int(data, record.headers_at, record.end)
    result: list[tuple[str, bytes | None]] = []
    for _ in range(number):
        name, position = _read_span(data, position, record.end)
        value, position = _read_span(data, position, record.end)
        assert name is not None
        content = None if value is None else data[value[0] : value[1]]
        result.append((data[name[0] : name[1]].decode(errors="replace"), content))
    return result


def _read_span(data: bytes, position: int, end: int) -> tuple[tuple[int, int] | None, int]:
    length, start = read_signed_int(data, position, end)
    if length < 0:
        return None, start
    if start + length > end:
        raise Malformed("a field reaches past the end of its record")
    return (start, start + length), start + length
