"""Stock clients of an instance that one broker of three serves: their coordinators may be on any broker (CKA-5)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.engine import EngineCluster, TestInstance, eventually

TIMEOUT_S = 60
TOPIC = "orders"
GROUPS = [f"readers-{number}" for number in range(4)]


@pytest.fixture(scope="module")
def instance(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestInstance]:
    overrides = {"group.initial.rebalance.delay.ms": "0"}
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("gateway"), size=3, overrides=overrides) as cluster:
        result = cluster.create_instance("ins-gateway0", served_by=[1])
        admin = AdminClient({"bootstrap.servers": result.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(TIMEOUT_S)
        yield result


def member_of(instance: TestInstance, group: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": instance.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    consumer.subscribe([TOPIC])
    return consumer


def read(consumer: Consumer, other: Consumer | None = None) -> Message:
    def polled() -> Message | None:
        if other is not None:
            other.poll(0)
        message = consumer.poll(0.2)
        return message if message is not None and message.error() is None else None

    return eventually(polled, "a record is read", TIMEOUT_S)


def test_groups_read_commit_share_and_are_listed_wherever_their_coordinators_are(instance: TestInstance) -> None:
    producer = Producer({"bootstrap.servers": instance.bootstrap, "transactional.id": "writer"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for partition in range(2):
        producer.produce(TOPIC, b"first", partition=partition)
    producer.commit_transaction(TIMEOUT_S)

    members = [member_of(instance, group) for group in GROUPS]
    try:
        for member in members:
            message = read(member)
            member.commit(message=message, asynchronous=False)

        second = member_of(instance, GROUPS[0])
        members.append(second)
        eventually(
            lambda: (members[0].poll(0.1), second.poll(0.1)) and len(second.assignment()) == 1,
            "two members share two partitions",
            TIMEOUT_S,
        )
        assert len(members[0].assignment()) == 1

        admin = AdminClient({"bootstrap.servers": instance.bootstrap})
        listed = admin.list_consumer_groups().result(TIMEOUT_S)
        assert (sorted(group.group_id for group in listed.valid), listed.errors) == (GROUPS, [])
        described = {
            group: future.result(TIMEOUT_S) for group, future in admin.describe_consumer_groups(GROUPS).items()
        }
        assert [len(described[group].members) for group in GROUPS] == [2, 1, 1, 1]
        assert {member.host for group in described.values() for member in group.members} == {"/127.0.0.1"}
        for group in GROUPS:
            wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(TOPIC, index) for index in range(2)])
            (future,) = admin.list_consumer_group_offsets([wanted]).values()
            positions = future.result(TIMEOUT_S).topic_partitions
            assert sorted(position.offset for position in positions)[1] == 1
    finally:
        for member in members:
            member.close()
