"""Reports of topics by real brokers, page by page."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.dataplane import admin_client
from brokers.monitoring.topic_report import topic_report
from instances.topics import table
from tests.testkit.engine import EngineCluster, eventually
from tests.testkit.engine_fleet import create_fleet_rows

INSTANCE_ID = "ins-report01"
OTHER_ID = "ins-report02"
# More than one page: a topic of one partition weighs five of 2,000.
MANY = 620
MESSAGES = 50

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def engines(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("reports"), size=2) as running:
        running.create_instance(INSTANCE_ID)
        running.create_instance(OTHER_ID)
        yield running
    admin_client.links().close()


@pytest.fixture(autouse=True)
def _rows(engines: EngineCluster, tmp_path: Path, db: None) -> None:
    create_fleet_rows(engines, tmp_path, INSTANCE_ID)


def create(engines: EngineCluster, topics: list[NewTopic], instance_id: str = INSTANCE_ID) -> None:
    client = AdminClient({"bootstrap.servers": engines.instances[instance_id].bootstrap})
    for future in client.create_topics(topics, request_timeout=30).values():
        future.result(30)


def test_every_broker_names_all_topics_and_figures_are_those_of_the_leaders(engines: EngineCluster) -> None:
    name = f"orders-{uuid.uuid4().hex[:6]}"
    create(engines, [NewTopic(name, 4, 2, config={"retention.ms": "3600000", "cleanup.policy": "compact,delete"})])
    create(engines, [NewTopic("foreign", 1, 1)], OTHER_ID)
    bootstrap = engines.instances[INSTANCE_ID].bootstrap
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(MESSAGES):
        producer.produce(name, key=b"k", value=b"x" * 1_000, partition=number % 4)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(name, 0, 0)])
    assert consumer.poll(20) is not None
    consumer.close()

    report = topic_report(INSTANCE_ID)
    assert (set(report.brokers), report.silent) == ({1, 2}, ())
    lines = {number: [line for line in part.topics if line.name == name] for number, part in report.brokers.items()}
    assert all(len(found) == 1 for found in lines.values())
    both = [found[0] for found in lines.values()]
    assert {
        (line.partition_count, line.replication_factor, line.retention_ms, line.cleanup_policy) for line in both
    } == {(4, 2, 3_600_000, "compact,delete")}
    assert sum(line.led_partitions for line in both) == 4
    assert sum(line.message_count for line in both) == MESSAGES
    assert sum(line.produced_bytes for line in both) >= MESSAGES * 1_000
    assert sum(line.consumed_bytes for line in both) > 1_000
    assert not any(line.name == "foreign" for part in report.brokers.values() for line in part.topics)


def test_pages_hold_every_topic_once_and_a_broker_that_stops_between_them_is_silent(
    engines: EngineCluster,
) -> None:
    names = {f"many-{number:04}" for number in range(MANY)}
    create(engines, [NewTopic(name, 1, 1) for name in sorted(names)])
    engine = engines.brokers[0]
    first = engine.admin(f"/v1/instances/{INSTANCE_ID}/topic_figures")
    assert first["next"] is not None
    eventually(
        lambda: all(
            names <= {line.name for line in part.topics} for part in topic_report(INSTANCE_ID).brokers.values()
        ),
        "both brokers know all topics",
    )
    for part in topic_report(INSTANCE_ID).brokers.values():
        found = [line.name for line in part.topics]
        assert len(found) == len(set(found))
        assert found == sorted(found)
    rows = {row.name: row for row in table.rebuild(INSTANCE_ID).rows}
    assert names <= rows.keys()
    assert all(rows[name].size_bytes == 0 for name in names)


def test_a_report_of_one_topic_has_no_others(engines: EngineCluster) -> None:
    name = f"alone-{uuid.uuid4().hex[:6]}"
    create(engines, [NewTopic(name, 2, 1)])

    def reported() -> list[dict[str, list[dict[str, int]]]]:
        at = f"/v1/instances/{INSTANCE_ID}/topics?name={name}"
        return [broker.admin(at)["topics"] for broker in engines.brokers]

    eventually(
        lambda: sorted(line["partition"] for topics in reported() for line in topics.get(name, ())) == [0, 1],
        "both partitions have a leader",
    )
    reports = reported()
    assert all(set(topics) <= {name} for topics in reports)
    nothing = engines.brokers[0].admin(f"/v1/instances/{INSTANCE_ID}/topics?name=none")
    assert nothing["topics"] == {}
