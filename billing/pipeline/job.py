"""One run of the usage pipeline for one cluster: plan, read, aggregate, commit. Only this module knows all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import structlog

from billing.lake import files
from billing.lake.address import LakePlace
from billing.pipeline import naming, schema, sink, transforms
from billing.pipeline.cluster import Cluster
from billing.pipeline.doubts import NO_BROKER, ClockBounds, Incarnation, Problem
from billing.pipeline.source import UsageSource, consumer_conf
from brokers.contract.usage import USAGE_TOPIC

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

log = structlog.get_logger(__name__)

# Of all partitions together: a backlog is worked off in runs that fit into the memory of the session, however long the
# names are that its records count by.
RECORDS_PER_RUN_MAX = 300_000
BYTES_PER_RUN_MAX = 40_000_000
METADATA_TIMEOUT_S = 10.0

# The points of a run at which a fault test may stop the process, in order.
POINTS = ("planned", "aggregated", "kept", "written", "committed")


class UsageLost(Exception):
    """Events between the stored offset and what the brokers hold are gone; an operator must look before it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What one run did; `caught_up` is False when a range was cut at what a run takes at most. Records that are
    `left_out` are not billed.
    """

    records: int
    minute_rows: int
    left_out: int
    caught_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aggregated:
    """What was read of the planned ranges, and what it comes to: rows for `sink.commit`, and how many records."""

    ranges: dict[int, tuple[int, int]]
    records: int
    left_out: int
    problems: list[Problem]
    incarnations: list[Incarnation]
    minutes: list[tuple[Any, ...]]
    counters: list[tuple[Any, ...]]
    reports: pa.Table


def plan(stored: Mapping[int, int], available: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Ranges `[start, stop)` to read next; `available` is (log start offset, high watermark), both by partition.

    Raises:
        UsageLost: a stored offset lies outside what the partition holds (retention ran ahead of the pipeline, or the
            log went back), so that continuing would bill too little without anyone noticing.
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
    """Partitions whose stored offset lies outside what they hold."""
    return [
        partition
        for partition, (low, high) in sorted(available.items())
        if not low <= stored.get(partition, low) <= high
    ]


def skip_lost(cluster: Cluster, dsn: str) -> dict[int, tuple[int, int]]:
    """Stored offsets that lie outside what their partitions hold become those logs' start offsets. Both, old and new,
    by partition. Reports that are read a second time count once, for counters are stored as well.

    Raises:
        PipelineBusy: a run is at work on this cluster.
    """
    with sink.exclusive(dsn, cluster.cluster_id) as connection:
        stored, available = sink.stored_offsets(connection, cluster.cluster_id), available_offsets(cluster)
        moved = {partition: (stored[partition], available[partition][0]) for partition in lost(stored, available)}
        sink.move_offsets(connection, cluster.cluster_id, {partition: new for partition, (_, new) in moved.items()})
    for partition, (old, new) in moved.items():
        log.error("usage.skipped", cluster_id=cluster.cluster_id, partition=partition, old=old, new=new)
    return moved


def available_offsets(cluster: Cluster) -> dict[int, tuple[int, int]]:
    """(log start offset, high watermark) of every usage partition that has a leader. A topic not made yet has none."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(consumer_conf(cluster.bootstrap, cluster.login))
    try:
        topics = consumer.list_topics(USAGE_TOPIC, timeout=METADATA_TIMEOUT_S).topics
        result = topics[USAGE_TOPIC].partitions if USAGE_TOPIC in topics else {}
        return {
            index: consumer.get_watermark_offsets(
                TopicPartition(USAGE_TOPIC, index), timeout=METADATA_TIMEOUT_S, cached=False
            )
            for index, partition in result.items()
            if partition.leader >= 0
        }
    finally:
        consumer.close()


def run(
    make_session: Callable[[], SparkSession],
    cluster: Cluster,
    dsn: str,
    *,
    lake: LakePlace | None = None,
    at_point: Callable[[str], None] | None = None,
) -> RunReport:
    """Applies everything new in the cluster's usage topic once.

    What was reported is kept in the `lake` before the transaction that makes it count. `make_session` is called only
    when there is something to read. `at_point` is told each of `POINTS` as it is reached.

    Raises:
        PipelineBusy: another run is at work on this cluster.
        UsageLost, UsageReadStalled, OffsetsMoved: nothing was written; see there.
    """
    reached = at_point or (lambda _point: None)
    with sink.exclusive(dsn, cluster.cluster_id) as connection:
        looked_at = datetime.now(UTC)
        planned = plan(sink.stored_offsets(connection, cluster.cluster_id), offsets := available_offsets(cluster))
        ends = {partition: high for partition, (_, high) in offsets.items()}
        if not planned:
            sink.note_complete(connection, cluster.cluster_id, ends, looked_at)
            return RunReport(records=0, minute_rows=0, left_out=0, caught_up=True)
        reached("planned")
        looks = sink.last_looks(connection, cluster.cluster_id)
        bounds = {partition: _bounds(looks.get(partition), looked_at) for partition in planned}
        result = _aggregate(make_session(), connection, cluster, planned, bounds)
        ranges = result.ranges
        reached("aggregated")
        kept = [] if lake is None else files.write(lake, cluster.cluster_id, ranges, result.reports)
        reached("kept")
        sink.commit(
            connection,
            cluster_id=cluster.cluster_id,
            start={partition: start for partition, (start, _) in ranges.items()},
            stop={partition: stop for partition, (_, stop) in ranges.items()},
            minutes=result.minutes,
            counters=result.counters,
            lake_files=kept,
            problems=result.problems,
            incarnations=result.incarnations,
            before_commit=lambda: reached("written"),
        )
        reached("committed")
        applied = {partition: high for partition, high in ends.items() if ranges.get(partition, (0, high))[1] == high}
        sink.note_complete(connection, cluster.cluster_id, applied, looked_at)
    for each in result.problems:
        log.error(
            "usage.problem",
            cluster_id=cluster.cluster_id,
            kind=each.kind,
            partition=each.partition,
            broker_id=each.broker_id,
            records=each.records,
            last_offset=each.last_offset,
        )
    return RunReport(
        records=result.records,
        minute_rows=len(result.minutes),
        left_out=result.left_out,
        caught_up=applied == ends,
    )


