"""What a broker had counted when it was killed is billed all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.contract.process import CLUSTER_USER
from brokers.contract.usage import USAGE_TOPIC, UsageEvent
from tests.testkit.engine import BrokerProcess, EngineCluster, eventually

INSTANCE = "ins-countedx"
RECORDS, VALUE = 40, b"v" * 1_000


@pytest.fixture
def cluster(zookeeper_address: str, tmp_path: Path) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path, size=1) as running:
        yield running


def usage_events(cluster: EngineCluster, consumer: Consumer) -> list[UsageEvent]:
    """Whatever stands in the usage topic."""
    result: list[UsageEvent] = []
    partition = TopicPartition(USAGE_TOPIC, 0, 0)
    consumer.assign([partition])
    end = consumer.get_watermark_offsets(partition, timeout=10)[1]
    while end and consumer.position([partition])[0].offset < end:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            result.append(UsageEvent.from_json(message.value() or b""))
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
            """The last word of each counter."""
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
