"""Producers and consumers of a topic by the counters of real brokers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.dataplane import admin_client
from brokers.monitoring.topic_clients import topic_traffic
from instances.clients.interfaces import ClientCounter
from tests.testkit.engine import EngineCluster, eventually
from tests.testkit.engine_fleet import create_fleet_rows

INSTANCE_ID = "ins-topcli01"
OTHER_ID = "ins-topcli02"
# More than one page of 500.
MANY = 510

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def engines(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("topcli"), size=2) as running:
        running.create_instance(INSTANCE_ID)
        running.create_instance(OTHER_ID)
        yield running
    admin_client.links().close()


@pytest.fixture(autouse=True)
def _rows(engines: EngineCluster, tmp_path: Path, db: None) -> None:
    create_fleet_rows(engines, tmp_path, INSTANCE_ID, OTHER_ID)


def counters(topic: str, instance_id: str = INSTANCE_ID) -> list[ClientCounter]:
    traffic = topic_traffic(instance_id, topic)
    assert traffic.silent == ()
    return [counter for broker in traffic.brokers.values() for counter in broker.counters]


def test_producers_and_consumers_are_listed_by_client_id_for_their_own_instance(engines: EngineCluster) -> None:
    name = f"orders-{uuid.uuid4().hex[:6]}"
    bootstrap = engines.instances[INSTANCE_ID].bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": "till-7", "acks": "all"})
    for number in range(20):
        producer.produce(name, value=b"x" * 1_000, partition=number % 2)
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "client.id": "report-1"})
    consumer.assign([TopicPartition(name, 0, 0)])
    assert consumer.poll(20) is not None
    consumer.close()
    found = eventually(
        lambda: {counter.direction for counter in counters(name)} == {"produce", "consume"} and counters(name),
        "both are counted",
    )
    by_direction = {
        direction: [counter for counter in found if counter.direction == direction]
        for direction in ("produce", "consume")
    }
    assert {counter.client_id for counter in by_direction["produce"]} == {"till-7"}
    assert sum(counter.bytes for counter in by_direction["produce"]) >= 20_000
    assert {counter.client_id for counter in by_direction["consume"]} == {"report-1"}
    assert counters(name, OTHER_ID) == []
    assert counters("nothing") == []


def test_a_topic_with_very_many_client_ids_comes_in_pages(engines: EngineCluster) -> None:
    name = f"many-{uuid.uuid4().hex[:6]}"
    bootstrap = engines.instances[INSTANCE_ID].bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    producers = []
    for first in range(0, MANY, 30):
        producers = [
            Producer({"bootstrap.servers": bootstrap, "client.id": f"c{number}"})
            for number in range(first, min(first + 30, MANY))
        ]
        for producer in producers:
            producer.produce(name, value=b"x")
        for producer in producers:
            assert producer.flush(20) == 0
    found = counters(name)
    assert len(found) == len({counter.client_id for counter in found}) == MANY
