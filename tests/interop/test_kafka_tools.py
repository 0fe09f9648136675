"""Apache Kafka's own tools on our brokers: groups, offsets, transactions, and the records of both state topics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.contract.process import CLUSTER_USER
from tests.interop import jars
from tests.testkit.engine import HOST, EngineCluster
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
FORMATTERS = "org.apache.kafka.tools.consumer"
TOPIC, PARTITIONS, RECORDS = "orders", 2, 10
# Of transactions, whose markers take offsets as records do.
TRANSACTED = "transfers"
OVERRIDES = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@dataclass(frozen=True)
class Place:
    """Addresses of a cluster. `bootstrap` is the tenant's; `inside` is the internal listener, with `properties` to sign
    in there.
    """

    bootstrap: str
    inside: str
    properties: Path

    def groups(self, *arguments: str, expected_code: int | None = 0) -> str:
        return jars.run(GROUPS, "--bootstrap-server", self.bootstrap, *arguments, expected_code=expected_code)

    def transactions(self, *arguments: str, expected_code: int | None = 0) -> str:
        return jars.run(TRANSACTIONS, "--bootstrap-server", self.bootstrap, *arguments, expected_code=expected_code)

    def as_cluster(self, *arguments: str) -> str:
        common = ("--bootstrap-server", self.inside, "--command-config", str(self.properties))
        return jars.run(TRANSACTIONS, *common, *arguments)

    def state_records(self, topic: str, formatter: str) -> str:
        """Everything in a state topic, as Kafka's formatter prints it."""
        return jars.run(
            CONSOLE, "--bootstrap-server", self.inside, "--consumer.config", str(self.properties), "--topic", topic,
            "--formatter", f"{FORMATTERS}.{formatter}", "--from-beginning", "--timeout-ms", "5000", expected_code=None,
        )  # fmt: skip


@pytest.fixture(scope="module")
def place(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    jars.java_with_jars()
    home = tmp_path_factory.mktemp("tools")
    with EngineCluster(zookeeper_address, home, overrides=OVERRIDES) as cluster:
        bootstrap = cluster.create_instance("ins-tools000").bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (TOPIC, TRANSACTED)]).values():
            future.result(30)
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        for number in range(RECORDS * PARTITIONS):
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(30) == 0
        (broker,) = cluster.brokers
        inside = f"{HOST}:{broker.settings.internal_port}"
        yield Place(bootstrap, inside, jars.login(home / "login.properties", CLUSTER_USER, cluster.secret))


