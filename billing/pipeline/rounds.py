"""Reading and aggregation of ranges of a usage topic as input of one commit. Small rounds run here, large ones in
Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from billing.pipeline import differences, naming
from billing.pipeline.checking import Checked, check
from billing.pipeline.doubts import ClockBounds, Incarnation, Problem

if TYPE_CHECKING:
    from billing.lake.files import WrittenLakeFile

# Looks up counters by key, like `sink.stored_counters`.
StoredCounters = Callable[[pa.Table], pa.Table]


class UsageLost(Exception):
    """Events between the stored offset and the brokers' logs are lost; an operator must intervene."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRange:
    """Records `[start, stop)` of one partition of the usage topic, and the bounds of their times."""

    partition: int
    start: int
    stop: int
    bounds: ClockBounds


# Returns the records of a range as rows of `schema.EVENT`, from its start on, like `UsageConsumer.read`.
ReadRecords = Callable[[PlannedRange], Iterable[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Aggregated ranges as input of `sink.commit`.

    `values` is the number of counter values in the `records`, and `left_out` the number of those that are not counted;
    `problems` gives the reasons. `reports` are to be written to the lake, `written_files` are there already.
    """

    ranges: dict[int, tuple[int, int]]
    records: int
    values: int
    left_out: int
    problems: list[Problem]
    incarnations: list[Incarnation]
    minutes: pa.Table
    counters: pa.Table
    reports: pa.Table
    written_files: list[WrittenLakeFile] = field(default_factory=list)


def aggregate_in_process(
    read: ReadRecords,
    planned: Sequence[PlannedRange],
    known: Sequence[Incarnation],
    stored: StoredCounters,
) -> Round:
    """Reads and aggregates the ranges; nothing is written.

    Raises:
        UsageLost: records within the read range are missing.
    """
    checked = {range_.partition: check(read(range_), range_.start, known, range_.bounds) for range_ in planned}
    require_all_read(planned, checked)
    reports = differences.distinct(pa.concat_tables([result.reports for result in checked.values()]))
    rows = differences.increments(reports, stored(differences.keys(reports)))
    return build_round(
        planned, checked, differences.minutes(rows), differences.last_counters(rows), rows.drop_columns(["counter"])
    )


def require_all_read(planned: Sequence[PlannedRange], checked: Mapping[int, Checked]) -> None:
    """Checks that the ranges have no missing records. Raises `UsageLost`."""
    for range_ in planned:
        result = checked[range_.partition]
        if not result.records or result.records != result.stop - range_.start:
            raise UsageLost(
                f"read {result.records} of the {result.stop - range_.start} usage records of partition "
                f"{range_.partition} from {range_.start} on"
            )


def build_round(
    planned: Sequence[PlannedRange],
    checked: Mapping[int, Checked],
    minutes: pa.Table,
    counters: pa.Table,
    reports: pa.Table,
) -> Round:
    """Builds the round from its parts."""
    return Round(
        ranges={range_.partition: (range_.start, checked[range_.partition].stop) for range_ in planned},
        records=sum(result.records for result in checked.values()),
        values=sum(result.values for result in checked.values()),
        left_out=sum(result.left_out for result in checked.values()),
        problems=[problem for result in checked.values() for problem in result.problems],
        incarnations=[incarnation for result in checked.values() for incarnation in result.incarnations],
        minutes=naming.with_bounded_names(minutes),
        counters=counters,
        reports=reports,
    )
