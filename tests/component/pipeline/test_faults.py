"""A real broker meters, the pipeline is killed at each named point, with Spark and without it, and the rows still equal
the bytes.

Nothing but PostgreSQL says where to go on: Spark's directory is deleted between runs as well.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from django.db.models import Sum
from pyspark.sql import SparkSession

from billing import dsn
from billing.lake import reconciliation, replay
from billing.lake.address import open_lake
from billing.models import LakeFile, UsageHour, UsageMinute, UsageOffset
from billing.pipeline import job
from billing.pipeline.cluster import UsageSource
from billing.pipeline.consuming import consumer_conf
from billing.pipeline.sink import PipelineBusy
from brokers.contract.process import CLUSTER_USER
from brokers.contract.usage import COUNTED_THINGS, DIRECTIONS, RECORD_VERSION_SETTING, USAGE_TOPIC
from brokers.contract.usage_columns import VERSION, events_in
from config.embedded.java import Java
from config.environment import BASE_DIR
from tests.interop.clients import ConfluentKafka
from tests.testkit import depth
from tests.testkit.engine import EngineCluster, eventually

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(600)]

INSTANCE = "ins-meterone"
TOPIC = "orders"
RUN_TIMEOUT_S = 180
# Each costs a start of Spark: a short run has one of the three that matter most, a long one all.
SPARK_POINTS = depth.names_from(
    "PENSTOCK_PIPELINE_KILLS", short=depth.day_share(("kept", "written", "committed"), 3), long=job.POINTS
)


@pytest.fixture()
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    """A broker that writes usage as those of the product do."""
    overrides = {RECORD_VERSION_SETTING: str(VERSION)}
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("metered"), size=1, overrides=overrides) as running:
        running.create_instance(INSTANCE)
        yield running


class Driver:
    """Runs of the pipeline over one cluster."""

    def __init__(self, cluster: EngineCluster, java: Java, directory: Path, *, in_process: bool) -> None:
        settings = cluster.brokers[0].settings
        self.local_dir = directory / "spark"
        self.settings_file = directory / "driver.json"
        self.cluster = {
            "cluster_id": cluster.cluster_id,
            "bootstrap": f"{settings.internal_host}:{settings.internal_port}",
            "username": CLUSTER_USER,
            "password": cluster.secret,
        }
        self.lake = directory / "lake"
        body = {
            "local_dir": str(self.local_dir),
            "dsn": dsn.conninfo(),
            "cluster": self.cluster,
            "lake": self.lake.as_uri(),
            "in_process": in_process,
        }
        self.spark_from_records = sys.maxsize if in_process else 0
        self.settings_file.write_text(json.dumps(body))
        self.environment = os.environ | {"JAVA_HOME": str(java.spark_home), "PYTHONWARNINGS": "default"}

    @contextmanager
    def warm(self, kill_at: str) -> Iterator[Callable[[], None]]:
        """Starts a process with its Spark beforehand. The returned call runs the pipeline in it until it is killed."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.component.pipeline.driver", str(self.settings_file), kill_at],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            cwd=BASE_DIR,
        )

        def run() -> None:
            _, message = process.communicate(b"\n", timeout=RUN_TIMEOUT_S)
            assert process.returncode == -signal.SIGKILL, message.decode()[-3000:]

        with process:
            try:
                yield run
            finally:
                process.kill()
                shutil.rmtree(self.local_dir, ignore_errors=True)

    def catch_up(self, session: SparkSession) -> None:
        """Runs until there is nothing left to read."""
        eventually(lambda: self._is_caught_up(session), "nothing is left to read", RUN_TIMEOUT_S)

    def _is_caught_up(self, session: SparkSession) -> bool:
        place = open_lake(self.lake.as_uri())
        try:
            return job.run(
                lambda: session, UsageSource(**self.cluster), dsn.conninfo(), lake=place,
                spark_from_records=self.spark_from_records,
            ).is_caught_up  # fmt: skip
        except PipelineBusy:
            return False  # PostgreSQL has not noticed yet that the process before was killed

    def lose_half_of_what_does_not_count(self) -> None:
        """Deletes half of the files of the killed run, if it wrote any."""
        counting = set(LakeFile.objects.values_list("path", flat=True))
        strays = [file for file in self.lake.rglob("*.parquet") if str(file.relative_to(self.lake)) not in counting]
        for file in strays[::2]:
            file.unlink()

    def reported(self) -> dict[str, int]:
        """Returns the broker's reported bytes: the last counter of every key, summed by direction."""
        consumer = Consumer(consumer_conf(self.cluster["bootstrap"], self.cluster))
        counters: dict[tuple[Any, ...], int] = {}
        try:
            for partition in consumer.list_topics(USAGE_TOPIC, timeout=10).topics[USAGE_TOPIC].partitions:
                low, high = consumer.get_watermark_offsets(TopicPartition(USAGE_TOPIC, partition), timeout=10)
                consumer.assign([TopicPartition(USAGE_TOPIC, partition, low)])
                deadline = time.monotonic() + 30
                while low < high and time.monotonic() < deadline:
                    for message in consumer.consume(1_000, 0.2):
                        assert message.error() is None, message.error()
                        for event in events_in(message.value()):
                            key = (
                                event.broker_epoch,
                                event.instance_id,
                                event.topic,
                                event.user,
                                event.client_id,
                                event.direction,
                            )
                            counters[key] = event.bytes
                        low = message.offset() + 1
        finally:
            consumer.close()
        totals: dict[str, int] = dict.fromkeys(COUNTED_THINGS, 0)
        for key, counted in counters.items():
            totals[key[-1]] += counted
        return totals