def consumer_of(place: Place, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": place.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "log_level": 0,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )


def read_and_commit(place: Place, group: str, count: int) -> Consumer:
    """A consumer that stays in its group."""
    consumer = consumer_of(place, group)
    consumer.subscribe([TOPIC])
    read = 0
    while read < count:
        read += len(consumer.consume(count - read, 10))
    consumer.commit(asynchronous=False)
    return consumer


def table(text: str) -> list[list[str]]:
    """The rows below the heading, as words."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    start = next(at for at, row in enumerate(rows) if row[0] == "GROUP")
    return rows[start + 1 :]


def offsets(place: Place, group: str) -> dict[int, str]:
    """Committed offsets by partition, as the tool shows them."""
    return {int(row[2]): row[3] for row in table(place.groups("--describe", "--group", group))}


def test_a_live_group_is_listed_and_described(place: Place) -> None:
    consumer = read_and_commit(place, "live", RECORDS * PARTITIONS)
    assert "live" in place.groups("--list").split()
    assert "Stable" in next(line for line in place.groups("--list", "--state").splitlines() if "live" in line)
    rows = table(place.groups("--describe", "--group", "live"))
    assert sorted((row[1], row[2], row[3], row[4], row[5]) for row in rows) == [
        (TOPIC, str(index), str(RECORDS), str(RECORDS), "0") for index in range(PARTITIONS)
    ]
    assert all(row[6].startswith("reader-") and row[7] == f"/{HOST}" and row[8] == "reader" for row in rows)
    (state,) = table(place.groups("--describe", "--group", "live", "--state"))
    assert state[-3:] == ["range", "Stable", "1"]
    (member,) = table(place.groups("--describe", "--group", "live", "--members"))
    assert member[-1] == str(PARTITIONS)
    assert "GroupNotEmpty" in place.groups("--delete", "--group", "live", expected_code=None)
    refused = place.groups("--reset-offsets", "--group", "live", "--all-topics", "--to-earliest", "--execute")
    assert "is not empty" in refused or "inactive" in refused, refused
    consumer.close()


def test_an_empty_groups_offsets_are_reset_and_it_is_deleted(place: Place) -> None:
    read_and_commit(place, "reset", RECORDS * PARTITIONS).close()
    arguments = ("--reset-offsets", "--group", "reset", "--topic", TOPIC)
    place.groups(*arguments, "--to-earliest", "--dry-run")
    assert offsets(place, "reset") == dict.fromkeys(range(PARTITIONS), str(RECORDS))
    for how, expected in (
        (("--to-earliest",), "0"),
        (("--to-latest",), str(RECORDS)),
        (("--to-offset", "4"), "4"),
        (("--shift-by", "3"), "7"),
        (("--to-datetime", "2020-01-01T00:00:00.000"), "0"),
    ):
        place.groups(*arguments, *how, "--execute")
        assert offsets(place, "reset") == dict.fromkeys(range(PARTITIONS), expected)
    place.groups("--delete-offsets", "--group", "reset", "--topic", f"{TOPIC}:0")
    assert list(offsets(place, "reset")) == [1]
    place.groups("--delete", "--group", "reset")
    assert "reset" not in place.groups("--list").split()


def open_transaction(place: Place, name: str, timeout_ms: int = 600_000) -> Producer:
    producer = Producer(
        {"bootstrap.servers": place.bootstrap, "transactional.id": name, "transaction.timeout.ms": timeout_ms}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TRANSACTED, name.encode(), partition=0)
    assert producer.flush(30) == 0
    return producer


def test_transactions_are_listed_described_and_found_hanging(place: Place) -> None:
    producer = open_transaction(place, "described")
    assert re.search(r"described\s+\d+\s+\d+\s+Ongoing", place.transactions("list"))
    text = place.transactions("describe", "--transactional-id", "described")
    assert "Ongoing" in text and f"{TRANSACTED}-0" in text
    text = place.transactions("describe-producers", "--topic", TRANSACTED, "--partition", "0")
    assert len([line for line in text.splitlines() if line and line[0].isdigit()]) >= 1
    assert "hanging" not in place.transactions("find-hanging", "--topic", TRANSACTED, "--max-transaction-timeout", "1")
    producer.abort_transaction(30)
    assert re.search(r"described\s+\d+\s+\d+\s+CompleteAbort", place.transactions("list"))


def test_an_operator_aborts_an_open_transaction_with_kafkas_tool(place: Place) -> None:
    producer = open_transaction(place, "aborted")
    inside = f"ins-tools000.{TRANSACTED}"
    text = place.as_cluster("describe-producers", "--topic", inside, "--partition", "0")
    # ProducerId ProducerEpoch LatestCoordinatorEpoch LastSequence LastTimestamp CurrentTransactionStartOffset
    rows = [line.split() for line in text.splitlines() if line and line[0].isdigit()]
    (start,) = [row[5] for row in rows if row[5] != "None"]
    assert last_stable(place) == int(start)
    place.as_cluster("abort", "--topic", inside, "--partition", "0", "--start-offset", start)
    eventually(lambda: last_stable(place) > int(start), what="readers to get on")
    del producer


def last_stable(place: Place) -> int:
    consumer = Consumer(
        {"bootstrap.servers": place.bootstrap, "group.id": "watch", "isolation.level": "read_committed"}
    )
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(TRANSACTED, 0), timeout=30)[1])
    finally:
        consumer.close()


def test_the_records_of_both_state_topics_are_kafkas(place: Place) -> None:
    read_and_commit(place, "formatted", RECORDS).close()
    producer = open_transaction(place, "formatted-id")
    producer.commit_transaction(30)
    text = place.state_records("__consumer_offsets", "OffsetsMessageFormatter")
    assert re.search(r"ins-tools000\.formatted\b.*ins-tools000\.orders", text), text[-3_000:]
    text = place.state_records("__consumer_offsets", "GroupMetadataMessageFormatter")
    assert re.search(r"ins-tools000\.formatted\b.*consumer", text), text[-3_000:]
    text = place.state_records("__transaction_state", "TransactionLogMessageFormatter")
    assert "ins-tools000.formatted-id" in text, text[-3_000:]
