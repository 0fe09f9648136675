"""Validation of the records of one range of the usage topic: records to count, and problems of the others. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from billing.lake.counters import array_of, is_run_start
from billing.pipeline.differences import REPORTS, well_formed
from billing.pipeline.doubts import NO_BROKER, ClockBounds, Incarnation, Incarnations, Problem, with_bounded_clock
from billing.pipeline.schema import CLOCK, EPOCH_REUSED
from brokers.contract.usage import OF_INCARNATION

_DOUBTFUL: Final = ("problem", "partition", *OF_INCARNATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """Result of validating a range.

    `records` is the number of records, `values` the number of values of counters in them, and `stop` the offset after
    them. `left_out` is the number of values that are not counted; a record that cannot be read is one. `reports` are
    the counted ones, with the columns of `REPORTS`.
    """

    records: int
    values: int
    stop: int
    left_out: int
    problems: list[Problem]
    incarnations: list[Incarnation]
    reports: pa.Table


def check(batches: Iterable[pa.RecordBatch], start: int, known: Iterable[Incarnation], bounds: ClockBounds) -> Checked:
    """Validates rows of `schema.EVENT` in append order from offset `start` on."""
    incarnations = Incarnations(known)
    records, values, stop = 0, 0, start
    good, doubtful = [REPORTS.empty_table()], []
    for batch in batches:
        judged = pa.Table.from_batches([incarnations.refuse_reused(with_bounded_clock(batch, bounds))])
        # A batch has all rows of a record, in the order of records.
        records += is_run_start(array_of(judged, "offset")).true_count
        values += judged.num_rows
        stop = max(stop, pc.max(judged.column("offset")).as_py() + 1)
        if judged.column("problem").null_count == judged.num_rows:
            good.append(judged.select(REPORTS.names))
            continue
        good.append(well_formed(judged).select(REPORTS.names))
        doubtful.append(judged.filter(pc.is_valid(judged.column("problem"))))
    reports = pa.concat_tables(good)
    problems, refused = _problems(pa.concat_tables(doubtful).combine_chunks()) if doubtful else ([], set())
    return Checked(
        records=records,
        values=values,
        stop=stop,
        left_out=sum(problem.records for problem in problems if problem.kind != CLOCK),
        problems=problems,
        incarnations=[*_latest(reports), *(Incarnation(*process, 0, 0, True) for process in sorted(refused))],
        reports=reports,
    )


def _latest(reports: pa.Table) -> list[Incarnation]:
    """Returns the reporting processes, each with its highest sequence and its latest time."""
    latest = reports.group_by(list(OF_INCARNATION), use_threads=False).aggregate(
        [("sequence", "max"), ("at_ms", "max")]
    )
    names = (*OF_INCARNATION, "sequence_max", "at_ms_max")
    return [Incarnation(*(row[name] for name in names)) for row in latest.to_pylist()]


def _problems(doubtful: pa.Table) -> tuple[list[Problem], set[tuple[int, int]]]:
    """Returns the problems of a range's records, and the (broker id, broker epoch) pairs that are refused."""
    doubtful = doubtful.append_column("row", pa.array(range(doubtful.num_rows), pa.int64()))
    groups = doubtful.group_by(list(_DOUBTFUL), use_threads=False).aggregate([("row", "max"), ("row", "count")])
    last = doubtful.take(array_of(groups, "row_max"))
    offsets, details = last.column("offset").to_pylist(), last.column("detail").to_pylist()
    rows = groups.to_pylist()
    problems = [
        Problem(
            kind=row["problem"], partition=row["partition"], records=row["row_count"],
            broker_id=NO_BROKER if row["broker_id"] is None else row["broker_id"], last_offset=offset,
            detail=detail or "",
        )
        for row, offset, detail in zip(rows, offsets, details, strict=True)
    ]  # fmt: skip
    refused = {(row["broker_id"], row["broker_epoch"]) for row in rows if row["problem"] == EPOCH_REUSED}
    return problems, refused
