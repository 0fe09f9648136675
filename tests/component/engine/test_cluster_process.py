"""Three real broker processes and a stock client: a stopping broker hands over its partitions, a dead one is detected
soon, and topics deleted meanwhile go when it returns.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.contract import paths
from brokers.contract.documents import PartitionStateDocument
from tests.testkit.engine import BrokerProcess, EngineCluster, TestInstance, eventually

PARTITIONS = 6
SESSION_TIMEOUT_MS = 2_000
# Kafka's clients see an error only after this long; nothing here may take so much.
DELIVERY_TIMEOUT_MS = 30_000


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    directory = tmp_path_factory.mktemp("trio")
    with EngineCluster(zookeeper_address, directory, size=3, session_timeout_ms=SESSION_TIMEOUT_MS) as running:
        yield running


@pytest.fixture(scope="module")
def instance(cluster: EngineCluster) -> TestInstance:
    return cluster.create_instance("ins-aaaaaaaa")


class Topic:
    """A topic of the instance, with its stored partition states."""

    def __init__(self, cluster: EngineCluster, instance: TestInstance, name: str, partitions: int) -> None:
        self.cluster, self.instance, self.name, self.partitions = cluster, instance, name, partitions
        self.internal = f"{instance.id}.{name}"
        admin = AdminClient({"bootstrap.servers": instance.bootstrap})
        config = {"min.insync.replicas": "2"}
        for future in admin.create_topics([NewTopic(name, partitions, 3, config=config)]).values():
            future.result(30)

    def states(self) -> list[PartitionStateDocument]:
        return [
            PartitionStateDocument.from_json(self.cluster.zookeeper.get(paths.partition_state(self.internal, index))[0])
            for index in range(self.partitions)
        ]

    def wait_until_in_sync(self, members: set[int]) -> None:
        eventually(
            lambda: all(set(state.isr) == members and state.leader in members for state in self.states()),
            f"{members} are in sync",
        )


class Load:
    """A producer with acks=all on all partitions; it keeps acknowledgements and failures."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.acknowledged: list[bytes] = []
        self.failed: list[KafkaError] = []
        self._numbers = itertools.count()
        self._producer = Producer(
            {
                "bootstrap.servers": topic.instance.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
            }
        )

    def send(self, count: int = 50) -> bool:
        for number in itertools.islice(self._numbers, count):
            value = b"%d" % number
            partition = number % self.topic.partitions
            self._producer.produce(self.topic.name, value, partition=partition, on_delivery=self._done)
        self._producer.poll(0)
        return True

    def finish(self) -> None:
        assert self._producer.flush(60) == 0
        assert not self.failed, self.failed[:3]

    def _done(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acknowledged.append(message.value() or b"")

    def assert_all_is_there(self) -> None:
        """Asserts that every acknowledged record is there once, in the order of its partition."""
        wanted = len(self.acknowledged)
        consumer = Consumer({"bootstrap.servers": self.topic.instance.bootstrap, "group.id": "test"})
        consumer.assign([TopicPartition(self.topic.name, index, 0) for index in range(self.topic.partitions)])
        read: dict[int, list[int]] = {}

        def all_there() -> bool:
            for message in consumer.consume(1_000, 0.2):
                assert message.error() is None, message.error()
                read.setdefault(message.partition(), []).append(int(message.value()))
            return sum(len(values) for values in read.values()) >= wanted

        try:
            eventually(all_there, f"{wanted} records", 60)
        finally:
            consumer.close()
        assert sorted(itertools.chain(*read.values())) == sorted(int(value) for value in self.acknowledged)
        assert all(values == sorted(values) for values in read.values())


def _said(broker: BrokerProcess, event: str) -> list[dict[str, Any]]:
    return [line for line in broker.log_lines() if line.get("event") == event]


def test_a_broker_that_stops_gives_its_partitions_away_and_no_produce_fails(
    cluster: EngineCluster, instance: TestInstance
) -> None:
    """REP-34: one after the other, the controller among them."""
    topic = Topic(cluster, instance, "rolling", PARTITIONS)
    topic.wait_until_in_sync({1, 2, 3})
    load = Load(topic)
    for broker in cluster.brokers:
        load.send()
        assert broker.stop() == 0
        load.send()
        others = {1, 2, 3} - {broker.settings.broker_id}
        assert all(state.leader in others and set(state.isr) == others for state in topic.states())
        assert _said(broker, "partitions_handed_over")[-1]["left"] == 0
        broker.start()
        broker.wait_until_ready()
        topic.wait_until_in_sync({1, 2, 3})
    load.finish()
    load.assert_all_is_there()


def test_the_death_of_the_controller_and_leader_loses_nothing(cluster: EngineCluster, instance: TestInstance) -> None:
    """CTL-2, CTL-8, REP-27."""
    topic = Topic(cluster, instance, "dying", PARTITIONS)
    topic.wait_until_in_sync({1, 2, 3})
    load = Load(topic)
    load.send(1_000)
    controller = cluster.brokers[0].admin("/v1/status")["controller_id"]
    victim = cluster.brokers[controller - 1]
    victim.kill()
    others = {1, 2, 3} - {controller}
    eventually(
        lambda: load.send(10) and all(state.leader in others for state in topic.states()), "others lead", timeout_s=10
    )
    load.send(1_000)
    victim.start()
    victim.wait_until_ready()
    topic.wait_until_in_sync({1, 2, 3})
    load.finish()
    load.assert_all_is_there()


def test_a_topic_deleted_while_a_replica_was_away_goes_when_it_returns(
    cluster: EngineCluster, instance: TestInstance
) -> None:
    """CTL-20."""
    topic = Topic(cluster, instance, "deleted", 3)
    topic.wait_until_in_sync({1, 2, 3})
    away = cluster.brokers[2]
    directories = [Path(root) for root in away.settings.data_dirs]

    def logs() -> list[str]:
        return [log.name for root in directories for log in root.glob(f"{topic.internal}-*")]

    # A topic begins with everybody in sync, also who has not made its logs yet.
    eventually(lambda: len(logs()) == 3, "the replicas are there")
    assert away.stop() == 0
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    for future in admin.delete_topics([topic.name]).values():
        future.result(30)
    eventually(lambda: not cluster.zookeeper.exists(paths.topic(topic.internal)), "the topic is removed")
    assert len(logs()) == 3
    away.start()
    away.wait_until_ready()
    eventually(lambda: all(name.endswith("-delete") for name in logs()), "the logs are given up")
