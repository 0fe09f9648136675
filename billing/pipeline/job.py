"""One run of the usage pipeline for one cluster: plan, read, aggregate, commit. Only this module knows all of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import structlog

from billing.lake import files
from billing.lake.address import LakePlace
from billing.pipeline import naming, schema, sink, transforms
from billing.pipeline.cluster import Cluster
from billing.pipeline.source import UsageSource, consumer_conf
from brokers.contract.usage import USAGE_TOPIC

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql import SparkSession

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
    """What one run did; `caught_up` is False when a range was cut at what a run takes at most."""

    records: int
    minute_rows: int
    malformed: int
    caught_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aggregated:
    """What was read of the planned ranges, and what it comes to: rows for `sink.commit`, and how many records."""

    ranges: dict[int, tuple[int, int]]
    records: int
    malformed: int
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
            return RunReport(records=0, minute_rows=0, malformed=0, caught_up=True)
        reached("planned")
        result = _aggregate(make_session(), connection, cluster, planned)
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
            before_commit=lambda: reached("written"),
        )
        reached("committed")
        applied = {partition: high for partition, high in ends.items() if ranges.get(partition, (0, high))[1] == high}
        sink.note_complete(connection, cluster.cluster_id, applied, looked_at)
    if result.malformed:
        log.error("usage.malformed", cluster_id=cluster.cluster_id, records=result.malformed)
    return RunReport(
        records=result.records,
        minute_rows=len(result.minutes),
        malformed=result.malformed,
        caught_up=applied == ends,
    )


def _aggregate(
    spark: SparkSession,
    connection: psycopg.Connection[Any],
    cluster: Cluster,
    ranges: Mapping[int, tuple[int, int]],
) -> _Aggregated:
    """Reads the ranges, as far as `BYTES_PER_RUN_MAX` lets it, and adds up what was read; nothing is written.

    Raises:
        UsageLost: records within what was read are not there.
    """
    from pyspark.sql import functions as F  # noqa: N812  (its name in every Spark text)

    spark.dataSource.register(UsageSource)
    events = (
        spark.read.format("penstock_usage")
        .options(bootstrap=cluster.bootstrap, **cluster.login)
        .option("ranges", json.dumps([[partition, *span] for partition, span in ranges.items()]))
        .option("bytes_max", str(BYTES_PER_RUN_MAX // len(ranges)))
        .load()
        .persist()
    )
    try:
        good = transforms.well_formed(events)
        read = events.groupBy("partition").agg(F.count("*").alias("records"), F.max("offset").alias("last")).collect()
        stops = {row.partition: row.last + 1 for row in read}
        records, expected = sum(row.records for row in read), sum(stops[each] - ranges[each][0] for each in stops)
        if records != expected or stops.keys() != ranges.keys():
            raise UsageLost(f"read {records} of {expected} usage records of {cluster.cluster_id}")
        kept = good.count()
        incarnations = {
            (row.broker_id, row.broker_epoch) for row in good.select("broker_id", "broker_epoch").distinct().collect()
        }
        counters = spark.createDataFrame(
            sink.stored_counters(connection, cluster.cluster_id, incarnations), schema.spark_ddl(schema.COUNTER)
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
        malformed=records - kept,
        minutes=minute_rows,
        counters=counter_rows,
        reports=reports,
    )
