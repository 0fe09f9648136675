"""A backlog of usage is worked off in runs that fit into memory, and every report counts as it would by itself."""

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
from billing.lake.address import LakePlace, open_lake
from billing.models import LakeFile, UsageHour, UsageOffset
from billing.pipeline import job, sink
from billing.pipeline.cluster import Cluster
from billing.pipeline.consuming import consumer_conf
from brokers.contract.process import CLUSTER_USER
from brokers.contract.usage import NAME_CHARACTERS_MAX, USAGE_TOPIC, UsageEvent
from tests.component.pipeline.test_lake import s3
from tests.testkit.engine import EngineCluster, eventually

__all__ = ["s3"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(300)]


class Runs:
    """Which of a test's runs are Spark's."""

    spark_from_records = job.SPARK_FROM_RECORDS


@pytest.fixture(params=[0, sys.maxsize], ids=["by Spark", "in one process"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All runs of a test are Spark's, and none."""
    monkeypatch.setattr(Runs, "spark_from_records", request.param)


AT_MS = int(time.time() * 1_000) - 300_000


def report(conf: dict[str, Any], count: int, instance_id: str, client_id: str) -> int:
    """So many reports of one counter; what they come to."""
    write(conf, (
        UsageEvent(
            broker_id=9, broker_epoch=1, sequence=sequence, at_ms=AT_MS + sequence, instance_id=instance_id,
            topic="orders", user="app", client_id=client_id, direction="produce", bytes=sequence * 7, requests=sequence,
        ).to_json()
        for sequence in range(1, count + 1)
    ))  # fmt: skip
    return count * 7


def write(conf: dict[str, Any], raws: Iterable[bytes]) -> None:
    """Records of `__usage`, as whatever has a broker's rights may write them."""
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


def source_of(cluster: EngineCluster) -> Cluster:
    settings = cluster.brokers[0].settings
    return Cluster(
        cluster_id=cluster.cluster_id, bootstrap=f"{settings.internal_host}:{settings.internal_port}",
        username=CLUSTER_USER, password=cluster.secret,
    )  # fmt: skip


def runs_until_caught_up(cluster: EngineCluster, spark: SparkSession, lake: Path) -> int:
    source = source_of(cluster)
    for runs in range(1, 100):
        report = job.run(
            lambda: spark, source, dsn.conninfo(), lake=open_lake(lake.as_uri()),
            spark_from_records=Runs.spark_from_records,
        )  # fmt: skip
        if report.caught_up:
            return runs
    raise AssertionError("not caught up after 99 runs")


@pytest.fixture()
def begun_at_the_end(cluster: EngineCluster) -> None:
    """What other tests reported is not read again; the tables were emptied behind them."""
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
def test_a_backlog_is_worked_off_in_runs_of_so_many_bytes(
    cluster: EngineCluster, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "BYTES_PER_RUN_MAX", 3_000)
    expected = report(conf_of(cluster), 150, "ins-backlog1", "short")
    assert runs_until_caught_up(cluster, spark, tmp_path) >= 3
    assert billed("ins-backlog1") == expected


@pytest.mark.usefixtures("begun_at_the_end", "both_ways")
@pytest.mark.long("billing/pipeline")
def test_a_backlog_of_the_longest_names_fits_into_the_memory_of_the_session(
    cluster: EngineCluster, spark: SparkSession, tmp_path: Path
) -> None:
    """More than one run takes."""
    expected = report(conf_of(cluster), 70_000, "ins-backlog2", "\U0001f600" * NAME_CHARACTERS_MAX)
    assert runs_until_caught_up(cluster, spark, tmp_path) >= 2
    assert billed("ins-backlog2") == expected


@pytest.mark.usefixtures("begun_at_the_end", "both_ways")
def test_reports_that_are_lost_stop_the_runs_until_an_operator_skips_them(
    cluster: EngineCluster, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log went back, as that of a broker whose disk was lost. What is read a second time counts once."""
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
def test_tasks_of_spark_write_to_a_lake_in_s3(cluster: EngineCluster, spark: SparkSession, s3: LakePlace) -> None:
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
