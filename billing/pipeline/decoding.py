"""Usage records as Arrow rows, validated field by field, so that every row fits its tables. Pure.

An invalid record keeps its row, with a `problem` and the beginning of its value as `detail`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as pacsv

from billing.pipeline import schema
from billing.pipeline.schema import MALFORMED, NEWER_VERSION
from brokers.contract.usage import COUNTED_THINGS, FIELD_NAMES, NAME_CHARACTERS_MAX, VERSION, counted_name

# Maximum length of instance ids in all tables.
INSTANCE_ID_CHARACTERS_MAX: Final = 16
# End of the year 9999: no table has a later time.
CALENDAR_END_MS: Final = 253_402_300_800_000
# Larger than any real counter: an exabyte, or the reports of 300,000 years.
COUNT_MAX: Final = 10**18
SEQUENCE_MAX: Final = 10**12
# Minimum and maximum of each number.
_NUMBERS: Final[Mapping[str, tuple[int, int]]] = {
    "broker_id": (0, 2**31 - 1), "broker_epoch": (0, 2**63 - 1), "sequence": (0, SEQUENCE_MAX),
    "at_ms": (1, CALENDAR_END_MS - 1), "bytes": (0, COUNT_MAX), "requests": (0, COUNT_MAX),
}  # fmt: skip
DETAIL_CHARACTERS_MAX: Final = 200
_COUNTED = frozenset(COUNTED_THINGS)

ARROW_SCHEMA = schema.arrow(schema.EVENT)


def _number(digits_max: int) -> str:
    return rf"(?:0|[1-9][0-9]{{0,{digits_max - 1}}})"


# Records as brokers write them, with all numbers within `_NUMBERS`: JSON without whitespace, in ASCII. All other
# records are parsed one by one.
_HEAD: Final = b"[%d," % VERSION
_ASCII: Final = r"[ !#-\[\]-~]"
_NAME: Final = rf'"(?:{_ASCII}|\\["\\/bfnrt]|\\u[0-9a-fA-F]{{4}})*"'
_NAMES: Final = ("topic", "user", "client_id")


_PATTERNS: Final = {
    "broker_id": _number(9), "broker_epoch": _number(18), "sequence": _number(12), "at_ms": "[1-9][0-9]{0,13}",
    "instance_id": f'"{_ASCII}{{1,{INSTANCE_ID_CHARACTERS_MAX}}}"', **dict.fromkeys(_NAMES, _NAME),
    "direction": f'"(?:{"|".join(COUNTED_THINGS)})"', "bytes": _number(18), "requests": _number(18),
}  # fmt: skip
_AS_WRITTEN: Final = rf"^\[{VERSION},{','.join(_PATTERNS[name] for name in FIELD_NAMES)}\]$"
# Longer records are cheaper to parse one by one: most of the bytes are a single name that no other record has.
_PARSED_BYTES_MAX: Final = 512
_BLOCK_BYTES: Final = 4 * 1024 * 1024


def row_of(partition: int, offset: int, raw: bytes | None) -> tuple[Any, ...]:
    """Returns one row of `schema.EVENT`; for a record that is no usage event, all fields of the event are null."""
    problem = MALFORMED
    try:
        version, *values = json.loads(raw or b"")
        if type(version) is int and version > VERSION:
            problem = NEWER_VERSION
        elif type(version) is int and version == VERSION and len(values) == len(FIELD_NAMES):
            return (partition, offset, *map(_checked, FIELD_NAMES, values), None, None)
    except (ValueError, TypeError, RecursionError):
        pass
    return (partition, offset, *[None] * len(FIELD_NAMES), problem, _beginning(raw))


def _checked(name: str, value: Any) -> Any:
    """Returns the value as its column stores it. Raises `ValueError`."""
    if name in _NUMBERS:
        first, last = _NUMBERS[name]
        if type(value) is not int or not first <= value <= last:
            raise ValueError(f"{name} is out of range")
        return value
    if type(value) is not str or (name == "direction" and value not in _COUNTED):
        raise ValueError(f"{name} is not what is counted")
    value = counted_name(value)
    if name == "instance_id" and not 1 <= len(value) <= INSTANCE_ID_CHARACTERS_MAX:
        raise ValueError("no instance has such an id")
    return value


def _beginning(raw: bytes | None) -> str:
    return counted_name((raw or b"")[:DETAIL_CHARACTERS_MAX].decode(errors="replace"))


def batch_of(partition: int, offsets: Sequence[int], raws: Sequence[bytes | None]) -> pa.RecordBatch:
    """Returns rows of `schema.EVENT` equal to those of `row_of`. Records as brokers write them are parsed
    column-wise.
    """
    short = [raw if raw is not None and len(raw) <= _PARSED_BYTES_MAX else None for raw in raws]
    is_as_written = pc.match_substring_regex(pa.array(short, pa.binary()), _AS_WRITTEN).fill_null(False)
    count = is_as_written.true_count
    if count == len(raws):
        return _parsed(partition, pa.array(offsets, pa.int64()), raws)
    by_place = list(zip(offsets, raws, is_as_written.to_pylist(), strict=True))
    odd = as_batch([row_of(partition, offset, raw) for offset, raw, is_written in by_place if not is_written])
    if not count:
        return odd
    written = [(offset, raw) for offset, raw, is_written in by_place if is_written]
    parsed = _parsed(partition, pa.array([offset for offset, _ in written], pa.int64()), [raw for _, raw in written])
    both = pa.Table.from_batches([parsed, odd]).combine_chunks()
    in_order = both.take(pc.sort_indices(both, sort_keys=[("offset", "ascending")])).combine_chunks()
    return in_order.to_batches()[0]


def _parsed(partition: int, offsets: pa.Array, raws: Sequence[Any]) -> pa.RecordBatch:
    """Parses records that all match `_AS_WRITTEN` as CSV, after removing their brackets and escapes."""
    lines = b"\n".join(raws)[len(_HEAD) : -1].replace(b"]\n" + _HEAD, b"\n")
    has_escapes = b"\\" in lines
    if has_escapes:
        # The order matters: remaining backslashes begin an escape, and no quotation mark is within a name.
        lines = lines.replace(b"\\\\", rb"\u005c").replace(b'\\"', rb"\u0022")
    table = pacsv.read_csv(
        pa.BufferReader(lines),
        read_options=pacsv.ReadOptions(use_threads=False, column_names=list(FIELD_NAMES), block_size=_BLOCK_BYTES),
        parse_options=pacsv.ParseOptions(double_quote=False, escape_char=False, ignore_empty_lines=False),
        convert_options=pacsv.ConvertOptions(
            column_types={name: ARROW_SCHEMA.field(name).type for name in FIELD_NAMES},
            strings_can_be_null=False, null_values=[], check_utf8=False,
        ),
    ).combine_chunks()  # fmt: skip
    names = {name: _names(table.column(name), has_escapes=has_escapes) for name in _NAMES}
    columns = [names[name] if name in names else table.column(name).combine_chunks() for name in FIELD_NAMES]
    place = pa.repeat(pa.scalar(partition, pa.int32()), len(raws))
    arrays = [place, offsets, *columns, *[pa.nulls(len(raws), pa.string())] * 2]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _names(column: pa.ChunkedArray, *, has_escapes: bool) -> pa.Array:
    """Returns names as they are counted. Each distinct name with an escape or excessive length is processed once."""
    array = column.combine_chunks()
    if not has_escapes and (pc.max(pc.binary_length(array)).as_py() or 0) <= NAME_CHARACTERS_MAX:
        return array
    encoded = array.dictionary_encode()
    names = [counted_name(json.loads(f'"{name}"')) for name in encoded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(encoded.indices)


def as_batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = [
        pa.array(column, type=field.type) for column, field in zip(zip(*rows, strict=True), ARROW_SCHEMA, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)
