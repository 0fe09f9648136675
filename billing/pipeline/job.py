"""One run of the usage pipeline for one cluster: plan, read, aggregate, commit. It ties together all other modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from billing.lake import files
from billing.lake.address import LakePlace
from billing.pipeline import rounds, sink
from billing.pipeline.cluster import Cluster
from billing.pipeline.consuming import UsageConsumer
from billing.pipeline.doubts import ClockBounds, Problem
from billing.pipeline.rounds import PlannedRange, Round, UsageLost
from brokers.contract.usage import USAGE_TOPIC

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import SparkSession

__all__ = ["RunReport", "UsageLost", "available_offsets", "lost", "plan", "run", "skip_lost"]

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
    """Result of one run. `caught_up` is False if a range was cut at the limits of a run.

    The `left_out` records are not billed.
    """

    records: int
    minute_rows: int
    left_out: int
    caught_up: bool


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


def skip_lost(cluster: Cluster, dsn: str) -> dict[int, tuple[int, int]]:
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


def available_offsets(cluster: Cluster) -> dict[int, tuple[int, int]]:
    """Returns (log start offset, high watermark) of each usage partition that has a leader."""
    with UsageConsumer(cluster.bootstrap, cluster.login) as consumer:
        return consumer.available()


def run(
    make_session: Callable[[], SparkSession],
    cluster: Cluster,
    dsn: str,
    *,
    lake: LakePlace | None = None,
    spark_from_records: int = SPARK_FROM_RECORDS,
    at_point: Callable[[str], None] | None = None,
) -> RunReport:
    """Applies all new records of the cluster's usage topic once.

    Reports are stored in the `lake` before the transaction that counts them. `make_session` is called only if there are
    at least `spark_from_records` to read. `at_point` is called with each of `POINTS`.

    Raises:
        PipelineBusy: another run for this cluster is in progress.
        UsageLost, UsageReadStalled, OffsetsMoved: nothing was written.
    """
    reached = at_point or (lambda _point: None)
    with (
        sink.exclusive(dsn, cluster.cluster_id) as connection,
        UsageConsumer(cluster.bootstrap, cluster.login) as consumer,
    ):
        looked_at, offsets = datetime.now(UTC), consumer.available()
        ends = {partition: high for partition, (_, high) in offsets.items()}
        planned = _planned(connection, cluster, offsets, looked_at)
        if not planned:
            sink.note_complete(connection, cluster.cluster_id, ends, looked_at)
            return RunReport(records=0, minute_rows=0, left_out=0, caught_up=True)
        reached("planned")
        backlog = sum(ends[range_.partition] - range_.start for range_ in planned)
        session = make_session() if backlog >= spark_from_records else None
        result = _read(session, connection, consumer, cluster, planned, lake)
        reached("aggregated")
        kept = [] if lake is None else files.write(lake, cluster.cluster_id, result.ranges, result.reports)
        reached("kept")
        sink.commit(
            connection,
            cluster_id=cluster.cluster_id,
            start={partition: start for partition, (start, _) in result.ranges.items()},
            stop=(stops := {partition: stop for partition, (_, stop) in result.ranges.items()}),
            minutes=result.minutes,
            counters=result.counters,
            # The order matters: first reports of a counter must precede the others when the lake is replayed.
            lake_files=[*kept, *result.kept],
            problems=result.problems,
            incarnations=result.incarnations,
            before_commit=lambda: reached("written"),
        )
        reached("committed")
        applied = {partition: high for partition, high in ends.items() if stops.get(partition, high) == high}
        sink.note_complete(connection, cluster.cluster_id, applied, looked_at)
    _tell(cluster, result.problems)
    return RunReport(
        records=result.records,
        minute_rows=result.minutes.num_rows,
        left_out=result.left_out,
        caught_up=applied == ends,
    )


def _planned(
    connection: psycopg.Connection[Any],
    cluster: Cluster,
    offsets: Mapping[int, tuple[int, int]],
    looked_at: datetime,
) -> list[PlannedRange]:
    """Returns the ranges of a run that starts now. Raises `UsageLost`."""
    ranges = plan(sink.stored_offsets(connection, cluster.cluster_id), offsets)
    looks = sink.last_looks(connection, cluster.cluster_id) if ranges else {}
    return [
        PlannedRange(partition=partition, start=start, stop=stop, bounds=_bounds(looks.get(partition), looked_at))
        for partition, (start, stop) in ranges.items()
    ]


def _read(
    session: SparkSession | None,
    connection: psycopg.Connection[Any],
    consumer: UsageConsumer,
    cluster: Cluster,
    planned: Sequence[PlannedRange],
    lake: LakePlace | None,
) -> Round:
    """Reads and aggregates the ranges, up to `BYTES_PER_RUN_MAX`; by Spark if there is a session.

    Raises:
        UsageLost: records within the read range are missing.
    """
    known = sink.stored_incarnations(connection, cluster.cluster_id)
    stored = partial(sink.stored_counters, connection, cluster.cluster_id)
    bytes_max = BYTES_PER_RUN_MAX // len(planned)
    result: Round | None = None
    if session is not None:
        from billing.pipeline import spark_tasks

        result = spark_tasks.on_executors(session, cluster, planned, known, stored, bytes_max, lake)
    return result or rounds.in_this_process(consumer, planned, known, stored, bytes_max)


def _tell(cluster: Cluster, problems: Sequence[Problem]) -> None:
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


def _bounds(last_look: datetime | None, looked_at: datetime) -> ClockBounds:
    return ClockBounds(None if last_look is None else _ms(last_look), _ms(looked_at))


def _ms(instant: datetime) -> int:
    return int(instant.timestamp() * 1_000)
