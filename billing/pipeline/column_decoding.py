"""Decoding of usage records of version 2 to Arrow rows: one for each counter, equal to a record of version 1. Pure.

All records of a batch are decoded at once, without a Python object for each counter. If one of them has an invalid
value, it is decoded row by row, so that only the counters with invalid values are left out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from billing.pipeline.fields import (
    ARROW_SCHEMA,
    COUNT_MAX,
    INSTANCE_ID_CHARACTERS_MAX,
    as_batch,
    checked,
    row_with_problem,
)
from billing.pipeline.schema import MALFORMED
from brokers.contract.usage import COUNTED, COUNTED_THINGS, NAME_CHARACTERS_MAX, CounterValue, ReportHead, counted_name
from brokers.contract.usage_columns import NAMED, ReportColumns, parse, values_of

assert sys.byteorder == "little", "columns of records are used as they are"
_COUNTED_THINGS: Final = pa.array(COUNTED_THINGS, pa.string())


def rows_of(partition: int, offset: int, raw: bytes) -> list[tuple[Any, ...]]:
    """Returns the rows of one record, in the order of its counters; a record that cannot be parsed is one row."""
    malformed = row_with_problem(partition, offset, raw, MALFORMED)
    try:
        columns = parse(raw)
        head = list(map(checked, ReportHead._fields, columns.head))
    except (ValueError, RecursionError):
        return [malformed]
    rows = []
    for values in values_of(columns):
        try:
            rows.append((partition, offset, *head, *map(checked, CounterValue._fields, values), None, None))
        except ValueError:
            rows.append(malformed)
    return rows


def batch_of(partition: int, offsets: Sequence[int], raws: Sequence[bytes]) -> pa.RecordBatch:
    """Returns the rows of all records, equal to those of `rows_of`."""
    try:
        return _decoded(partition, offsets, [parse(raw) for raw in raws])
    except (ValueError, TypeError, RecursionError):
        if len(raws) == 1:
            return as_batch(rows_of(partition, offsets[0], raws[0]))
    parts = [batch_of(partition, [offset], [raw]) for offset, raw in zip(offsets, raws, strict=True)]
    return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _decoded(partition: int, offsets: Sequence[int], records: Sequence[ReportColumns]) -> pa.RecordBatch:
    """Returns the rows of parsed records. Raises `ValueError` or `TypeError` for an invalid value."""
    ends = pa.array(accumulate(record.counters for record in records), pa.int32())
    total = ends[-1].as_py()

    def repeated(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
        """Returns the value of each record for each of its counters."""
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, type_)))

    heads = [[checked(name, value) for name, value in zip(ReportHead._fields, r.head, strict=True)] for r in records]
    names = _names([record.names for record in records])
    sizes = [len(record.names) for record in records]
    first_name_index, name_count = repeated([0, *accumulate(sizes[:-1])], pa.int32()), repeated(sizes, pa.int32())
    name_indexes = {
        name: _name_indexes(records, column, total, first_name_index, name_count) for column, name in enumerate(NAMED)
    }  # fmt: skip
    _require(pc.is_in(names, _COUNTED_THINGS).take(name_indexes["direction"]))
    length = pc.utf8_length(names)
    is_id = pc.and_(pc.greater(length, 0), pc.less_equal(length, INSTANCE_ID_CHARACTERS_MAX))
    _require(is_id.take(name_indexes["instance_id"]))
    counts = [_counts(records, len(NAMED) + number, total) for number in range(len(COUNTED))]
    arrays = [
        pa.repeat(pa.scalar(partition, pa.int32()), total),
        repeated(offsets, pa.int64()),
        *(
            repeated(values, ARROW_SCHEMA.field(name).type)
            for name, values in zip(ReportHead._fields, zip(*heads, strict=True), strict=True)
        ),
        *(names.take(indexes) for indexes in name_indexes.values()),
        *counts,
        *[pa.nulls(total, pa.string())] * 2,
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _names(lists: Sequence[Sequence[Any]]) -> pa.Array:
    """Returns the names of all records as `counted_name` stores them. Raises `ValueError` if a name is null."""
    names = pa.array(list(chain.from_iterable(lists)), pa.string())
    if names.null_count:
        raise ValueError("a name is null")
    longest = pc.max(pc.utf8_length(names)).as_py() or 0
    if longest > NAME_CHARACTERS_MAX or pc.any(pc.match_substring(names, "\x00")).as_py():
        names = pa.array([counted_name(name) for name in names.to_pylist()], pa.string())
    return names


def _name_indexes(
    records: Sequence[ReportColumns], column: int, total: int, first_name_index: pa.Array, name_count: pa.Array
) -> pa.Array:
    """Returns the indexes of a column's names in the list of the names of all records."""
    raw = pa.py_buffer(b"".join([record.columns[column] for record in records]))
    indexes = pa.Array.from_buffers(pa.uint16(), total, [None, raw]).cast(pa.int32())
    _require(pc.less(indexes, name_count))
    return pc.add(indexes, first_name_index)


def _counts(records: Sequence[ReportColumns], column: int, total: int) -> pa.Array:
    raw = pa.py_buffer(b"".join([record.columns[column] for record in records]))
    counts = pa.Array.from_buffers(pa.int64(), total, [None, raw])
    least, most = pc.min_max(counts).as_py().values()
    if least < 0 or most > COUNT_MAX:
        raise ValueError("a count is out of range")
    return counts


def _require(is_valid: pa.Array) -> None:
    if not pc.all(is_valid).as_py():
        raise ValueError("a name is invalid")
