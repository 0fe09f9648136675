"""A broker that starts with an unreadable document in ZooKeeper, as after a downgrade: it does not take its coordinated
data for that of a deleted topic or instance (decision 79).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.contract import paths
from brokers.contract.documents import InstanceAck
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from brokers.engine.protocol.messages.producers import DescribeTransactionsRequest
from tests.testkit.engine import EngineCluster, TestInstance
from tests.testkit.waiting import eventually
from tests.testkit.wire import WireClient

TIMEOUT_S = 60
TRANSACTION_TIMEOUT_MS = 2_000
NO_SENSE = b"{"


@pytest.fixture
def cluster(zookeeper_address: str, tmp_path: Path) -> Iterator[EngineCluster]:
    overrides = {
        "offsets.retention.check.interval.ms": "300",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
    }
    with EngineCluster(zookeeper_address, tmp_path, overrides=overrides) as running:
        yield running


class Owner:
    """An instance with a topic, a group whose offset is 7, and an open transaction."""

    def __init__(self, cluster: EngineCluster, instance_id: str) -> None:
        self.instance: TestInstance = cluster.create_instance(instance_id)
        self.topic = "orders"
        self.inside = f"{instance_id}.{self.topic}"
        admin = AdminClient({"bootstrap.servers": self.instance.bootstrap})
        admin.create_topics([NewTopic(self.topic, 1, 1)])[self.topic].result(TIMEOUT_S)

    def consumer(self, isolation: str = "read_committed") -> Consumer:
        settings = {"group.id": "readers", "isolation.level": isolation, "log_level": 0}
        return Consumer({"bootstrap.servers": self.instance.bootstrap, **settings})

    def commit(self) -> None:
        consumer = self.consumer()
        consumer.commit(offsets=[TopicPartition(self.topic, 0, 7)], asynchronous=False)
        consumer.close()

    def committed(self) -> int | None:
        consumer = self.consumer()
        try:
            return int(consumer.committed([TopicPartition(self.topic, 0)], 5)[0].offset)
        except KafkaException:
            return None
        finally:
            consumer.close()

    def leave_a_transaction_open(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.instance.bootstrap,
                "transactional.id": "left",
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "message.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "log_level": 0,
            }
        )
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(self.topic, b"open")
        producer.flush(TIMEOUT_S)

    def ends(self) -> list[int]:
        """Returns the end of all records and the last stable offset."""
        result = []
        for isolation in ("read_uncommitted", "read_committed"):
            consumer = self.consumer(isolation)
            result.append(int(consumer.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=10)[1]))
            consumer.close()
        return result

    def ask(self, api_key: int, version: int, request: Any) -> Any:
        async def run() -> Any:
            client = await WireClient.connect(next(iter(self.instance.document.ports.values())))
            try:
                return await client.call(api_key, version, request)
            finally:
                await client.close()

        return asyncio.run(run())

    def transaction(self) -> str:
        request = DescribeTransactionsRequest(transactional_ids=["left"])
        return str(self.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states[0].transaction_state)

    def until_groups_were_looked_through(self) -> None:
        """Waits until the expiry has visited all groups: until an offset that expires at once is gone twice."""
        line = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name=self.topic, partitions=[line])]
        commit = OffsetCommitRequest(
            group_id="short", generation_id_or_member_epoch=-1, member_id="", retention_time_ms=1, topics=topics
        )
        asked = OffsetFetchRequest(
            group_id="short", topics=[OffsetFetchRequestTopic(name=self.topic, partition_indexes=[0])]
        )

        def stands_at(offset: int) -> bool:
            answer = self.ask(ApiKey.OFFSET_FETCH, 5, asked)
            return bool(answer.error_code == 0 and answer.topics[0].partitions[0].committed_offset == offset)

        def is_committed() -> bool:
            answer = self.ask(ApiKey.OFFSET_COMMIT, 2, commit)
            return bool(answer.topics[0].partitions[0].error_code == 0)

        for _ in range(2):
            eventually(is_committed, within_s=TIMEOUT_S, what="an offset that is of age")
            eventually(lambda: stands_at(-1), within_s=TIMEOUT_S, what="all groups to be looked through")


def restart(cluster: EngineCluster) -> None:
    (broker,) = cluster.brokers
    broker.kill()
    broker.start()
    broker.wait_until_ready()


def until_acknowledged(cluster: EngineCluster, instance: TestInstance) -> None:
    def is_acknowledged() -> bool:
        parent = paths.instance_acks(instance.id)
        acks = [cluster.zookeeper.get(f"{parent}/{child}")[0] for child in cluster.zookeeper.get_children(parent)]
        return bool(acks) and all(InstanceAck.from_json(ack).listening for ack in acks)

    eventually(is_acknowledged, within_s=TIMEOUT_S, what="the instance's port")


def test_offsets_and_transactions_of_a_topic_whose_document_makes_no_sense_wait_for_it(cluster: EngineCluster) -> None:
    owner, other = Owner(cluster, "ins-aaaaaaaa"), Owner(cluster, "ins-bbbbbbbb")
    owner.commit()
    owner.leave_a_transaction_open()
    path = paths.topic_config(owner.inside)
    sense, _ = cluster.zookeeper.get(path)
    cluster.zookeeper.set(path, NO_SENSE)
    restart(cluster)
    until_acknowledged(cluster, owner.instance)
    eventually(
        lambda: owner.transaction() in ("PrepareAbort", "CompleteAbort"), within_s=TIMEOUT_S, what="the time-out"
    )
    other.until_groups_were_looked_through()

    assert owner.transaction() == "PrepareAbort"
    cluster.zookeeper.set(path, sense)
    cluster._change(f"topics/{owner.inside}")

    eventually(lambda: owner.transaction() == "CompleteAbort", within_s=TIMEOUT_S, what="the transaction to end")
    # What was written, and the marker.
    assert owner.ends() == [2, 2]
    assert eventually(owner.committed, within_s=TIMEOUT_S, what="the group's position") == 7


def test_groups_and_transactional_ids_of_an_instance_whose_document_makes_no_sense_stay(
    cluster: EngineCluster,
) -> None:
    owner, other = Owner(cluster, "ins-aaaaaaaa"), Owner(cluster, "ins-bbbbbbbb")
    owner.commit()
    owner.leave_a_transaction_open()
    path = paths.instance(owner.instance.id)
    sense, _ = cluster.zookeeper.get(path)
    cluster.zookeeper.set(path, NO_SENSE)
    restart(cluster)
    until_acknowledged(cluster, other.instance)
    other.until_groups_were_looked_through()

    cluster.zookeeper.set(path, sense)
    cluster._change(f"instances/{owner.instance.id}")
    until_acknowledged(cluster, owner.instance)

    assert eventually(owner.committed, within_s=TIMEOUT_S, what="the group's position") == 7
    eventually(lambda: owner.transaction() == "CompleteAbort", within_s=TIMEOUT_S, what="the transaction to end")