def log_bytes(cluster: EngineCluster) -> int:
    """Returns the size of the instance's logs at the leader: exactly the accepted record-batch bytes."""
    topics = cluster.brokers[0].admin(f"/v1/instances/{INSTANCE}/topics")["topics"]
    return sum(partition["size_bytes"] for partition in topics.get(TOPIC, []))


def billed() -> dict[str, int]:
    totals: dict[str, int] = dict.fromkeys(COUNTED_THINGS, 0)
    for counted, count in UsageHour.objects.filter(instance_id=INSTANCE).values_list("direction", "bytes"):
        totals[counted] += count
    return totals


def billed_by_minutes() -> dict[str, int]:
    rows = UsageMinute.objects.filter(instance_id=INSTANCE).values_list("direction").annotate(Sum("bytes"))
    return dict(rows)


@pytest.mark.parametrize(
    ("in_process", "points"), [(True, job.POINTS), (False, SPARK_POINTS)], ids=["in one process", "by Spark"]
)
def test_killed_at_every_point_the_pipeline_bills_each_byte_once(
    in_process: bool, points: tuple[str, ...], cluster: EngineCluster, java: Java, spark: SparkSession, tmp_path: Path
) -> None:
    driver = Driver(cluster, java, tmp_path, in_process=in_process)
    bootstrap = cluster.instances[INSTANCE].bootstrap
    client = ConfluentKafka()
    client.create_topic(bootstrap, TOPIC, 3)
    sent = 0
    for round_number, point in enumerate(points):
        with driver.warm(kill_at=point) as run:
            records = [(n % 3, b"k%d" % n, b"v" * (n % 900)) for n in range(500 * (round_number + 1))]
            client.produce(bootstrap, TOPIC, records, "none")
            sent += len(records)
            for _ in range(2):  # so that what is read differs from what is written
                client.consume(bootstrap, TOPIC, 3, sent)
            accepted = log_bytes(cluster)
            eventually(lambda accepted=accepted: driver.reported()["produce"] == accepted, "the broker's report", 40)
            run()
        assert UsageOffset.objects.exists() == LakeFile.objects.exists() == (point == "committed"), point
        driver.lose_half_of_what_does_not_count()
    # Levels grow each minute, whatever clients do: of one that passes meanwhile the second run knows.
    eventually(lambda: driver.reported()["stored"], "a minute is sampled", 100)
    for _ in range(2):
        driver.catch_up(spark)
        if billed() == driver.reported():
            break
    assert billed() == driver.reported()
    assert billed_by_minutes() == {each: billed()[each] for each in DIRECTIONS}
    assert billed()["partitions"] > 0
    assert billed()["produce"] == log_bytes(cluster)
    assert billed()["consume"] > billed()["produce"]
    place = open_lake(driver.lake.as_uri())
    since, until = datetime.now(UTC) - timedelta(days=1), datetime.now(UTC) + timedelta(days=1)
    replayed: dict[str, int] = dict.fromkeys(COUNTED_THINGS, 0)
    for hour in replay.hours(place, [INSTANCE], since, until):
        replayed[hour.direction] += hour.bytes
    assert replayed == billed()
    assert reconciliation.differences(place, None, since, until) == []
