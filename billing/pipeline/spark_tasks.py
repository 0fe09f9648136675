"""Reading of usage reports in a large round by Spark, one task for each range of a partition.

Tasks write the reports to the lake and return sums to the driver. A task does not know the stored counters, so the
driver computes the increment of the first report of each counter. The other increments are computed in the task.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from billing.lake import files
from billing.lake.address import Lake
from billing.lake.counters import array_of, is_run_start
from billing.pipeline import differences
from billing.pipeline.checking import Checked, check
from billing.pipeline.cluster import UsageSource
from billing.pipeline.consuming import UsageConsumer
from billing.pipeline.doubts import Incarnation
from billing.pipeline.rounds import PlannedRange, Round, StoredCounters, build_round, require_all_read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Name of the part of a range's reports that its task writes to the lake.
LATER_REPORTS = "later"
# Prefix of the environment variables with the keys of the lake's bucket, which Spark's workers do not have.
_LAKE_PREFIX = "AWS_"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTask:
    """Arguments of the task that reads, validates and stores one range."""

    cluster: UsageSource
    planned: PlannedRange
    known: Sequence[Incarnation]
    bytes_max: int
    lake: Lake | None
    lake_keys: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeResult:
    """Sums of one range.

    `first` are the first reports of its counters; `minutes` are the increments of the others, and `written_files` the
    files with them. `counters` are the last reports.
    """

    checked: Checked
    first: pa.Table
    minutes: pa.Table
    counters: pa.Table
    written_files: list[files.WrittenLakeFile] = field(default_factory=list)


def run(task: RangeTask) -> RangeResult:
    """Reads, validates, aggregates and stores one range; runs on Spark workers."""
    planned = task.planned
    with UsageConsumer(task.cluster.bootstrap, task.cluster.login) as consumer:
        batches = consumer.read(planned.partition, planned.start, planned.stop, task.bytes_max)
        checked = check(batches, planned.start, task.known, planned.bounds)
    result, later = aggregate(checked)
    if task.lake is None or not later.num_rows:
        return result
    ranges = {planned.partition: (planned.start, checked.stop)}
    with _environment(task.lake_keys):
        written_files = files.write(task.lake, task.cluster.cluster_id, ranges, later, part=LATER_REPORTS)
    return replace(result, written_files=written_files)


def aggregate(checked: Checked) -> tuple[RangeResult, pa.Table]:
    """Returns the result of a range, and the reports after the first one of each counter, for the lake. Pure."""
    reports = differences.distinct(checked.reports)
    rows = differences.increments(reports, differences.none_stored(differences.keys(reports).num_rows))
    is_first = is_run_start(array_of(rows, "counter"))
    later = rows.filter(pc.invert(is_first))
    result = RangeResult(
        checked=replace(checked, reports=checked.reports.slice(0, 0)),
        first=differences.plain(reports.filter(is_first).select(differences.REPORTS.names)),
        minutes=differences.minutes(later),
        counters=differences.last_counters(rows),
    )
    return result, later.drop_columns(["counter"])


def run_on_executors(
    spark: SparkSession,
    cluster: UsageSource,
    planned: Sequence[PlannedRange],
    known: Sequence[Incarnation],
    stored: StoredCounters,
    bytes_max: int,
    lake: Lake | None,
) -> Round | None:
    """Reads and aggregates the ranges, each up to `bytes_max`.

    Returns None if reports of one counter are in two ranges, or were read before: then one process must aggregate all
    of them.

    Raises:
        UsageLost: records within the read range are missing.
    """
    lake_keys = {}
    if lake is not None and lake.files.type_name != "local":
        lake_keys = {name: value for name, value in os.environ.items() if name.startswith(_LAKE_PREFIX)}
    tasks = [
        RangeTask(
            cluster=cluster, planned=range_, known=known, bytes_max=bytes_max, lake=lake, lake_keys=lake_keys
        )
        for range_ in planned
    ]  # fmt: skip
    results: list[RangeResult] = spark.sparkContext.parallelize(tasks, len(tasks)).map(run).collect()
    return combine_results(planned, results, stored)


def combine_results(
    planned: Sequence[PlannedRange], results: Sequence[RangeResult], stored: StoredCounters
) -> Round | None:
    """Combines the results of the ranges in order; returns None or raises `UsageLost` like `run_on_executors`."""
    checked = {range_.partition: result.checked for range_, result in zip(planned, results, strict=True)}
    require_all_read(planned, checked)
    first = differences.distinct(pa.concat_tables([result.first for result in results]))
    keys = differences.keys(first)
    if keys.num_rows < sum(result.first.num_rows for result in results):
        return None
    stored_rows = stored(keys)
    was_read = pc.less_equal(array_of(first, "sequence"), array_of(stored_rows, "sequence"))
    if pc.any(was_read).as_py():
        return None
    rows = differences.increments(first, stored_rows)
    minutes = [differences.minutes(rows), *(result.minutes for result in results)]
    result = build_round(
        planned,
        checked,
        differences.summed(pa.concat_tables(minutes)),
        pa.concat_tables([result.counters for result in results]),
        rows.drop_columns(["counter"]),
    )
    return replace(result, written_files=[file for result_ in results for file in result_.written_files])


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables of this process temporarily.

    A Spark worker runs one task at a time, and the next one may be an archive's, which belongs to a tenant.
    """
    previous_values: dict[str, Any] = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in previous_values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
