"""Committed offsets on three real broker processes: three stock clients agree on them, and they survive the cleaner, a
killed coordinator and a restart of all brokers (GRP-22…25).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition
from kafka.structs import OffsetAndMetadata

from brokers.engine.coordinators.partitioning import partition_of
from tests.testkit.engine import EngineCluster, TestInstance, eventually

TIMEOUT_S = 60
GROUP, TOPIC = "readers", "orders"
PARTITIONS = 20
ROUNDS = 120
STATE_PARTITIONS = 5
OFFSETS_TOPIC = "__consumer_offsets"


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    overrides = {
        "offsets.topic.segment.bytes": "32768",
        "log.segment.bytes.min": "1",
        "log.cleaner.backoff.ms": "200",
        "log.cleaner.min.cleanable.ratio": "0.1",
    }
    directory = tmp_path_factory.mktemp("offsets")
    with EngineCluster(zookeeper_address, directory, size=3, session_timeout_ms=4_000, overrides=overrides) as running:
        yield running


@pytest.fixture(scope="module")
def instance(cluster: EngineCluster) -> TestInstance:
    result = cluster.create_instance("ins-aaaaaaaa")
    admin = AdminClient({"bootstrap.servers": result.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(TIMEOUT_S)
    return result


def consumer_of(instance: TestInstance, group: str = GROUP) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": instance.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


def committed(instance: TestInstance, group: str = GROUP) -> dict[int, int]:
    """Returns the committed offset as a new consumer reads it; a negative one is none."""
    consumer = consumer_of(instance, group)
    wanted = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]

    def answered() -> list[TopicPartition] | None:
        try:
            return consumer.committed(wanted, timeout=5)
        except KafkaException:
            # A coordinator is being elected or loads.
            return None

    try:
        result = eventually(answered, "the coordinator answers", TIMEOUT_S)
    finally:
        consumer.close()
    return {line.partition: line.offset for line in result if line.offset >= 0}


def test_three_clients_agree_on_what_was_committed_and_read_on_from_there(instance: TestInstance) -> None:
    producer = Producer({"bootstrap.servers": instance.bootstrap, "acks": "all"})
    for number in range(30):
        producer.produce(TOPIC, str(number).encode(), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    group = "in-turn"

    first = consumer_of(instance, group)
    first.assign([TopicPartition(TOPIC, 0)])
    read = first.consume(10, TIMEOUT_S)
    assert [message.value() for message in read] == [str(number).encode() for number in range(10)]
    first.commit(asynchronous=False)
    first.seek(TopicPartition(TOPIC, 0, 2))
    assert first.consume(1, TIMEOUT_S)[0].offset() == 2
    first.close()

    second = KafkaConsumer(
        bootstrap_servers=instance.bootstrap.split(","),
        group_id=group,
        enable_auto_commit=False,
        request_timeout_ms=40_000,
    )
    partition = PythonPartition(TOPIC, 0)
    second.assign([partition])
    try:
        assert second.committed(partition) == 10
        record = eventually(lambda: second.poll(1_000, max_records=1), "a record")[partition][0]
        assert record.offset == 10
        second.commit({partition: OffsetAndMetadata(17, "by the second", -1)})
    finally:
        second.close()

    asyncio.run(_third(instance, group))
    # The first one would go back to its committed offset.
    assert committed(instance, group) == {0: 5}


async def _third(instance: TestInstance, group: str) -> None:
    third = AIOKafkaConsumer(bootstrap_servers=instance.bootstrap, group_id=group, enable_auto_commit=False)
    partition = AioPartition(TOPIC, 0)
    await third.start()
    try:
        third.assign([partition])
        assert await third.committed(partition) == 17
        record = await asyncio.wait_for(third.getone(partition), TIMEOUT_S)
        assert record.offset == 17
        await third.commit({partition: (5, "by the third")})
    finally:
        await third.stop()


def test_offsets_outlive_the_cleaner_a_killed_coordinator_and_a_restart(
    cluster: EngineCluster, instance: TestInstance
) -> None:
    index = partition_of(f"{instance.id}.{GROUP}", STATE_PARTITIONS)
    consumer = consumer_of(instance)
    for number in range(1, ROUNDS + 1):
        lines = [TopicPartition(TOPIC, partition, number * 100 + partition) for partition in range(PARTITIONS)]
        consumer.commit(offsets=lines, asynchronous=False)
    consumer.close()
    wanted = {partition: ROUNDS * 100 + partition for partition in range(PARTITIONS)}
    # A group of one commit, whose record the cleaner must carry along.
    early = consumer_of(instance, "early")
    early.commit(offsets=[TopicPartition(TOPIC, 3, 33)], asynchronous=False)
    early.close()

    def is_cleaned() -> bool:
        # On every replica, so that the next leader has read a cleaned log.
        return all(
            any(
                line["event"] == "log_cleaned" and (line["topic"], line["partition"]) == (OFFSETS_TOPIC, index)
                for line in broker.log_lines()
            )
            for broker in cluster.brokers
        )

    eventually(is_cleaned, "the cleaner was there", TIMEOUT_S)
    assert committed(instance) == wanted

    (coordinator,) = [broker for broker in cluster.brokers if _leads(cluster, index) == broker.settings.broker_id]
    coordinator.kill()
    assert committed(instance) == wanted
    assert committed(instance, "early") == {3: 33}
    coordinator.start()
    coordinator.wait_until_ready()

    for broker in cluster.brokers:
        broker.kill()
    for broker in cluster.brokers:
        broker.start()
    for broker in cluster.brokers:
        broker.wait_until_ready()
    assert committed(instance) == wanted
    assert committed(instance, "early") == {3: 33}


def _leads(cluster: EngineCluster, index: int) -> int:
    raw, _ = cluster.zookeeper.get(f"/brokers/topics/{OFFSETS_TOPIC}/partitions/{index}/state")
    return int(json.loads(raw)["leader"])


def test_an_administrator_moves_offsets_and_deletes_groups(instance: TestInstance) -> None:
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    group = "to-be-moved"
    lines = [TopicPartition(TOPIC, 0, 5), TopicPartition(TOPIC, 1, 6)]

    def altered() -> bool:
        try:
            (future,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, lines)]).values()
            future.result(TIMEOUT_S)
        except KafkaException:
            return False
        return True

    eventually(altered, "the offsets are set", TIMEOUT_S)
    (listed,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    result = listed.result(TIMEOUT_S).topic_partitions
    assert {(line.topic, line.partition): line.offset for line in result} == {(TOPIC, 0): 5, (TOPIC, 1): 6}
    assert committed(instance, group) == {0: 5, 1: 6}

    (deleted,) = admin.delete_consumer_groups([group]).values()
    deleted.result(TIMEOUT_S)

    assert committed(instance, group) == {}
