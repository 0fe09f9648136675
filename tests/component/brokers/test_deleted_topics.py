"""Deleted and restored topics on real brokers: hidden, kept, and unchanged after the restore."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from django.utils import timezone
from kafka.protocol.consumer.fetch import FetchRequest

from brokers.dataplane import admin_client
from brokers.dataplane.admin_client import send_as_instance
from brokers.dataplane.topics import KafkaTopicAdminClient
from brokers.monitoring.observe import AdminPortObservation
from brokers.provisioning import topic_documents
from brokers.provisioning.publisher import Publisher
from instances import naming, services
from instances.models import DeletedTopic, Instance, TopicAllowList
from tenants.actors import system_actor
from tests.testkit.engine import EngineCluster, eventually
from tests.testkit.engine_fleet import create_fleet_rows

INSTANCE_ID = "ins-undo0001"
MESSAGES = 40
PARTITIONS = 2
POLICY_VIOLATION = 44
FETCH_BY_ID_VERSION = 13
UNKNOWN_TOPIC_ID = 100

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def engines(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("undo"), size=2) as running:
        running.create_instance(INSTANCE_ID)
        yield running
    admin_client.links().close()


@pytest.fixture
def instance(engines: EngineCluster, tmp_path: Path, db: None) -> Instance:
    create_fleet_rows(engines, tmp_path, INSTANCE_ID)
    return Instance.objects.get(pk=INSTANCE_ID)


class Undo:
    """A topic with records and a group, and the ways to delete and restore it."""

    def __init__(self, engines: EngineCluster, instance: Instance) -> None:
        self.instance, self.publisher = instance, Publisher(engines.zookeeper, "")
        self.bootstrap = engines.instances[INSTANCE_ID].bootstrap
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self.name, self.group = f"orders-{uuid.uuid4().hex[:6]}", f"mail-{uuid.uuid4().hex[:6]}"
        self.acting = system_actor("test", instance.tenant)
        self.make()

    def make(self) -> None:
        topic = NewTopic(self.name, PARTITIONS, 2, config={"retention.ms": "86400000"})
        self.admin.create_topics([topic], request_timeout=30)[self.name].result(30)

    def fill(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all"})
        for number in range(MESSAGES):
            producer.produce(self.name, value=str(number).encode(), partition=number % PARTITIONS)
        assert producer.flush(20) == 0
        offsets = [TopicPartition(self.name, partition, 7) for partition in range(PARTITIONS)]
        request = [ConsumerGroupTopicPartitions(self.group, offsets)]
        self.admin.alter_consumer_group_offsets(request)[self.group].result(30)

    def delete(self) -> None:
        services.delete_topic(acting=self.acting, instance=self.instance, name=self.name)
        topic_documents.publish(self.instance, self.publisher)
        eventually(lambda: self.name not in self.listed(), "the topic is hidden")

    def restore(self) -> None:
        services.restore_topic(acting=self.acting, instance=self.instance, name=self.name)
        topic_documents.publish(self.instance, self.publisher)
        eventually(lambda: self.name in self.listed(), "the topic is shown")

    def listed(self) -> set[str]:
        return {topic.name for topic in KafkaTopicAdminClient().topics(INSTANCE_ID)}

    def values(self) -> set[bytes]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "reader", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.name, partition, 0) for partition in range(PARTITIONS)])
        found: set[bytes] = set()

        def read() -> bool:
            for message in consumer.consume(100, timeout=1):
                assert message.error() is None, message.error()
                found.add(message.value())
            return len(found) >= MESSAGES

        eventually(read, "all records are read")
        consumer.close()
        return found


@pytest.fixture
def undo(engines: EngineCluster, instance: Instance) -> Undo:
    return Undo(engines, instance)


def error_of(act: object) -> int:
    with pytest.raises(KafkaException) as failure:
        act.result(30)  # type: ignore[attr-defined]
    return int(failure.value.args[0].code())


def test_a_deleted_topic_is_hidden_from_clients_and_comes_back_with_records_offsets_and_settings(undo: Undo) -> None:
    undo.fill()
    topic_id = KafkaTopicAdminClient().topic(INSTANCE_ID, undo.name).topic_id
    undo.delete()
    producer = Producer({"bootstrap.servers": undo.bootstrap, "message.timeout.ms": 3_000})
    refused: list[KafkaError] = []
    producer.produce(undo.name, value=b"late", on_delivery=lambda error, _message: refused.append(error))
    producer.flush(20)
    assert refused
    assert refused[0] is not None
    assert AdminPortObservation().topic_sizes(INSTANCE_ID).hidden[undo.name] > 0
    assert undo.name not in AdminPortObservation().topic_sizes(INSTANCE_ID).topics

    undo.restore()
    assert not DeletedTopic.objects.exists()
    assert KafkaTopicAdminClient().topic(INSTANCE_ID, undo.name).topic_id == topic_id
    assert undo.values() == {str(number).encode() for number in range(MESSAGES)}
    asked = undo.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(undo.group)])[undo.group].result(30)
    assert {(line.topic, line.partition, line.offset) for line in asked.topic_partitions} == {
        (undo.name, 0, 7), (undo.name, 1, 7),
    }  # fmt: skip
    resource = ConfigResource(ConfigResource.Type.TOPIC, undo.name)
    assert undo.admin.describe_configs([resource])[resource].result(30)["retention.ms"].value == "86400000"


def test_no_call_that_names_a_hidden_topic_finds_it_and_its_name_stays_taken(undo: Undo) -> None:
    undo.fill()
    described = KafkaTopicAdminClient().topic(INSTANCE_ID, undo.name)
    undo.delete()
    assert error_of(undo.admin.delete_topics([undo.name])[undo.name]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert error_of(undo.admin.create_topics([NewTopic(undo.name, 1, 1)])[undo.name]) == POLICY_VIOLATION
    resource = ConfigResource(ConfigResource.Type.TOPIC, undo.name)
    assert error_of(undo.admin.describe_configs([resource])[resource]) == KafkaError.UNKNOWN_TOPIC_OR_PART
    by_id = FetchRequest(
        version=FETCH_BY_ID_VERSION, max_wait_ms=0, min_bytes=0, max_bytes=1_000_000, isolation_level=0, session_id=0,
        session_epoch=-1, forgotten_topics_data=[], rack_id="",
        topics=[
            FetchRequest.FetchTopic(
                topic_id=uuid.UUID(described.topic_id),
                partitions=[
                    FetchRequest.FetchTopic.FetchPartition(
                        partition=0, current_leader_epoch=-1, fetch_offset=0, last_fetched_epoch=-1,
                        log_start_offset=-1, partition_max_bytes=1_000_000,
                    )
                ],
            )
        ],
    )  # fmt: skip
    (answered,) = send_as_instance(INSTANCE_ID, by_id).responses
    assert answered.partitions[0].error_code == UNKNOWN_TOPIC_ID
    assert not answered.partitions[0].records


def test_a_topic_deleted_for_good_is_gone_and_one_made_again_under_its_name_is_shown_though_lists_were_kept(
    undo: Undo, engines: EngineCluster
) -> None:
    TopicAllowList.objects.create(instance=undo.instance, topic=undo.name, produce_ips=["127.0.0.1"])
    undo.fill()
    undo.delete()
    services.purge_deleted_topic(acting=undo.acting, instance=undo.instance, name=undo.name)
    internal = naming.internal_topic(INSTANCE_ID, undo.name)
    eventually(lambda: not undo.publisher.topic_exists(internal), "the topic is gone")
    assert not DeletedTopic.objects.exists()
    eventually(lambda: undo.name not in AdminPortObservation().topic_sizes(INSTANCE_ID).hidden, "it takes no storage")
    undo.make()
    eventually(lambda: undo.name in undo.listed(), "the new topic is shown")
    topic_documents.publish(undo.instance, undo.publisher)
    assert TopicAllowList.objects.get(topic=undo.name).produce_ips == []
    asked = undo.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(undo.group)])[undo.group].result(30)
    assert [line for line in asked.topic_partitions if line.topic == undo.name and line.offset >= 0] == []


def test_a_topic_that_nobody_can_restore_any_more_goes_with_the_next_round(undo: Undo) -> None:
    undo.fill()
    undo.delete()
    assert services.purge_expired_topics(timezone.now()) == 0
    DeletedTopic.objects.update(expires_at=timezone.now())
    assert services.purge_expired_topics(timezone.now()) == 1
    internal = naming.internal_topic(INSTANCE_ID, undo.name)
    eventually(lambda: not undo.publisher.topic_exists(internal), "the topic is gone")
    assert services.purge_expired_topics(timezone.now()) == 0
