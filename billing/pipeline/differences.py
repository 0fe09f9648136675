"""Conversion of cumulative counters to bytes per minute, on Arrow columns. Pure; without a Python object per record.

Every step is idempotent, and repeated or missing reports do not change the result beyond what later counters state.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from billing.lake.counters import array_of, is_first_of, numbered
from billing.lake.files import ADDED, COLUMNS
from billing.pipeline import schema
from billing.pipeline.schema import CLOCK, MINUTE_KEY, MINUTE_NAMES
from brokers.contract.usage import COUNTED, COUNTER_KEY

MS_PER_MINUTE: Final = 60_000
# Maximum of one minute, so that sums of reported values fit into 64 bits.
MINUTE_MAX: Final = 2**62
# Between `MINUTE_MAX` and the maximum of 64 bits: integer sums are exact below, float sums detect values above.
_SURELY_MORE: Final = 6e18

REPORTS: Final = schema.arrow(schema.columns((*COUNTER_KEY, "sequence", "at_ms", *COUNTED)))
LAST: Final = pa.schema([pa.field(name, pa.int64()) for name in ("sequence", *COUNTED)])


def well_formed(events: pa.Table) -> pa.Table:
    """Drops records that are invalid or not to be counted. Records of a wrong clock have a corrected time."""
    problem = events.column("problem")
    return events.filter(pc.or_kleene(pc.is_null(problem), pc.equal(problem, CLOCK)))


def distinct(events: pa.Table) -> pa.Table:
    """Returns one row for each counter and sequence, in that order; of repeated reports the largest, which are the
    latest.

    The columns are those of `REPORTS`, and `counter`: a number from 0 for each counter.
    """
    reports = events.select(REPORTS.names).combine_chunks()
    reports = reports.append_column("counter", numbered(reports))
    in_order = [("counter", "ascending"), ("sequence", "ascending")]
    reports = reports.take(pc.sort_indices(reports, sort_keys=in_order)).combine_chunks()
    is_first = pc.or_(is_first_of(array_of(reports, "counter")), is_first_of(array_of(reports, "sequence")))
    if is_first.true_count == reports.num_rows:
        return reports
    largest = [(name, "max") for name in ("at_ms", *COUNTED)]
    sums = reports.group_by(["counter", "sequence"], use_threads=False).aggregate(largest).sort_by(in_order)
    reports = reports.filter(is_first)
    for name, _ in largest:
        place = reports.schema.get_field_index(name)
        reports = reports.set_column(place, reports.field(place), sums.column(f"{name}_max"))
    return reports.combine_chunks()


def keys(reports: pa.Table) -> pa.Table:
    """Returns the counters of `distinct` reports: row n has the key of counter n."""
    is_first = is_first_of(array_of(reports, "counter"))
    return reports.filter(is_first).select(list(COUNTER_KEY)).combine_chunks()


def none_stored(counters: int) -> pa.Table:
    """Returns stored values for counters without any: nulls."""
    return pa.Table.from_arrays([pa.nulls(counters, field.type) for field in LAST], schema=LAST)


def increments(reports: pa.Table, stored: pa.Table) -> pa.Table:
    """Returns the increment of each report over its predecessor, which for the first one is the stored counter or zero.

    The columns are those of `files.COLUMNS`, and `counter`. `stored` has the columns of `LAST`; row n belongs to
    counter n. Reports below the stored sequence are ignored. A repeated report with the stored sequence counts as far
    as it is larger: it was appended in part and repeated later. A counter never decreases within one broker
    incarnation; if it did, the increment would be zero.
    """
    counter = array_of(reports, "counter")
    before = {name: array_of(stored, name).take(counter) for name in LAST.names}
    sequence = array_of(reports, "sequence")
    is_larger = pc.or_(*(pc.greater(array_of(reports, name), before[name]) for name in COUNTED))
    is_said_again = pc.and_(pc.equal(sequence, before["sequence"]), is_larger)
    is_unseen = pc.fill_null(pc.or_(pc.greater(sequence, before["sequence"]), is_said_again), True)
    rows = reports.filter(is_unseen).combine_chunks()
    is_first = is_first_of(array_of(rows, "counter"))
    for name, added in zip(COUNTED, ADDED, strict=True):
        first_before = pc.fill_null(before[name].filter(is_unseen), 0)
        values = array_of(rows, name)
        grown = pc.if_else(is_first, pc.subtract(values, first_before), pc.pairwise_diff(values))
        rows = rows.append_column(added, pc.max_element_wise(grown, 0))
    return rows.select([*COLUMNS, "counter"])


def minutes(rows: pa.Table) -> pa.Table:
    """Returns the increments summed per UTC minute, with the columns of `MINUTE_NAMES`.

    A report made exactly at the start of a minute belongs to the minute that just ended.
    """
    minute = pc.multiply(pc.divide(pc.subtract(rows.column("at_ms"), 1), MS_PER_MINUTE), MS_PER_MINUTE)
    of_minute = rows.select([name for name in MINUTE_KEY if name != "minute_ms"]).append_column("minute_ms", minute)
    for name, added in zip(COUNTED, ADDED, strict=True):
        of_minute = of_minute.append_column(name, rows.column(added))
    return summed(of_minute)


def summed(of_minutes: pa.Table) -> pa.Table:
    """Sums rows of the same minute and names, and omits those without any count."""
    floats = of_minutes
    for name in COUNTED:
        floats = floats.append_column(f"{name}_about", of_minutes.column(name).cast(pa.float64(), safe=False))
    wanted = [(name, "sum") for count in COUNTED for name in (count, f"{count}_about")]
    sums = floats.group_by(list(MINUTE_KEY), use_threads=False).aggregate(wanted)
    for name in COUNTED:
        is_more = pc.greater(sums.column(f"{name}_about_sum"), _SURELY_MORE)
        total = pc.min_element_wise(pc.if_else(is_more, MINUTE_MAX, sums.column(f"{name}_sum")), MINUTE_MAX)
        sums = sums.append_column(name, total)
    counted = pc.or_(*(pc.greater(sums.column(name), 0) for name in COUNTED))
    return sums.filter(counted).select(list(MINUTE_NAMES)).cast(pa.schema(schema.arrow(schema.columns(MINUTE_NAMES))))


def last_counters(rows: pa.Table) -> pa.Table:
    """Returns the highest report of each counter, with the columns of `schema.COUNTER`, to be stored for
    the next run.
    """
    is_first = is_first_of(array_of(rows, "counter"))
    is_last = pa.concat_arrays([is_first.slice(1), pa.array([True])]).slice(0, rows.num_rows)
    return rows.filter(is_last).select(list(schema.COUNTER_NAMES)).combine_chunks()