def _bounds(last_look: datetime | None, looked_at: datetime) -> ClockBounds:
    return ClockBounds(None if last_look is None else _ms(last_look), _ms(looked_at))


def _ms(instant: datetime) -> int:
    return int(instant.timestamp() * 1_000)


def _aggregate(
    spark: SparkSession,
    connection: psycopg.Connection[Any],
    cluster: Cluster,
    ranges: Mapping[int, tuple[int, int]],
    bounds: Mapping[int, ClockBounds],
) -> _Aggregated:
    """Reads the ranges, as far as `BYTES_PER_RUN_MAX` lets it, and adds up what was read; nothing is written.

    Raises:
        UsageLost: records within what was read are not there.
    """
    from pyspark.sql import functions as F  # noqa: N812  (its name in every Spark text)

    spark.dataSource.register(UsageSource)
    known = sink.stored_incarnations(connection, cluster.cluster_id)
    wanted = [[partition, *span, *astuple(bounds[partition])] for partition, span in ranges.items()]
    events = (
        spark.read.format("penstock_usage")
        .options(bootstrap=cluster.bootstrap, **cluster.login)
        .option("ranges", json.dumps(wanted))
        .option("incarnations", json.dumps([astuple(each) for each in known]))
        .option("bytes_max", str(BYTES_PER_RUN_MAX // len(ranges)))
        .load()
        .persist()
    )
    try:
        good = transforms.well_formed(events)
        of_range = (F.count("*").alias("records"), F.max("offset").alias("last"), F.count("problem").alias("problems"))
        read = events.groupBy("partition").agg(*of_range).collect()
        stops = {row.partition: row.last + 1 for row in read}
        records, expected = sum(row.records for row in read), sum(stops[each] - ranges[each][0] for each in stops)
        if records != expected or stops.keys() != ranges.keys():
            raise UsageLost(f"read {records} of {expected} usage records of {cluster.cluster_id}")
        problems, refused = _problems(events) if any(row.problems for row in read) else ([], set())
        of_incarnation = (F.max("sequence").alias("sequence"), F.max("at_ms").alias("at_ms"))
        incarnations = [
            Incarnation(*row) for row in good.groupBy("broker_id", "broker_epoch").agg(*of_incarnation).collect()
        ]
        keys = {(each.broker_id, each.broker_epoch) for each in incarnations}
        counters = spark.createDataFrame(
            sink.stored_counters(connection, cluster.cluster_id, keys), schema.spark_ddl(schema.COUNTER)
        )
        rows = transforms.increments(transforms.distinct_reports(good), counters).persist()
        minute_rows = naming.with_others(tuple(row) for row in transforms.minutes(rows).collect())
        counter_rows = [tuple(row) for row in transforms.last_counters(rows).collect()]
        reports = rows.select(*files.COLUMNS).toArrow()
        rows.unpersist()
    finally:
        events.unpersist()
    return _Aggregated(
        ranges={partition: (start, stops[partition]) for partition, (start, _) in ranges.items()},
        records=records,
        left_out=sum(each.records for each in problems if each.kind != schema.CLOCK),
        problems=problems,
        incarnations=incarnations + [Incarnation(*key, 0, 0, True) for key in sorted(refused)],
        minutes=minute_rows,
        counters=counter_rows,
        reports=reports,
    )


def _problems(events: DataFrame) -> tuple[list[Problem], set[tuple[int, int]]]:
    """Returns the problems of a run's records, and the (broker id, broker epoch) pairs that are refused."""
    from pyspark.sql import functions as F  # noqa: N812

    found = (
        events.where(F.col("problem").isNotNull())
        .groupBy("problem", "partition", "broker_id", "broker_epoch")
        .agg(
            F.count("*").alias("records"),
            F.max("offset").alias("last_offset"),
            F.coalesce(F.max_by("detail", "offset"), F.lit("")).alias("detail"),
        )
        .collect()
    )
    problems = [
        Problem(
            kind=row.problem, partition=row.partition, records=row.records,
            broker_id=NO_BROKER if row.broker_id is None else row.broker_id, last_offset=row.last_offset,
            detail=row.detail,
        )
        for row in found
    ]  # fmt: skip
    refused = {(row.broker_id, row.broker_epoch) for row in found if row.problem == schema.EPOCH_REUSED}
    return problems, refused
