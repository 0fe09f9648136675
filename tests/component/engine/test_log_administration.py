"""A real broker process administered by stock clients: deletions survive kill -9 (LOG-46)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import ConfigResource as KafkaPythonResource

from tests.testkit.engine import EngineCluster, TestInstance, eventually

TIMEOUT_S = 30


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    directory = tmp_path_factory.mktemp("logs")
    with EngineCluster(zookeeper_address, directory) as running:
        yield running


@pytest.fixture(scope="module")
def instance(cluster: EngineCluster) -> TestInstance:
    return cluster.create_instance("ins-aaaaaaaa")


@pytest.fixture
def admin(instance: TestInstance) -> AdminClient:
    return AdminClient({"bootstrap.servers": instance.bootstrap})


@pytest.fixture
def kafka_python(instance: TestInstance) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=instance.bootstrap)
    yield client
    client.close()


def topic_of(admin: AdminClient, instance: TestInstance, name: str, records: int = 10, **config: str) -> str:
    """Creates a topic of one partition with a number of records, each in a batch of its own."""
    wanted = NewTopic(name, 1, 1, config={key.replace("_", "."): value for key, value in config.items()})
    admin.create_topics([wanted])[name].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": instance.bootstrap, "batch.num.messages": 1})
    for number in range(records):
        producer.produce(name, b"%d" % number, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return name


def watermarks(instance: TestInstance, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": instance.bootstrap, "group.id": "looking"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
    finally:
        consumer.close()
    return low, high


def own_settings(admin: AdminClient, topic: str) -> dict[str, str | None]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    described = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return {name: entry.value for name, entry in described.items() if entry.source == 1}


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_records_deleted_by_a_client_do_not_come_back(
    cluster: EngineCluster, instance: TestInstance, admin: AdminClient, end: str
) -> None:
    topic = topic_of(admin, instance, f"forgotten-{end}")

    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 7)]).values()
    assert deleted.result(TIMEOUT_S).low_watermark == 7
    broker = cluster.brokers[0]
    broker.kill() if end == "kill" else broker.stop()
    broker.start()
    broker.wait_until_ready()
    eventually(lambda: topic in broker.admin(f"/v1/instances/{instance.id}/topics")["topics"], "the topic is led")

    assert watermarks(instance, topic) == (7, 10)
    again = AdminClient({"bootstrap.servers": instance.bootstrap})
    (deleted,) = again.delete_records([TopicPartition(topic, 0, OFFSET_END)]).values()
    assert deleted.result(TIMEOUT_S).low_watermark == 10
    assert watermarks(instance, topic) == (10, 10)


def test_a_refused_deletion_of_records_has_its_reason(instance: TestInstance, admin: AdminClient) -> None:
    topic = topic_of(admin, instance, "kept", 3)
    compacted = topic_of(admin, instance, "compacted-only", 0, cleanup_policy="compact")

    for partition, code in (
        (TopicPartition(topic, 0, 4), "OFFSET_OUT_OF_RANGE"),
        (TopicPartition(compacted, 0, 0), "POLICY_VIOLATION"),
        (TopicPartition("nothing", 0, 0), "_NOENT"),
    ):
        (deleted,) = admin.delete_records([partition]).values()
        with pytest.raises(KafkaException) as refused:
            deleted.result(TIMEOUT_S)
        assert refused.value.args[0].name() == code


def test_kafka_python_deletes_records_and_looks_at_directories(
    instance: TestInstance, admin: AdminClient, kafka_python: Any
) -> None:
    topic = topic_of(admin, instance, "by-kafka-python")

    kafka_python.delete_records({KafkaPythonPartition(topic, 0): 4})
    assert watermarks(instance, topic) == (4, 10)

    text = str(kafka_python.describe_log_dirs())
    assert topic in text
    assert "/log-dirs/0" in text
    assert instance.id not in text
    assert "/tmp" not in text


def test_stock_clients_replace_a_topics_settings(instance: TestInstance, admin: AdminClient, kafka_python: Any) -> None:
    topic = topic_of(admin, instance, "configured", 0, segment_bytes="1000000")

    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={"retention.ms": "5000"})
    with pytest.warns(DeprecationWarning):
        replaced = admin.alter_configs([resource])[resource]
    replaced.result(TIMEOUT_S)
    assert own_settings(admin, topic) == {"retention.ms": "5000"}

    wanted = KafkaPythonResource("TOPIC", topic, configs={"max.message.bytes": "2000"})
    kafka_python.alter_configs([wanted], incremental=False)
    assert own_settings(admin, topic)["max.message.bytes"] == "2000"


def test_the_status_of_a_broker_names_its_directories(cluster: EngineCluster) -> None:
    broker = cluster.brokers[0]
    (directory,) = broker.admin("/v1/status")["log_directories"]

    assert directory["path"] == broker.settings.data_dirs[0]
    assert directory["offline_reason"] is None
    assert directory["partitions"] == broker.admin("/v1/status")["replicas"]


def test_a_process_with_a_broken_disk_serves_what_is_on_the_others(zookeeper_address: str, tmp_path: Path) -> None:
    with EngineCluster(zookeeper_address, tmp_path, log_dirs=2) as cluster:
        instance = cluster.create_instance("ins-aaaaaaaa")
        admin = AdminClient({"bootstrap.servers": instance.bootstrap})
        admin.create_topics([NewTopic("spread", 6, 1)])["spread"].result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": instance.bootstrap})
        for partition in range(6):
            producer.produce("spread", b"x", partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        broker = cluster.brokers[0]
        assert broker.stop() == 0
        lost = Path(broker.settings.data_dirs[1])
        on_lost = {int(path.name.rpartition("-")[2]) for path in lost.glob("ins-aaaaaaaa.spread-*")}
        assert 0 < len(on_lost) < 6
        lost.rename(tmp_path / "away")
        lost.write_text("no directory")

        broker.start()
        topics = f"/v1/instances/{instance.id}/topics"
        eventually(lambda: broker.status_of("/healthz") == 200, "the process answers")
        eventually(lambda: broker.admin("/v1/status")["instances"] == 1, "the instance is served")
        eventually(lambda: "spread" in broker.admin(topics)["topics"], "the topic is led")

        first, second = broker.admin("/v1/status")["log_directories"]
        assert (first["offline_reason"], bool(second["offline_reason"])) == (None, True)
        assert broker.status_of("/readyz") == 503
        served = {line["partition"] for line in broker.admin(topics)["topics"]["spread"]}
        assert served == set(range(6)) - on_lost
        assert broker.stop() == 0
        lost.unlink()
        (tmp_path / "away").rename(lost)

        broker.start()
        broker.wait_until_ready()
        eventually(lambda: len(broker.admin(topics)["topics"].get("spread", [])) == 6, "all partitions are led again")
        assert {line["high_watermark"] for line in broker.admin(topics)["topics"]["spread"]} == {1}
