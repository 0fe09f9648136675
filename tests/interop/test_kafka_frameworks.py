"""Programs of Apache Kafka's that use much of a broker at once, on a tenant's instance.

Connect's workers share their work by a group of their own kind, and keep it in compacted topics and by transactions;
the other tools are what Kafka's own system tests are made of.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from config.embedded.process import free_port
from tests.interop import jars
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

TOOLS = "org.apache.kafka.tools"
CONNECT = "org.apache.kafka.connect.cli.ConnectDistributed"
RECORDS = 500
KEPT_BY_CONNECT = ("connect-configs", "connect-offsets", "connect-status")
WORKER = """\
bootstrap.servers={bootstrap}
group.id=connect
exactly.once.source.support=enabled
session.timeout.ms=10000
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
offset.storage.partitions=5
status.storage.topic=connect-status
config.storage.replication.factor=3
offset.storage.replication.factor=3
status.storage.replication.factor=3
plugin.discovery=service_load
listeners=http://127.0.0.1:{port}
"""


class Worker:
    """A worker of Connect; `port` is its REST interface's."""

    def __init__(self, home: Path, bootstrap: str) -> None:
        self.port = free_port()
        settings = home / f"worker-{self.port}.properties"
        settings.write_text(WORKER.format(bootstrap=bootstrap, port=self.port))
        with (home / f"worker-{self.port}.log").open("w") as log:
            command = [*jars.java_with_jars(), CONNECT, str(settings)]
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def call(self, method: str, path: str, **more: Any) -> requests.Response:
        return requests.request(method, f"http://127.0.0.1:{self.port}{path}", timeout=30, **more)

    @property
    def is_ready(self) -> bool:
        """It has joined and read everything that is kept: it answers what needs both."""
        return self.call("GET", "/connectors").status_code == requests.codes.ok

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)


@contextmanager
def worker(home: Path, bootstrap: str) -> Iterator[Worker]:
    made = Worker(home, bootstrap)
    try:
        yield made
    finally:
        made.kill()


def refused(by: Worker) -> requests.Response:
    """Only the leader of the workers checks a connector: the others pass it on."""
    wanted = {"name": "orders", "config": {"connector.class": "nobody.Has"}}
    return by.call("POST", "/connectors", json=wanted)


def test_workers_of_connect_share_a_cluster_and_outlive_each_other(coordinating_bootstrap: str, tmp_path: Path) -> None:
    jars.java_with_jars()
    with ExitStack() as stack:
        workers = [stack.enter_context(worker(tmp_path, coordinating_bootstrap)) for _ in range(2)]
        for one in workers:
            eventually(lambda one=one: one.is_ready, within_s=90, what="a worker that serves")
        for one in workers:
            assert "nobody.Has" in refused(one).text

        workers[0].kill()

        def serves_alone() -> bool:
            return "nobody.Has" in refused(workers[1]).text

        eventually(serves_alone, within_s=60, what="the other worker to lead")
    admin = AdminClient({"bootstrap.servers": coordinating_bootstrap, "log_level": 0})
    for topic in KEPT_BY_CONNECT:
        (asked,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        assert asked.result(30)["cleanup.policy"].value == "compact"


@pytest.fixture(scope="module")
def orders(coordinating_bootstrap: str) -> str:
    """A topic of one partition with numbered records."""
    jars.java_with_jars()
    admin = AdminClient({"bootstrap.servers": coordinating_bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic("copied-from", 1, 3), NewTopic("copied-to", 2, 3)]).values():
        made.result(30)
    producer = Producer({"bootstrap.servers": coordinating_bootstrap, "log_level": 0})
    for number in range(RECORDS):
        producer.produce("copied-from", b"%d" % number)
    assert producer.flush(30) == 0
    return "copied-from"


def test_the_transactional_copier_copies_each_record_once(coordinating_bootstrap: str, orders: str) -> None:
    jars.run(
        f"{TOOLS}.TransactionalMessageCopier", "--broker-list", coordinating_bootstrap, "--input-topic", orders,
        "--input-partition", "0", "--output-topic", "copied-to", "--transactional-id", "copier",
        "--consumer-group", "copiers", "--max-messages", str(RECORDS), "--transaction-size", "50",
        "--enable-random-aborts",
    )  # fmt: skip

    read = jars.run(
        f"{TOOLS}.consumer.ConsoleConsumer", "--bootstrap-server", coordinating_bootstrap, "--topic", "copied-to",
        "--from-beginning", "--isolation-level", "read_committed", "--timeout-ms", "5000", expected_code=None,
    )  # fmt: skip
    result = sorted(int(line) for line in read.splitlines() if line.isdigit())
    assert result == list(range(RECORDS))


def test_the_verifiable_clients_agree(coordinating_bootstrap: str, orders: str) -> None:
    sent = _sent(
        jars.run(
            f"{TOOLS}.VerifiableProducer", "--bootstrap-server", coordinating_bootstrap, "--topic", orders,
            "--max-messages", "50", "--acks", "-1",
        )
    )  # fmt: skip
    acknowledged = [item["offset"] for item in sent if item["name"] == "producer_send_success"]
    assert acknowledged == list(range(RECORDS, RECORDS + 50))

    seen = _sent(
        jars.run(
            f"{TOOLS}.VerifiableConsumer", "--bootstrap-server", coordinating_bootstrap, "--topic", orders,
            "--group-id", "verifying", "--reset-policy", "earliest", "--max-messages", str(RECORDS + 50),
        )
    )  # fmt: skip
    assert all(item["success"] for item in seen if item["name"] == "offsets_committed")
    counted = [part["count"] for item in seen if item["name"] == "records_consumed" for part in item["partitions"]]
    assert sum(counted) == RECORDS + 50


def _sent(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
