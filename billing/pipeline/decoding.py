"""Usage records as Arrow rows, validated field by field, so that every row fits its tables. Pure.

A record of version 1 is one row, one of version 2 a row for each of its counters (`column_decoding`). An invalid record
keeps its row, with a `problem` and the beginning of its value as `detail`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as pacsv

from billing.pipeline import column_decoding
from billing.pipeline.fields import (
    ARROW_SCHEMA,
    INSTANCE_ID_CHARACTERS_MAX,
    as_batch,
    checked,
    row_with_problem,
)
from billing.pipeline.schema import MALFORMED, NEWER_VERSION
from brokers.contract import usage_columns
from brokers.contract.usage import COUNTED_THINGS, FIELD_NAMES, NAME_CHARACTERS_MAX, VERSION, counted_name


def _number(digits_max: int) -> str:
    return rf"(?:0|[1-9][0-9]{{0,{digits_max - 1}}})"


# Patterns of records as brokers write them: JSON in ASCII without whitespace, with numbers within `fields.NUMBERS`. All
# other records are parsed one by one.
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
        if type(version) is int and version > usage_columns.VERSION:
            problem = NEWER_VERSION
        elif type(version) is int and version == VERSION and len(values) == len(FIELD_NAMES):
            return (partition, offset, *map(checked, FIELD_NAMES, values), None, None)
    except (ValueError, TypeError, RecursionError):
        pass
    return row_with_problem(partition, offset, raw, problem)


def rows_of(partition: int, offset: int, raw: bytes | None) -> list[tuple[Any, ...]]:
    """Returns the rows of one record of any version."""
    if raw is not None and raw.startswith(usage_columns.BEGINNING):
        return column_decoding.rows_of(partition, offset, raw)
    return [row_of(partition, offset, raw)]


def batch_of(partition: int, offsets: Sequence[int], raws: Sequence[bytes | None]) -> pa.RecordBatch:
    """Returns rows of `schema.EVENT` equal to those of `rows_of`. Records as brokers write them are parsed
    column-wise.
    """
    indexes: tuple[list[int], list[int]] = [], []
    for index, raw in enumerate(raws):
        indexes[raw is not None and raw.startswith(usage_columns.BEGINNING)].append(index)
    events, columns = indexes
    if not columns:
        return _of_events(partition, offsets, raws)
    of_columns = column_decoding.batch_of(
        partition, [offsets[index] for index in columns], [raws[index] or b"" for index in columns]
    )
    if not events:
        return of_columns
    of_events = _of_events(partition, [offsets[index] for index in events], [raws[index] for index in events])
    return _in_order(of_events, of_columns)


def _of_events(partition: int, offsets: Sequence[int], raws: Sequence[bytes | None]) -> pa.RecordBatch:
    """Returns the rows of records of version 1, and of invalid ones."""
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
    return _in_order(parsed, odd)


def _in_order(*parts: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rows of all parts by offset; rows of one record keep their order."""
    rows = pa.Table.from_batches(parts).combine_chunks()
    return rows.take(pc.sort_indices(rows, sort_keys=[("offset", "ascending")])).combine_chunks().to_batches()[0]


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
    partitions = pa.repeat(pa.scalar(partition, pa.int32()), len(raws))
    arrays = [partitions, offsets, *columns, *[pa.nulls(len(raws), pa.string())] * 2]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _names(column: pa.ChunkedArray, *, has_escapes: bool) -> pa.Array:
    """Returns names as they are counted. Each distinct name with an escape or excessive length is processed once."""
    array = column.combine_chunks()
    if not has_escapes and (pc.max(pc.binary_length(array)).as_py() or 0) <= NAME_CHARACTERS_MAX:
        return array
    encoded = array.dictionary_encode()
    names = [counted_name(json.loads(f'"{name}"')) for name in encoded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(encoded.indices)
