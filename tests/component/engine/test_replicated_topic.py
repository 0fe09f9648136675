"""Three real broker processes with a real ZooKeeper: records acknowledged with acks=all survive their leader (REP-3,
REP-5, REP-12, REP-19, REP-22, REP-23).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument
from brokers.engine.storage.segment import BLOCK_BYTES
from tests.testkit.engine import BrokerProcess, EngineCluster, TestInstance, eventually

TIMEOUT_S = 30
LAG_MS_MAX = "2000"
SESSION_TIMEOUT_MS = 4_000


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    directory = tmp_path_factory.mktemp("replicated")
    with EngineCluster(
        zookeeper_address,
        directory,
        size=3,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        overrides={"replica.lag.time.max.ms": LAG_MS_MAX},
    ) as running:
        yield running


@pytest.fixture(scope="module")
def instance(cluster: EngineCluster) -> TestInstance:
    return cluster.create_instance("ins-aaaaaaaa")


@pytest.fixture
def admin(instance: TestInstance) -> AdminClient:
    return AdminClient({"bootstrap.servers": instance.bootstrap})


def make_topic(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> str:
    wanted = NewTopic(name, partitions, 3, config={key.replace("_", "."): value for key, value in config.items()})
    admin.create_topics([wanted])[name].result(TIMEOUT_S)
    return name


def state_of(cluster: EngineCluster, instance: TestInstance, topic: str, index: int = 0) -> PartitionStateDocument:
    raw, _ = cluster.zookeeper.get(paths.partition_state(f"{instance.id}.{topic}", index))
    return PartitionStateDocument.from_json(raw)


def in_sync(cluster: EngineCluster, instance: TestInstance, topic: str, *brokers: int) -> None:
    def holds() -> bool:
        return set(state_of(cluster, instance, topic).isr) == set(brokers)

    eventually(holds, f"{topic} has {brokers} in sync")


def log_of(broker: BrokerProcess, instance: TestInstance, topic: str, index: int = 0) -> bytes:
    directory = Path(broker.settings.data_dirs[0]) / f"{instance.id}.{topic}-{index}"
    return b"".join(file.read_bytes() for file in sorted(directory.glob("*.log")))


def acknowledged(instance: TestInstance, topic: str, numbers: range, **config: Any) -> list[int]:
    """Produces each number as a record of its own batch; returns those acknowledged with acks=all, in order, although a
    new leader may refuse the first ones.
    """
    done: list[int] = []
    one_by_one = {"batch.num.messages": 1, "enable.idempotence": True}
    settings = {"bootstrap.servers": instance.bootstrap, "acks": "all", **one_by_one, **config}
    producer = Producer(settings)
    for number in numbers:

        def delivered(error: object, _: object, number: int = number) -> None:
            if error is None:
                done.append(number)

        producer.produce(topic, b"%d" % number, partition=0, on_delivery=delivered)
        producer.poll(0)
    producer.flush(TIMEOUT_S)
    return done


def consumed(instance: TestInstance, topic: str, count: int) -> list[int]:
    # A group with positions would need all three brokers for its coordinator's topic.
    consumer = Consumer({"bootstrap.servers": instance.bootstrap, "group.id": "looking", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    result: list[int] = []

    def everything() -> bool:
        result.extend(int(message.value()) for message in consumer.consume(count, 0.5) if message.error() is None)
        return len(result) >= count

    try:
        eventually(everything, f"{count} records of {topic} are consumed")
    finally:
        consumer.close()
    return result


def test_replicas_hold_the_same_bytes(cluster: EngineCluster, instance: TestInstance, admin: AdminClient) -> None:
    def stored_bytes() -> int:
        return sum(broker.admin(f"/v1/instances/{instance.id}/topics")["stored_bytes"] for broker in cluster.brokers)

    before_bytes = stored_bytes()
    topic = make_topic(admin, "same-bytes")

    assert acknowledged(instance, topic, range(200)) == list(range(200))

    assert consumed(instance, topic, 200) == list(range(200))
    logs = [log_of(broker, instance, topic) for broker in cluster.brokers]
    assert logs[0]
    assert logs[0] == logs[1] == logs[2]
    # Whole blocks count, of the log and of its two indexes.
    more_bytes = stored_bytes() - before_bytes
    assert 3 * len(logs[0]) <= more_bytes <= 3 * (len(logs[0]) + 4 * BLOCK_BYTES)
    assert more_bytes % (3 * BLOCK_BYTES) == 0


def test_a_killed_leader_loses_nothing_acknowledged(
    cluster: EngineCluster, instance: TestInstance, admin: AdminClient
) -> None:
    topic = make_topic(admin, "killed-leader", min_insync_replicas="2")
    in_sync(cluster, instance, topic, 1, 2, 3)
    before = acknowledged(instance, topic, range(100))
    killed = cluster.brokers[state_of(cluster, instance, topic).leader - 1]

    killed.kill()
    alive = {broker.settings.broker_id for broker in cluster.brokers if broker is not killed}
    eventually(lambda: state_of(cluster, instance, topic).leader in alive, "another broker leads")
    after = acknowledged(instance, topic, range(100, 200))

    assert before + after == list(range(200))
    assert consumed(instance, topic, 200) == list(range(200))
    in_sync(cluster, instance, topic, *alive)
    killed.start()
    killed.wait_until_ready()
    in_sync(cluster, instance, topic, 1, 2, 3)
    logs = [log_of(broker, instance, topic) for broker in cluster.brokers]
    assert logs[0] == logs[1] == logs[2]
