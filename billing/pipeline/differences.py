"""Conversion of cumulative counters to bytes per minute, on Arrow columns. Pure; without a Python object per record.

Every step is idempotent. Repeated reports have no effect, and the next report of a counter makes up for missing ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from billing.lake.counters import array_of, counter_numbers, is_run_start
from billing.lake.files import ADDED_COLUMNS, COLUMNS
from billing.pipeline import schema
from billing.pipeline.schema import CLOCK, MINUTE_KEY, MINUTE_NAMES
from brokers.contract.usage import COUNTED, COUNTER_KEY

MS_PER_MINUTE: Final = 60_000
# Maximum of one minute, so that sums of reported values fit into 64 bits.
MINUTE_MAX: Final = 2**62
# A float sum above this number is above `MINUTE_MAX`; below it, the integer sum is exact, because it fits into 64 bits.
_ABOVE_MINUTE_MAX: Final = 6e18
_NUMBER_MAX: Final = 2**62

REPORTS: Final = schema.arrow(schema.columns((*COUNTER_KEY, "sequence", "at_ms", *COUNTED)))
LAST: Final = pa.schema([pa.field(name, pa.int64()) for name in ("sequence", *COUNTED)])


def well_formed(events: pa.Table) -> pa.Table:
    """Returns the rows that are counted: those without a problem, and those whose time was corrected (`CLOCK`)."""
    problem = events.column("problem")
    return events.filter(pc.or_kleene(pc.is_null(problem), pc.equal(problem, CLOCK)))


def distinct(events: pa.Table) -> pa.Table:
    """Returns one row for each counter and sequence, sorted by both; repeated reports are replaced by the largest.

    The columns are those of `REPORTS`, and `counter`: a number from 0 for each counter. Names are dictionary-encoded,
    so that sorting rows does not copy them.
    """
    reports = pa.table({name: _encoded(events.column(name)) for name in REPORTS.names})
    counter = counter_numbers(reports)
    reports = reports.append_column("counter", counter)
    reports = reports.take(_order(counter, array_of(reports, "sequence"))).combine_chunks()
    is_first = pc.or_(is_run_start(array_of(reports, "counter")), is_run_start(array_of(reports, "sequence")))
    if is_first.true_count == reports.num_rows:
        return reports
    largest = [(name, "max") for name in ("at_ms", *COUNTED)]
    values = reports.select(["counter", "sequence", "at_ms", *COUNTED])
    sums = values.group_by(["counter", "sequence"], use_threads=False).aggregate(largest)
    sums = sums.sort_by([("counter", "ascending"), ("sequence", "ascending")])
    reports = reports.filter(is_first)
    for name, _ in largest:
        index = reports.schema.get_field_index(name)
        reports = reports.set_column(index, reports.field(index), sums.column(f"{name}_max"))
    return reports.combine_chunks()


def _encoded(column: pa.ChunkedArray) -> pa.Array:
    return (column.dictionary_encode() if pa.types.is_string(column.type) else column).combine_chunks()


def plain(table: pa.Table) -> pa.Table:
    """Returns the table with names as strings."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(field.type.value_type))
    return table


def _order(counter: pa.Array, sequence: pa.Array) -> pa.Array:
    """Returns the order of rows by counter and sequence, sorted as one number where that fits into 64 bits."""
    if not len(counter):
        return pa.array([], pa.int64())
    first, last = pc.min_max(sequence).as_py().values()
    span = last - first + 1
    if (pc.max(counter).as_py() + 1) * span <= _NUMBER_MAX:
        return pc.array_sort_indices(pc.add(pc.multiply(counter, span), pc.subtract(sequence, first)))
    both = pa.table({"counter": counter, "sequence": sequence})
    return pc.sort_indices(both, sort_keys=[("counter", "ascending"), ("sequence", "ascending")])


def keys(reports: pa.Table) -> pa.Table:
    """Returns the counters of `distinct` reports: row n has the key of counter n."""
    is_first = is_run_start(array_of(reports, "counter"))
    return plain(reports.select(list(COUNTER_KEY)).filter(is_first)).combine_chunks()


def none_stored(counters: int) -> pa.Table:
    """Returns rows of `LAST` for counters of which nothing is stored: nulls."""
    return pa.Table.from_arrays([pa.nulls(counters, field.type) for field in LAST], schema=LAST)


