"""One run of the usage pipeline for one cluster: plan, read, aggregate, commit. It calls all other modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import structlog

from billing.lake import files
from billing.lake.address import Lake
from billing.pipeline import rounds, sink
from billing.pipeline.cluster import UsageSource
from billing.pipeline.consuming import UsageConsumer
from billing.pipeline.doubts import ClockBounds, Problem
from billing.pipeline.read_ahead import ReadAhead, ReadRange
from billing.pipeline.rounds import PlannedRange, Round, UsageLost
from brokers.contract.usage import USAGE_TOPIC

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import SparkSession

__all__ = ["RunReport", "Runs", "UsageLost", "available_offsets", "lost", "plan", "run", "skip_lost"]

log = structlog.get_logger(__name__)

# Limits of all partitions together: a backlog is processed in runs that fit into memory, regardless of the length of
# names in records.
RECORDS_PER_RUN_MAX = 300_000
BYTES_PER_RUN_MAX = 40_000_000
# A larger backlog is read by Spark. This process finishes a smaller one before the JVM would have started.
SPARK_FROM_RECORDS = 1_000_000

# Points of a run at which a fault test may stop the process, in order.
POINTS = ("planned", "aggregated", "kept", "written", "committed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Result of one run. `is_caught_up` is False if a range was cut at the limits of a run.

    `values` is the number of values of counters in the `records`; those `left_out` are not billed.
    """

    records: int
    values: int
    minute_rows: int
    left_out: int
    is_caught_up: bool


def plan(stored: Mapping[int, int], available: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Returns the ranges `[start, stop)` to read next; `available` is (log start offset, high watermark) by partition.

    Raises:
        UsageLost: a stored offset lies outside the log of its partition (retention overtook the pipeline, or the log
            was truncated), so that continuing would silently bill too little.
    """
    for partition in lost(stored, available):
        low, high = available[partition]
        raise UsageLost(
            f"{USAGE_TOPIC}-{partition}: stored offset {stored[partition]}, but the log holds [{low}, {high})"
        )
    starts = {}
    for partition, (low, high) in sorted(available.items()):
        start = stored.get(partition, low)
        if start < high:
            starts[partition] = start
    share = max(1, RECORDS_PER_RUN_MAX // max(1, len(starts)))
    return {partition: (start, min(available[partition][1], start + share)) for partition, start in starts.items()}


def lost(stored: Mapping[int, int], available: Mapping[int, tuple[int, int]]) -> list[int]:
    """Returns the partitions whose stored offset lies outside their log."""
    return [
        partition
        for partition, (low, high) in sorted(available.items())
        if not low <= stored.get(partition, low) <= high
    ]


def skip_lost(cluster: UsageSource, dsn: str) -> dict[int, tuple[int, int]]:
    """Resets stored offsets outside their partitions' logs to the log start offset.

    Returns the old and the new offset by partition. Reports that are read again count once, because counters are stored
    as well.

    Raises:
        PipelineBusy: a run for this cluster is in progress.
    """
    with sink.exclusive(dsn, cluster.cluster_id) as connection:
        stored, available = sink.stored_offsets(connection, cluster.cluster_id), available_offsets(cluster)
        moved = {partition: (stored[partition], available[partition][0]) for partition in lost(stored, available)}
        sink.move_offsets(connection, cluster.cluster_id, {partition: new for partition, (_, new) in moved.items()})
    for partition, (old, new) in moved.items():
        log.error("usage.skipped", cluster_id=cluster.cluster_id, partition=partition, old=old, new=new)
    return moved


def available_offsets(cluster: UsageSource) -> dict[int, tuple[int, int]]:
    """Returns (log start offset, high watermark) of each usage partition that has a leader."""
    with UsageConsumer(cluster.bootstrap, cluster.login) as consumer:
        return consumer.available()


def run(
    make_session: Callable[[], SparkSession],
    cluster: UsageSource,
    dsn: str,
    *,
    lake: Lake | None = None,
    spark_from_records: int = SPARK_FROM_RECORDS,
    at_point: Callable[[str], None] | None = None,
) -> RunReport:
    """Applies the new records of the cluster's usage topic in one run, see `Runs`."""
    with Runs(make_session, cluster, dsn, lake=lake, at_point=at_point) as runs:
        return runs.run(spark_from_records)


class Runs:
    """Runs of the pipeline for one cluster, one after the other. A context manager that holds the cluster's lock.

    Reports are stored in the `lake` before the transaction that counts them; while both are written, the records of the
    next run are read. `make_session` is called only by a run with at least `spark_from_records` to read. `at_point` is
    called with each of `POINTS`.

    Raises:
        PipelineBusy: another process holds the lock.
    """

    def __init__(
        self,
        make_session: Callable[[], SparkSession],
        cluster: UsageSource,
        dsn: str,
        *,
        lake: Lake | None = None,
        at_point: Callable[[str], None] | None = None,
    ) -> None:
        self._make_session, self._cluster, self._dsn, self._lake = make_session, cluster, dsn, lake
        self._reached = at_point or (lambda _point: None)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._connection = stack.enter_context(sink.exclusive(self._dsn, self._cluster.cluster_id))
            self._consumer = stack.enter_context(UsageConsumer(self._cluster.bootstrap, self._cluster.login))
            self._ahead = stack.enter_context(ReadAhead(self._consumer))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, failure, trace)

    def run(self, spark_from_records: int = SPARK_FROM_RECORDS) -> RunReport:
        """Applies the records that are new now, up to the limits of a run.

        Raises:
            UsageLost, UsageReadStalled, OffsetsMoved: nothing was written.
        """
        connection, cluster = self._connection, self._cluster
        self._ahead.finish()
        read_at, offsets = datetime.now(UTC), self._consumer.available()
        ends = {partition: high for partition, (_, high) in offsets.items()}
        planned = _planned(connection, cluster, offsets, read_at)
        if not planned:
            sink.record_read_times(connection, cluster.cluster_id, ends, read_at)
            return RunReport(records=0, values=0, minute_rows=0, left_out=0, is_caught_up=True)
        self._reached("planned")
        backlog = sum(ends[range_.partition] - range_.start for range_ in planned)
        session = self._make_session() if backlog >= spark_from_records else None
        result = self._read(session, planned)
        self._reached("aggregated")
        stops = {partition: stop for partition, (_, stop) in result.ranges.items()}
        if session is None:
            self._ahead.begin(_read_ranges(plan(stops, {partition: offsets[partition] for partition in stops})))
        self._write(result, stops)
        applied = {partition: high for partition, high in ends.items() if stops.get(partition, high) == high}
        sink.record_read_times(connection, cluster.cluster_id, applied, read_at)
        _log_problems(cluster, result.problems)
        return RunReport(
            records=result.records,
            values=result.values,
            minute_rows=result.minutes.num_rows,
            left_out=result.left_out,
            is_caught_up=applied == ends,
        )

    def _read(self, session: SparkSession | None, planned: Sequence[PlannedRange]) -> Round:
        """Reads and aggregates the ranges, up to `BYTES_PER_RUN_MAX`; by Spark if there is a session.

        Raises:
            UsageLost: records within the read range are missing.
        """
        connection, cluster = self._connection, self._cluster
        known = sink.stored_incarnations(connection, cluster.cluster_id)
        stored = partial(sink.stored_counters, connection, cluster.cluster_id)
        result: Round | None = None
        if session is not None:
            from billing.pipeline import spark_tasks

            bytes_max = BYTES_PER_RUN_MAX // len(planned)
            result = spark_tasks.run_on_executors(session, cluster, planned, known, stored, bytes_max, self._lake)
        if result is not None:
            return result
        read_ranges = _read_ranges({range_.partition: (range_.start, range_.stop) for range_ in planned})
        by_partition = {range_.partition: range_ for range_ in read_ranges}
        return rounds.aggregate_in_process(
            lambda range_: self._ahead.read(by_partition[range_.partition]), planned, known, stored
        )

    def _write(self, result: Round, stops: Mapping[int, int]) -> None:
        """Writes the reports to the lake, and commits the rows with the offsets."""
        cluster = self._cluster
        lake_files = (
            [] if self._lake is None else files.write(self._lake, cluster.cluster_id, result.ranges, result.reports)
        )
        self._reached("kept")
        sink.commit(
            self._connection,
            cluster_id=cluster.cluster_id,
            start={partition: start for partition, (start, _) in result.ranges.items()},
            stop=stops,
            minutes=result.minutes,
            counters=result.counters,
            # The order matters: first reports of a counter must precede the others when the lake is replayed.
            lake_files=[*lake_files, *result.written_files],
            problems=result.problems,
            incarnations=result.incarnations,
            before_commit=lambda: self._reached("written"),
        )
        self._reached("committed")


