"""Exact runs on a Spark cluster of a master and two workers, also if a worker dies during one; and on another host,
whose executor and driver are killed.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from django.db.models import Sum

from billing import dsn
from billing.lake import reconciliation
from billing.lake.address import open_lake
from billing.models import UsageHour, UsageMinute, UsageOffset
from billing.pipeline.consuming import consumer_conf
from brokers.contract.process import CLUSTER_USER
from brokers.contract.process_identity import CA_FILE, control
from brokers.contract.usage import USAGE_TOPIC, UsageEvent
from config.embedded.java import Java
from config.environment import BASE_DIR
from tests.component.pipeline import standalone
from tests.component.pipeline.standalone import LOOPBACK, Standalone, begin, driver, lose, other_host
from tests.testkit.engine import EngineCluster, eventually
from tests.testkit.tls import process_file

pytestmark = [
    pytest.mark.django_db(transaction=True), pytest.mark.timeout(300),
    # Half a minute of both cores.
    pytest.mark.long("billing/pipeline", "tests/component/pipeline/test_spark_cluster.py"),
]  # fmt: skip

INSTANCE = "ins-meterone"
RUN_TIMEOUT_S = 180
TOPICS, REPORTS, BYTES_PER_REPORT = 40, 500, 7
# None that a broker has, so that what the real one reports meanwhile is apart.
BROKER_ID = 900
HOUR_MS = 3_600_000


@pytest.fixture
def cluster(zookeeper_address: str, tmp_path: Path) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path / "metered", size=1) as running:
        running.create_instance(INSTANCE)
        yield running


def report(login: dict[str, str]) -> int:
    """Produces reports of a broker's counters in all partitions; returns the number of bytes."""
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
        process = stack.enter_context(driver(tmp_path, java, body, {"SPARK_LOCAL_IP": LOOPBACK}))
        begin(process, tmp_path)
        lose(workers[0])
        said, _ = process.communicate(timeout=RUN_TIMEOUT_S)
        assert process.returncode == 0, (tmp_path / "driver.log").read_text()[-3_000:]
        assert said == "executors 1\n"

    assert_exact(cluster, lake, sent)


def test_another_host_runs_tasks_with_a_secret_and_its_executor_and_the_driver_may_be_killed(
    zookeeper_address: str, java: Java, tmp_path: Path
) -> None:
    """Everything is set up by the lines of the page for operators."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("another host is a network namespace, which root creates with ip (iproute2)")
    conf_dir, secret = tmp_path / "conf", secrets.token_hex(32)
    write_defaults(conf_dir, secret)
    with ExitStack() as stack:
        here, host = stack.enter_context(other_host())
        host = replace(host, variables={"SPARK_CONF_DIR": str(conf_dir)})
        cluster = stack.enter_context(EngineCluster(zookeeper_address, tmp_path / "metered", internal_host=here))
        cluster.create_instance(INSTANCE)
        settings = cluster.brokers[0].settings
        login = {
            "bootstrap": f"{settings.internal_host}:{settings.internal_port}", "username": "", "password": "",
            "certificate_file": str(process_file(cluster.internal_tls, control("pipeline"))),
            "ca_file": str(cluster.internal_tls / CA_FILE),
        }  # fmt: skip
        eventually(lambda: USAGE_TOPIC in known_topics(login), "the broker has reported once", 60)
        sent = report(login)
        spark = Standalone(tmp_path, java, stack, host)
        worker = spark.add_worker()
        lake = (tmp_path / "lake").as_uri()
        body = {
            "master": spark.url, "local_dir": str(tmp_path / "spark"), "dsn": dsn.conninfo(), "lake": lake,
            "cluster": {"cluster_id": cluster.cluster_id, **login},
        }  # fmt: skip
        variables = {"SPARK_LOCAL_IP": here, "SPARK_CONF_DIR": str(conf_dir)}

        # Another secret is refused, and a driver that has it ends.
        write_defaults(tmp_path / "wrong", secrets.token_hex(32))
        wrong = variables | {"SPARK_CONF_DIR": str(tmp_path / "wrong")}
        stranger = stack.enter_context(driver(tmp_path, java, body, wrong))

        process = stack.enter_context(driver(tmp_path, java, body, variables, "kept"))
        (executor,) = eventually(lambda: standalone.executors_of(worker), "an executor is started", 60)
        for pid in (process.pid, worker.pid):
            assert secret not in standalone.commands_of(pid)
        begin(process, tmp_path)
        executor.send_signal(signal.SIGKILL)
        process.communicate(timeout=RUN_TIMEOUT_S)
        assert process.returncode == -signal.SIGKILL, (tmp_path / "driver.log").read_text()[-3_000:]
        assert not UsageMinute.objects.filter(instance_id=INSTANCE).exists()

        process = stack.enter_context(driver(tmp_path, java, body, variables))
        begin(process, tmp_path)
        said, _ = process.communicate(timeout=RUN_TIMEOUT_S)
        assert (process.returncode, said) == (0, "executors 1\n"), (tmp_path / "driver.log").read_text()[-3_000:]

        stranger.communicate(timeout=RUN_TIMEOUT_S)
        assert stranger.returncode not in (0, -signal.SIGKILL)
    assert_exact(cluster, lake, sent)


def write_defaults(directory: Path, secret: str) -> None:
    """Writes the file that the page for operators shows, with this secret."""
    page = (BASE_DIR / "docs/how-to/use-a-spark-cluster.md").read_text()
    (lines,) = re.findall(r"```\n(spark\.authenticate .*?)```", page, re.DOTALL)
    assert "…" in lines
    directory.mkdir()
    (directory / "spark-defaults.conf").write_text(lines.replace("…", secret))


def assert_exact(cluster: EngineCluster, lake: str, sent: int) -> None:
    """Asserts that minutes, hours and lake count each byte that was sent exactly once."""
    of_reports = UsageMinute.objects.filter(instance_id=INSTANCE, topic__startswith="t")
    assert of_reports.aggregate(sum=Sum("bytes"))["sum"] == sent
    hours = UsageHour.objects.filter(instance_id=INSTANCE, direction="produce")
    assert hours.aggregate(sum=Sum("bytes"))["sum"] == sent
    assert UsageOffset.objects.filter(cluster_id=cluster.cluster_id).exists()
    now = datetime.now(UTC)
    assert reconciliation.differences(open_lake(lake), None, now - timedelta(days=1), now + timedelta(days=1)) == []


def known_topics(login: dict[str, str]) -> set[str]:
    conf = {name: value for name, value in consumer_conf(login["bootstrap"], login).items() if is_of_producers(name)}
    return set(Producer(conf).list_topics(timeout=10).topics)
