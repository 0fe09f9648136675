"""Billing of counters that a killed or stopped broker had not reported, and of stored bytes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.contract.process import CLUSTER_USER
from brokers.contract.usage import LEVEL_INTERVAL_MS, RECORD_VERSION_SETTING, USAGE_TOPIC, Level, UsageEvent
from brokers.contract.usage_columns import events_in
from tests.testkit.engine import READY_TIMEOUT_S, BrokerProcess, EngineCluster, eventually

INSTANCE = "ins-countedx"
RECORDS, VALUE = 40, b"v" * 1_000


@pytest.fixture(params=["1", "2"])
def cluster(zookeeper_address: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[EngineCluster]:
    """A broker that writes usage in this version."""
    overrides = {RECORD_VERSION_SETTING: request.param}
    with EngineCluster(zookeeper_address, tmp_path, size=1, overrides=overrides) as running:
        yield running


def usage_events(cluster: EngineCluster, consumer: Consumer) -> list[UsageEvent]:
    """Returns all records of the usage topic."""
    result: list[UsageEvent] = []
    partition = TopicPartition(USAGE_TOPIC, 0, 0)
    consumer.assign([partition])
    end = consumer.get_watermark_offsets(partition, timeout=10)[1]
    while end and consumer.position([partition])[0].offset < end:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            result += events_in(message.value() or b"")
    return result


def reader(broker: BrokerProcess) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": f"{broker.settings.internal_host}:{broker.settings.internal_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": CLUSTER_USER,
            "sasl.password": broker.secret,
            "group.id": "tests",
            "enable.auto.commit": False,
        }
    )


def test_stored_bytes_and_partitions_are_counted_until_the_broker_stops(cluster: EngineCluster) -> None:
    instance = cluster.create_instance(INSTANCE)
    broker = cluster.brokers[0]
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    for future in admin.create_topics([NewTopic("t", 3, 1)]).values():
        future.result(30)
    began_s = time.monotonic()
    producer = Producer({"bootstrap.servers": instance.bootstrap, "linger.ms": 0})
    for _ in range(20):
        producer.produce("t", b"v" * 900_000, partition=0)
        assert producer.flush(30) == 0
    eventually(
        lambda: dict(broker.admin("/v1/storage")["storage"] or ()).get(INSTANCE, 0) > 17_000_000,
        "what is stored is known",
    )
    had_s = time.monotonic() - began_s
    broker.stop()
    broker.start()
    broker.wait_until_ready()
    consumer = reader(broker)
    try:
        found = {
            event.direction: event for event in usage_events(cluster, consumer) if event.direction in get_args(Level)
        }
    finally:
        consumer.close()
    assert found.keys() == {"stored", "partitions"}, "connections of the first hour are not counted"
    # They count from the last sample on, or from the start of the broker: both before the topic was there.
    lived_s = time.monotonic() - began_s + READY_TIMEOUT_S
    assert 3 * int(had_s) <= found["partitions"].bytes <= 3 * (lived_s + LEVEL_INTERVAL_MS / 1_000)
    assert 0 < found["stored"].bytes <= 19_000_000 * (lived_s + LEVEL_INTERVAL_MS / 1_000) / 3_600
    assert {(event.topic, event.user, event.client_id) for event in found.values()} == {("", "", "")}


def test_a_killed_brokers_last_seconds_are_counted_to_the_byte(cluster: EngineCluster) -> None:
    instance = cluster.create_instance(INSTANCE)
    broker = cluster.brokers[0]
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    for future in admin.create_topics([NewTopic("t", 1, 1)]).values():
        future.result(30)
    before = {file.name for file in Path(broker.settings.data_dirs[0]).glob("usage.*")}
    producer = Producer({"bootstrap.servers": instance.bootstrap, "client.id": "app", "linger.ms": 0})
    for _ in range(RECORDS):
        producer.produce("t", VALUE)
        assert producer.flush(30) == 0
    accepted_bytes = broker.admin(f"/v1/instances/{INSTANCE}/topics")["topics"]["t"][0]["size_bytes"]
    broker.kill()
    broker.start()
    broker.wait_until_ready()
    consumer = reader(broker)
    try:

        def sent() -> dict[tuple[int, str], int]:
            """Returns the last value of each counter."""
            return {
                (event.broker_epoch, event.client_id): event.bytes
                for event in usage_events(cluster, consumer)
                if event.instance_id == INSTANCE and event.direction == "produce"
            }

        eventually(lambda: sum(sent().values()) == accepted_bytes, "every accepted byte is in the usage topic")
        assert {client for _, client in sent()} == {"app"}
        assert len({epoch for epoch, _ in sent()}) == 1
        assert before.isdisjoint(file.name for file in Path(broker.settings.data_dirs[0]).glob("usage.*"))
    finally:
        consumer.close()
