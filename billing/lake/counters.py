"""Verification of counters across files of the lake: from report to report, a counter grows by the added bytes.

Pure. It works on Arrow columns; a row takes less than a microsecond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokers.contract.usage import COUNTER_KEY

if TYPE_CHECKING:
    import pyarrow as pa

# Columns of a report that are needed to verify the next increment.
KEPT_COLUMNS = (*COUNTER_KEY, "sequence", "bytes")
NO_VALUE = -(2**63)
NUMBER_MAX = 2**62


class CounterBroken(Exception):
    """The increment of a counter differs from its growth."""

    def __init__(self, grown_bytes: int, added_bytes: int) -> None:
        super().__init__(f"a counter grew by {grown_bytes} bytes and {added_bytes} were added")


class Counters:
    """Last verified report of each counter: the highest sequence and, among equal sequences, the most bytes."""

    def __init__(self) -> None:
        self._last_reports: pa.Table | None = None

    def verify(self, reports: pa.Table) -> None:
        """Verifies the reports of one file, with the columns of `files.COLUMNS`, in any order.

        A counter may be reported again with more bytes under the same sequence. A report that is not newer than the
        last one of its counter belongs to a file that was merged while another one was written; its predecessor is not
        known any more, so it is skipped.

        Raises:
            CounterBroken: an increment differs from the bytes between the report and its predecessor.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if not reports.num_rows:
            return
        known = reports.select(KEPT_COLUMNS)
        known_count = 0
        if self._last_reports is not None:
            known_count = self._last_reports.num_rows
            known = pa.concat_tables([self._last_reports, known], promote_options="permissive")
        added = pa.concat_arrays([pa.nulls(known_count, pa.int64()), array_of(reports, "added_bytes").cast(pa.int64())])
        rows = _sorted_rows(known, added, known_count)
        rows = rows.filter(_is_verified(rows))
        is_first = _is_first(rows)
        grown = pc.max_element_wise(pc.pairwise_diff(array_of(rows, "bytes")), 0)
        has_predecessor = pc.and_(array_of(rows, "is_new"), pc.invert(is_first))
        broken = rows.append_column("grown", grown).filter(
            pc.and_(has_predecessor, pc.not_equal(grown, array_of(rows, "added_bytes")))
        )
        if broken.num_rows:
            raise CounterBroken(broken["grown"][0].as_py(), broken["added_bytes"][0].as_py())
        is_last = pa.concat_arrays([is_first.slice(1), pa.array([True])])
        self._last_reports = known.take(rows["row"].filter(is_last)).combine_chunks()


def _sorted_rows(reports: pa.Table, added: pa.Array, known_count: int) -> pa.Table:
    """Returns the numeric columns sorted by counter: first the `known_count` known rows, then new ones by sequence."""
    import pyarrow as pa

    size = reports.num_rows
    rows = pa.table(
        {
            "counter": counter_numbers(reports),
            "is_new": pa.concat_arrays([pa.repeat(False, known_count), pa.repeat(True, size - known_count)]),
            "sequence": array_of(reports, "sequence"),
            "bytes": array_of(reports, "bytes"),
            "added_bytes": added,
            "row": pa.array(range(size), pa.int64()),
        }
    )
    order = ("counter", "is_new", "sequence", "bytes")
    return rows.sort_by([(name, "ascending") for name in order]).combine_chunks()


def counter_numbers(known: pa.Table) -> pa.Array:
    """Returns a number from 0 for each counter, in order of appearance.

    Numbers are made dense before one could exceed 64 bits.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers, size = pa.repeat(pa.scalar(0, pa.int64()), known.num_rows), 1
    for name in COUNTER_KEY:
        column = array_of(known, name).dictionary_encode()
        values = len(column.dictionary)
        if size * values > NUMBER_MAX:
            numbers, size = _dense(numbers)
        if values > 1:
            numbers = pc.add(pc.multiply(numbers, values), column.indices.cast(pa.int64()))
            size *= values
    return _dense(numbers)[0]


def _dense(numbers: pa.Array) -> tuple[pa.Array, int]:
    """Renumbers distinct values from 0 in order of appearance. Returns the new numbers and their distinct count."""
    import pyarrow as pa

    encoded = numbers.dictionary_encode()
    return encoded.indices.cast(pa.int64()), len(encoded.dictionary)


def _is_verified(rows: pa.Table) -> pa.Array:
    """Returns a mask of the rows to verify: known rows, and the first of equal reports newer than the known row."""
    import pyarrow.compute as pc

    is_first, is_new = _is_first(rows), array_of(rows, "is_new")
    sequence, count = array_of(rows, "sequence"), array_of(rows, "bytes")
    known_sequence, known_count = _known_values(is_first, is_new, sequence), _known_values(is_first, is_new, count)
    is_newer = pc.or_(
        pc.greater(sequence, known_sequence),
        pc.and_(pc.equal(sequence, known_sequence), pc.greater(count, known_count)),
    )
    is_same = pc.and_(pc.equal(pc.pairwise_diff(sequence), 0), pc.equal(pc.pairwise_diff(count), 0))
    is_duplicate = pc.and_(pc.invert(is_first), pc.fill_null(is_same, False))
    return pc.or_(pc.invert(is_new), pc.and_(is_newer, pc.invert(is_duplicate)))


def _known_values(is_first: pa.Array, is_new: pa.Array, values: pa.Array) -> pa.Array:
    """Returns for each row the known value of its counter; `NO_VALUE` for a counter without a known row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    initial = pc.if_else(is_first, pa.scalar(NO_VALUE, pa.int64()), pa.scalar(None, pa.int64()))
    return pc.fill_null_forward(pc.if_else(is_new, initial, values))


def _is_first(rows: pa.Table) -> pa.Array:
    return is_run_start(array_of(rows, "counter"))


def is_run_start(numbers: pa.Array) -> pa.Array:
    """True where a number differs from its predecessor, and for the first row."""
    import pyarrow.compute as pc

    return pc.fill_null(pc.not_equal(pc.pairwise_diff(numbers), 0), True)


def array_of(table: pa.Table, name: str) -> pa.Array:
    """Returns a column as a single chunk."""
    return table.column(name).combine_chunks()
