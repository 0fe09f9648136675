"""Counters followed from one file of the lake to the next, on Arrow's columns: whether each grew by what was added.
Pure; a row costs less than a microsecond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokers.contract.usage import COUNTER_KEY

if TYPE_CHECKING:
    import pyarrow as pa

# What is known of a report, and is needed to see what the next one added.
KEPT = (*COUNTER_KEY, "sequence", "bytes")
BEFORE_ALL = -(2**63)


class CounterBroken(Exception):
    """What was added to a counter is not what it grew by."""

    def __init__(self, grown_bytes: int, added_bytes: int) -> None:
        super().__init__(f"a counter grew by {grown_bytes} bytes and {added_bytes} were added")


class Counters:
    """The last report of each counter so far: of its highest sequence the one with the most bytes."""

    def __init__(self) -> None:
        self._last: pa.Table | None = None

    def follow(self, reports: pa.Table) -> None:
        """Follows the reports of one file, with the columns of `files.COLUMNS`, in any order. Under one sequence a
        counter may be reported again with more bytes. A report that is not newer than the last of its counter is of a
        file that was merged while another one was written: the one before it is not known any more, and it is passed
        over.

        Raises:
            CounterBroken: a report adds other bytes than lie between it and the one before it.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if not reports.num_rows:
            return
        known = reports.select(KEPT)
        old = 0
        if self._last is not None:
            old = self._last.num_rows
            known = pa.concat_tables([self._last, known], promote_options="permissive")
        added = pa.concat_arrays([pa.nulls(old, pa.int64()), array_of(reports, "added_bytes").cast(pa.int64())])
        rows = _in_order(known, added, old)
        rows = rows.filter(_is_looked_at(rows))
        is_first = _is_first(rows)
        grown = pc.max_element_wise(pc.pairwise_diff(array_of(rows, "bytes")), 0)
        follows = pc.and_(array_of(rows, "is_new"), pc.invert(is_first))
        broken = rows.append_column("grown", grown).filter(
            pc.and_(follows, pc.not_equal(grown, array_of(rows, "added_bytes")))
        )
        if broken.num_rows:
            raise CounterBroken(broken["grown"][0].as_py(), broken["added_bytes"][0].as_py())
        is_last = pa.concat_arrays([is_first.slice(1), pa.array([True])])
        self._last = known.take(rows["row"].filter(is_last)).combine_chunks()


def _in_order(known: pa.Table, added: pa.Array, old: int) -> pa.Table:
    """Numbers alone, a counter's rows together: first what was known of it (`old` rows), then by sequence."""
    import pyarrow as pa

    size = known.num_rows
    rows = pa.table(
        {
            "counter": numbered(known),
            "is_new": pa.concat_arrays([pa.repeat(False, old), pa.repeat(True, size - old)]),
            "sequence": array_of(known, "sequence"),
            "bytes": array_of(known, "bytes"),
            "added_bytes": added,
            "row": pa.array(range(size), pa.int64()),
        }
    )
    order = ("counter", "is_new", "sequence", "bytes")
    return rows.sort_by([(name, "ascending") for name in order]).combine_chunks()


def numbered(known: pa.Table) -> pa.Array:
    """A number from 0 for each counter, in the order in which counters appear. Numbers are made dense after each
    column, so that none outgrows 64 bits.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pa.repeat(pa.scalar(0, pa.int64()), known.num_rows)
    for name in COUNTER_KEY:
        column = array_of(known, name).dictionary_encode()
        wider = pc.add(pc.multiply(numbers, len(column.dictionary)), column.indices.cast(pa.int64()))
        numbers = wider.dictionary_encode().indices.cast(pa.int64())
    return numbers


def _is_looked_at(rows: pa.Table) -> pa.Array:
    """True for what was known, and for each report that is newer than it, once."""
    import pyarrow.compute as pc

    is_first, is_new = _is_first(rows), array_of(rows, "is_new")
    sequence, count = array_of(rows, "sequence"), array_of(rows, "bytes")
    known_sequence, known_count = _known(is_first, is_new, sequence), _known(is_first, is_new, count)
    is_newer = pc.or_(
        pc.greater(sequence, known_sequence),
        pc.and_(pc.equal(sequence, known_sequence), pc.greater(count, known_count)),
    )
    is_same = pc.and_(pc.equal(pc.pairwise_diff(sequence), 0), pc.equal(pc.pairwise_diff(count), 0))
    is_again = pc.and_(pc.invert(is_first), pc.fill_null(is_same, False))
    return pc.or_(pc.invert(is_new), pc.and_(is_newer, pc.invert(is_again)))


def _known(is_first: pa.Array, is_new: pa.Array, values: pa.Array) -> pa.Array:
    """In the rows of each counter, the value that was known of it before."""
    import pyarrow as pa
    import pyarrow.compute as pc

    of_unknown = pc.if_else(is_first, pa.scalar(BEFORE_ALL, pa.int64()), pa.scalar(None, pa.int64()))
    return pc.fill_null_forward(pc.if_else(is_new, of_unknown, values))


def _is_first(rows: pa.Table) -> pa.Array:
    return is_first_of(array_of(rows, "counter"))


def is_first_of(numbers: pa.Array) -> pa.Array:
    """True where a number differs from the one before it, and for the first of all."""
    import pyarrow.compute as pc

    return pc.fill_null(pc.not_equal(pc.pairwise_diff(numbers), 0), True)


def array_of(table: pa.Table, name: str) -> pa.Array:
    """A column in one piece."""
    return table.column(name).combine_chunks()
