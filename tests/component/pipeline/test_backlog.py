"""Backlogs of usage in several runs that fit into memory; every report counts once."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from django.core.management import CommandError, call_command
from django.db.models import Sum
from pyspark.sql import SparkSession

from billing import dsn, selectors
from billing.lake import replay
from billing.lake.address import Lake, open_lake
from billing.models import LakeFile, UsageHour, UsageOffset
from billing.pipeline import job, sink
from billing.pipeline.cluster import UsageSource
from billing.pipeline.consuming import UsageConsumer, consumer_conf
from brokers.contract.process import CLUSTER_USER
from brokers.contract.usage import NAME_CHARACTERS_MAX, USAGE_TOPIC, CounterValue, ReportHead, UsageEvent
from brokers.contract.usage_columns import to_record
from tests.component.pipeline.test_lake import s3
from tests.testkit.engine import EngineCluster, eventually

__all__ = ["s3"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]


class Runs:
    """The selection of a test's runs that use Spark."""

    spark_from_records = job.SPARK_FROM_RECORDS


@pytest.fixture(params=[0, sys.maxsize], ids=["by Spark", "in one process"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the test with Spark for all runs, and for none."""
    monkeypatch.setattr(Runs, "spark_from_records", request.param)


AT_MS = int(time.time() * 1_000) - 300_000


def report(conf: dict[str, Any], count: int, instance_id: str, client_id: str) -> int:
    """Produces a number of reports of one counter; returns their sum."""
    write(conf, (
        UsageEvent(
            broker_id=9, broker_epoch=1, sequence=sequence, at_ms=AT_MS + sequence, instance_id=instance_id,
            topic="orders", user="app", client_id=client_id, direction="produce", bytes=sequence * 7, requests=sequence,
        ).to_json()
        for sequence in range(1, count + 1)
    ))  # fmt: skip
    return count * 7


def write(conf: dict[str, Any], raws: Iterable[bytes]) -> None:
    """Writes records of `__usage`, as any holder of a broker's rights may."""
    login = _login_of(conf)
    client = AdminClient(login)

    def is_made() -> bool:
        return bool(client.list_topics(USAGE_TOPIC, timeout=10).topics[USAGE_TOPIC].partitions)

    eventually(is_made, "the broker has made the topic")
    producer = Producer(login)
    for raw in raws:
        producer.produce(USAGE_TOPIC, raw, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


def source_of(cluster: EngineCluster) -> UsageSource:
    settings = cluster.brokers[0].settings
    return UsageSource(
        cluster_id=cluster.cluster_id, bootstrap=f"{settings.internal_host}:{settings.internal_port}",
        username=CLUSTER_USER, password=cluster.secret,
    )  # fmt: skip


def runs_until_caught_up(cluster: EngineCluster, spark: SparkSession, lake: Path) -> int:
    with job.Runs(lambda: spark, source_of(cluster), dsn.conninfo(), lake=open_lake(lake.as_uri())) as work:
        for runs in range(1, 100):
            if work.run(Runs.spark_from_records).is_caught_up:
                return runs
    raise AssertionError("not caught up after 99 runs")


@pytest.fixture()
def begun_at_the_end(cluster: EngineCluster) -> None:
    """Skips the reports of other tests, whose tables were emptied."""
    for partition, (_, high) in job.available_offsets(source_of(cluster)).items():
        UsageOffset.objects.create(
            cluster_id=cluster.cluster_id, topic=USAGE_TOPIC, partition=partition, next_offset=high
        )


def conf_of(cluster: EngineCluster) -> dict[str, Any]:
    settings = cluster.brokers[0].settings
    login = {"username": CLUSTER_USER, "password": cluster.secret}
    return consumer_conf(f"{settings.internal_host}:{settings.internal_port}", login)


def billed(instance_id: str) -> int:
    return UsageHour.objects.filter(instance_id=instance_id).aggregate(sum=Sum("bytes"))["sum"] or 0


@pytest.mark.usefixtures("begun_at_the_end", "both_ways")
def test_a_backlog_is_worked_off_in_runs_of_limited_bytes(
    cluster: EngineCluster, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "BYTES_PER_RUN_MAX", 3_000)
    expected = report(conf_of(cluster), 150, "ins-backlog1", "short")
    assert runs_until_caught_up(cluster, spark, tmp_path) >= 3
    assert billed("ins-backlog1") == expected


@pytest.mark.usefixtures("begun_at_the_end")
def test_records_are_read_while_those_before_them_are_committed_and_count_once_although_a_commit_fails(
    cluster: EngineCluster, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next records are asked for before a transaction ends, and read again after a failure."""
    monkeypatch.setattr(job, "BYTES_PER_RUN_MAX", 3_000)
    expected = report(conf_of(cluster), 150, "ins-backlog6", "short")
    reads: list[int] = []
    read = UsageConsumer.read

    def noted(consumer: UsageConsumer, partition: int, start: int, stop: int, bytes_max: int) -> Any:
        reads.append(start)
        return read(consumer, partition, start, stop, bytes_max)

    monkeypatch.setattr(UsageConsumer, "read", noted)
    commits = 0

    def at_point(point: str) -> None:
        nonlocal commits
        commits += point == "written"
        if point == "written" and commits == 2:
            eventually(lambda: len(reads) == 3, "the third range is read before the second one is committed")
            raise ConnectionError

    lake, source = open_lake(tmp_path.as_uri()), source_of(cluster)
    with job.Runs(lambda: spark, source, dsn.conninfo(), lake=lake, at_point=at_point) as runs:
        assert not runs.run(sys.maxsize).is_caught_up
        with pytest.raises(ConnectionError):
            runs.run(sys.maxsize)
        while not runs.run(sys.maxsize).is_caught_up:
            pass
    assert reads[1] in reads[3:]
    assert billed("ins-backlog6") == expected


@pytest.mark.usefixtures("begun_at_the_end", "both_ways")
def test_brokers_of_both_versions_are_billed_to_the_byte_whatever_the_runs(
    cluster: EngineCluster, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process reports in records of one counter and then in columns, as one whose setting was changed."""
    monkeypatch.setattr(job, "BYTES_PER_RUN_MAX", 40_000)
    counters = [
        CounterValue("ins-backlog5", f"t{place}", "app", "\U0001f600" * (place % 50), "produce", 0, 0)
        for place in range(60)
    ]
    raws = []
    for sequence in range(1, 21):
        head = ReportHead(9, 5, sequence, AT_MS + sequence)
        values = [counter._replace(bytes=sequence * 1_001, requests=sequence) for counter in counters]
        if sequence < 4:
            raws += [UsageEvent.of(head, value).to_json() for value in values]
        else:
            raws += [to_record(head, values[:40]), to_record(head, values[40:])]
    write(conf_of(cluster), raws)
    assert runs_until_caught_up(cluster, spark, tmp_path) >= 3
    assert billed("ins-backlog5") == 60 * 20 * 1_001
    now = datetime.now(UTC)
    span = now - timedelta(days=1), now + timedelta(days=1)
    found = replay.hours(open_lake(tmp_path.as_uri()), ["ins-backlog5"], *span)
    assert sum(hour.bytes for hour in found) == 60 * 20 * 1_001


@pytest.mark.usefixtures("begun_at_the_end", "both_ways")
@pytest.mark.long("billing/pipeline")
def test_a_backlog_of_the_longest_names_fits_into_the_memory_of_the_session(
    cluster: EngineCluster, spark: SparkSession, tmp_path: Path
) -> None:
    """The backlog is larger than one run."""
    expected = report(conf_of(cluster), 70_000, "ins-backlog2", "\U0001f600" * NAME_CHARACTERS_MAX)
    assert runs_until_caught_up(cluster, spark, tmp_path) >= 2
    assert billed("ins-backlog2") == expected


@pytest.mark.usefixtures("begun_at_the_end", "both_ways")
def test_reports_that_are_lost_stop_the_runs_until_an_operator_skips_them(
    cluster: EngineCluster, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log was cut, as after the loss of a disk. Records that are read twice count once."""
    monkeypatch.setattr(selectors, "usage_sources", lambda: [source_of(cluster)])
    report(conf_of(cluster), 10, "ins-backlog3", "short")
    runs_until_caught_up(cluster, spark, tmp_path)
    out = StringIO()
    call_command("usage", "status", stdout=out)
    assert f"{USAGE_TOPIC}-0: read up to" in out.getvalue() and "0 to go" in out.getvalue()
    expected = report(conf_of(cluster), 30, "ins-backlog3", "short")
    read = UsageOffset.objects.get(cluster_id=cluster.cluster_id, partition=0).next_offset
    UsageOffset.objects.filter(cluster_id=cluster.cluster_id, partition=0).update(next_offset=read + 1_000)

    with pytest.raises(job.UsageLost):
        runs_until_caught_up(cluster, spark, tmp_path)
    with pytest.raises(CommandError, match="1 partitions have lost reports"):
        call_command("usage", "status", stdout=out)
    assert f"read up to {read + 1_000}, LOST: the log holds [0, {read + 30})" in out.getvalue()
    call_command("usage", "skip-lost", "--cluster", cluster.cluster_id, stdout=out)
    assert f"was at {read + 1_000}, goes on at 0" in out.getvalue()
    runs_until_caught_up(cluster, spark, tmp_path)

    assert billed("ins-backlog3") == expected
    call_command("usage", "skip-lost", stdout=out)
    assert "nothing is lost" in out.getvalue()


def test_offsets_are_moved_by_nobody_while_a_run_is_at_work_or_where_no_cluster_is(
    cluster: EngineCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(cluster)
    monkeypatch.setattr(selectors, "usage_sources", lambda: [source])
    with sink.exclusive(dsn.conninfo(), cluster.cluster_id), pytest.raises(CommandError, match="a run is at work"):
        call_command("usage", "skip-lost")
    with pytest.raises(CommandError, match="no cluster cl-other"):
        call_command("usage", "status", "--cluster", "cl-other")


def _login_of(conf: dict[str, Any]) -> dict[str, Any]:
    wanted = ("security.protocol", "sasl.mechanism", "sasl.username", "sasl.password", "bootstrap.servers")
    return {name: value for name, value in conf.items() if name in wanted}


@pytest.mark.usefixtures("begun_at_the_end")
def test_tasks_of_spark_write_to_a_lake_in_s3(cluster: EngineCluster, spark: SparkSession, s3: Lake) -> None:
    """Spark's processes have no keys in their environment, before and after."""
    expected = report(conf_of(cluster), 40, "ins-backlog4", "short")
    report_of_run = job.run(lambda: spark, source_of(cluster), dsn.conninfo(), lake=s3, spark_from_records=0)
    assert report_of_run.records >= 40 and billed("ins-backlog4") == expected
    now = datetime.now(UTC)
    found = replay.hours(s3, ["ins-backlog4"], now - timedelta(days=1), now + timedelta(days=1))
    assert sum(each.bytes for each in found) == expected
    assert LakeFile.objects.count() >= 2, "the first reports of counters, and the others"
    keys = spark.sparkContext.parallelize([0], 1).map(lambda _: [n for n in os.environ if n.startswith("AWS_")])
    assert keys.collect() == [[]]
