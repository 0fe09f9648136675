"""On a Spark cluster of a master and two workers a run is exact, also where a worker dies in the midst of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest
from confluent_kafka import Producer
from django.db.models import Sum

from billing import dsn
from billing.lake import upkeep
from billing.lake.address import open_lake
from billing.models import UsageHour, UsageMinute, UsageOffset
from billing.pipeline.consuming import consumer_conf
from brokers.contract.process import CLUSTER_USER
from brokers.contract.usage import USAGE_TOPIC, UsageEvent
from config.embedded.java import Java
from config.embedded.process import free_port
from config.environment import BASE_DIR
from tests.testkit.engine import EngineCluster, eventually

pytestmark = [
    pytest.mark.django_db(transaction=True), pytest.mark.timeout(300),
    # Half a minute of both cores.
    pytest.mark.long("billing/pipeline", "tests/component/pipeline/test_spark_cluster.py"),
]  # fmt: skip

INSTANCE = "ins-meterone"
SPARK_HOME = Path(pyspark.__file__).parent
RUN_TIMEOUT_S = 180
TOPICS, REPORTS, BYTES_PER_REPORT = 40, 500, 7
# None that a broker has, so that what the real one reports meanwhile is apart.
BROKER_ID = 900
HOUR_MS = 3_600_000


class Standalone:
    """Spark's own cluster manager, and workers that are processes."""

    def __init__(self, directory: Path, java: Java, stack: ExitStack) -> None:
        self._environment = {
            "PATH": os.environ["PATH"], "JAVA_HOME": str(java.spark_home), "SPARK_HOME": str(SPARK_HOME),
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(directory),
        }  # fmt: skip
        self._directory, self._stack = directory, stack
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self._log = directory / "spark.log"
        self._start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        eventually(lambda: "I have been elected leader" in self._log.read_text(), "the master leads", 60)

    def add_worker(self) -> subprocess.Popen[bytes]:
        before = self._log.read_text().count("Successfully registered with master")
        worker = self._start(
            "worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "700m", self.url
        )
        eventually(
            lambda: self._log.read_text().count("Successfully registered with master") > before, "the worker is in", 60
        )
        return worker

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
                env=self._environment, cwd=self._directory, stdout=log, stderr=log,
            )  # fmt: skip
        self._stack.callback(lose, process)
        return process


def lose(process: subprocess.Popen[bytes]) -> None:
    """With all that it started, as a machine is lost."""
    try:
        processes = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        processes = []
    for each in processes:
        try:
            each.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    process.wait()


@pytest.fixture
def cluster(zookeeper_address: str, tmp_path: Path) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path / "metered", size=1) as running:
        running.create_instance(INSTANCE)
        yield running


def report(login: dict[str, str]) -> int:
    """Reports of a broker's counters in all partitions; how many bytes they come to."""
    conf = {name: value for name, value in consumer_conf(login["bootstrap"], login).items() if is_of_producers(name)}
    producer = Producer(conf)
    partitions = len(producer.list_topics(USAGE_TOPIC, timeout=10).topics[USAGE_TOPIC].partitions)
    since_ms = int((datetime.now(UTC) - timedelta(hours=2)).timestamp() * 1000)
    failed: list[Any] = []
    for sequence in range(1, REPORTS + 1):
        for topic in range(TOPICS):
            event = UsageEvent(
                broker_id=BROKER_ID, broker_epoch=1, sequence=sequence, at_ms=since_ms + sequence * HOUR_MS // REPORTS,
                instance_id=INSTANCE, topic=f"t{topic}", user="u", client_id="c", direction="produce",
                bytes=sequence * BYTES_PER_REPORT, requests=sequence,
            )  # fmt: skip
            producer.produce(
                USAGE_TOPIC, event.to_json(), partition=topic % partitions,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )  # fmt: skip
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed
    return TOPICS * REPORTS * BYTES_PER_REPORT


def is_of_producers(name: str) -> bool:
    return name.startswith(("security.", "sasl.", "ssl.", "bootstrap."))


@contextmanager
def driver(directory: Path, java: Java, body: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    settings = directory / "driver.json"
    settings.write_text(json.dumps(body))
    command = [sys.executable, "-m", "tests.component.pipeline.driver", str(settings), "never"]
    environment = os.environ | {"JAVA_HOME": str(java.spark_home), "SPARK_LOCAL_IP": "127.0.0.1"}
    log, pipe = (directory / "driver.log").open("wb"), subprocess.PIPE
    with (
        log,
        subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=environment, cwd=BASE_DIR
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def test_a_worker_that_dies_in_the_midst_of_a_run_neither_loses_nor_repeats_a_byte(
    cluster: EngineCluster, java: Java, tmp_path: Path
) -> None:
    settings = cluster.brokers[0].settings
    login = {
        "bootstrap": f"{settings.internal_host}:{settings.internal_port}", "username": CLUSTER_USER,
        "password": cluster.secret,
    }  # fmt: skip
    eventually(lambda: USAGE_TOPIC in known_topics(login), "the broker has reported once", 60)
    sent = report(login)
    lake = (tmp_path / "lake").as_uri()
    with ExitStack() as stack:
        standalone = Standalone(tmp_path, java, stack)
        workers = [standalone.add_worker() for _ in range(2)]
        body = {
            "master": standalone.url, "local_dir": str(tmp_path / "spark"), "dsn": dsn.conninfo(), "lake": lake,
            "cluster": {"cluster_id": cluster.cluster_id, **login},
        }  # fmt: skip
        process = stack.enter_context(driver(tmp_path, java, body))
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "reading\n", (tmp_path / "driver.log").read_text()[-3_000:]
        lose(workers[0])
        said, _ = process.communicate(timeout=RUN_TIMEOUT_S)
        assert process.returncode == 0, (tmp_path / "driver.log").read_text()[-3_000:]
        assert said == "executors 1\n"

    of_reports = UsageMinute.objects.filter(instance_id=INSTANCE, topic__startswith="t")
    assert of_reports.aggregate(sum=Sum("bytes"))["sum"] == sent
    hours = UsageHour.objects.filter(instance_id=INSTANCE, direction="produce")
    assert hours.aggregate(sum=Sum("bytes"))["sum"] == sent
    assert UsageOffset.objects.filter(cluster_id=cluster.cluster_id).exists()
    now = datetime.now(UTC)
    assert upkeep.differences(open_lake(lake), None, now - timedelta(days=1), now + timedelta(days=1)) == []


def known_topics(login: dict[str, str]) -> set[str]:
    conf = {name: value for name, value in consumer_conf(login["bootstrap"], login).items() if is_of_producers(name)}
    return set(Producer(conf).list_topics(timeout=10).topics)