def _read_ranges(ranges: Mapping[int, tuple[int, int]]) -> list[ReadRange]:
    """Returns the ranges `[start, stop)` of partitions, which share `BYTES_PER_RUN_MAX`."""
    bytes_max = BYTES_PER_RUN_MAX // max(1, len(ranges))
    return [
        ReadRange(partition=partition, start=start, stop=stop, bytes_max=bytes_max)
        for partition, (start, stop) in ranges.items()
    ]


def _planned(
    connection: psycopg.Connection[Any],
    cluster: UsageSource,
    offsets: Mapping[int, tuple[int, int]],
    read_at: datetime,
) -> list[PlannedRange]:
    """Returns the ranges of a run that starts now. Raises `UsageLost`."""
    ranges = plan(sink.stored_offsets(connection, cluster.cluster_id), offsets)
    last_read_times = sink.last_read_times(connection, cluster.cluster_id) if ranges else {}
    return [
        PlannedRange(
            partition=partition, start=start, stop=stop, bounds=_bounds(last_read_times.get(partition), read_at)
        )
        for partition, (start, stop) in ranges.items()
    ]


def _log_problems(cluster: UsageSource, problems: Sequence[Problem]) -> None:
    for problem in problems:
        log.error(
            "usage.problem",
            cluster_id=cluster.cluster_id,
            kind=problem.kind,
            partition=problem.partition,
            broker_id=problem.broker_id,
            records=problem.records,
            last_offset=problem.last_offset,
        )


def _bounds(last_read_at: datetime | None, read_at: datetime) -> ClockBounds:
    return ClockBounds(None if last_read_at is None else _ms(last_read_at), _ms(read_at))


def _ms(instant: datetime) -> int:
    return int(instant.timestamp() * 1_000)