def increments(reports: pa.Table, stored: pa.Table) -> pa.Table:
    """Returns the increment of each report over its predecessor, which for the first one is the stored counter or zero.

    The columns are those of `files.COLUMNS`, and `counter`. `stored` has the columns of `LAST`; row n belongs to
    counter n. Reports below the stored sequence are ignored. A repeated report with the stored sequence counts as far
    as it is larger: it was appended in part and repeated later. A counter never decreases within one broker
    incarnation; if it did, the increment would be zero.
    """
    counter = array_of(reports, "counter")
    stored_values = {name: array_of(stored, name).take(counter) for name in LAST.names}
    sequence = array_of(reports, "sequence")
    is_larger = pc.or_(*(pc.greater(array_of(reports, name), stored_values[name]) for name in COUNTED))
    is_repeated = pc.and_(pc.equal(sequence, stored_values["sequence"]), is_larger)
    is_unseen = pc.fill_null(pc.or_(pc.greater(sequence, stored_values["sequence"]), is_repeated), True)
    rows = reports if is_unseen.true_count == reports.num_rows else reports.filter(is_unseen).combine_chunks()
    is_first = is_run_start(array_of(rows, "counter"))
    for name, added in zip(COUNTED, ADDED_COLUMNS, strict=True):
        first_stored = pc.fill_null(stored_values[name].filter(is_unseen), 0)
        values = array_of(rows, name)
        grown = pc.if_else(is_first, pc.subtract(values, first_stored), pc.pairwise_diff(values))
        rows = rows.append_column(added, pc.max_element_wise(grown, 0))
    return rows.select([*COLUMNS, "counter"])


def minutes(rows: pa.Table) -> pa.Table:
    """Returns the increments summed per UTC minute, with the columns of `MINUTE_NAMES`.

    A report made exactly at the start of a minute belongs to the minute that just ended. Rows are summed by counter
    before names are compared.
    """
    minute = pc.multiply(pc.divide(pc.subtract(rows.column("at_ms"), 1), MS_PER_MINUTE), MS_PER_MINUTE)
    increments_ = {name: rows.column(added) for name, added in zip(COUNTED, ADDED_COLUMNS, strict=True)}
    rows_by_counter = pa.table({"counter": rows.column("counter"), "minute_ms": minute, **increments_})
    sums = _summed(rows_by_counter, ("counter", "minute_ms"))
    first = rows.filter(is_run_start(array_of(rows, "counter")))
    indexes = pc.index_in(array_of(sums, "counter"), value_set=array_of(first, "counter"))
    names = [name for name in MINUTE_KEY if name != "minute_ms"]
    rows_by_minute = plain(first.select(names)).take(indexes)
    for name in ("minute_ms", *COUNTED):
        rows_by_minute = rows_by_minute.append_column(name, sums.column(name))
    return summed(rows_by_minute)


def summed(of_minutes: pa.Table) -> pa.Table:
    """Sums rows of the same minute and names, and omits those without any count."""
    sums = _summed(of_minutes, MINUTE_KEY)
    has_count = pc.or_(*(pc.greater(sums.column(name), 0) for name in COUNTED))
    return sums.filter(has_count).select(list(MINUTE_NAMES)).cast(pa.schema(schema.arrow(schema.columns(MINUTE_NAMES))))


def _summed(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Sums the counts of rows with the same key, up to `MINUTE_MAX`."""
    floats = {name: rows.column(name).cast(pa.float64(), safe=False) for name in COUNTED}
    if all((pc.sum(column).as_py() or 0.0) <= _ABOVE_MINUTE_MAX for column in floats.values()):
        sums = rows.group_by(list(key), use_threads=False).aggregate([(name, "sum") for name in COUNTED])
        sums = sums.rename_columns([name.removesuffix("_sum") for name in sums.column_names])
    else:
        for name, column in floats.items():
            rows = rows.append_column(f"{name}_about", column)
        aggregations = [(name, "sum") for count in COUNTED for name in (count, f"{count}_about")]
        sums = rows.group_by(list(key), use_threads=False).aggregate(aggregations)
        for name in COUNTED:
            is_more = pc.greater(sums.column(f"{name}_about_sum"), _ABOVE_MINUTE_MAX)
            sums = sums.append_column(name, pc.if_else(is_more, MINUTE_MAX, sums.column(f"{name}_sum")))
    for name in COUNTED:
        capped = pc.min_element_wise(sums.column(name), MINUTE_MAX)
        sums = sums.set_column(sums.schema.get_field_index(name), name, capped)
    return sums


def last_counters(rows: pa.Table) -> pa.Table:
    """Returns the highest report of each counter, with the columns of `schema.COUNTER`, to be stored for
    the next run.
    """
    is_first = is_run_start(array_of(rows, "counter"))
    is_last = pa.concat_arrays([is_first.slice(1), pa.array([True])]).slice(0, rows.num_rows)
    return plain(rows.select(list(schema.COUNTER_NAMES)).filter(is_last)).combine_chunks()
