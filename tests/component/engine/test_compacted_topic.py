"""A compacted topic on a real broker process: written by a stock client, cleaned, and intact after kill -9."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.engine import EngineCluster, TestInstance, eventually

KEYS = 50
RECORDS = 3_000
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "65536",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "86400000",
}

OVERRIDES = {"log.cleaner.backoff.ms": "200", "log.segment.bytes.min": "1"}


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    directory = tmp_path_factory.mktemp("compacted")
    with EngineCluster(zookeeper_address, directory, overrides=OVERRIDES) as running:
        yield running


def _read_to(instance: TestInstance, topic: str, last_offset: int) -> dict[int, tuple[bytes, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": instance.bootstrap, "group.id": "t", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    result: dict[int, tuple[bytes, bytes | None]] = {}

    def take(message: Message) -> None:
        assert message.error() is None, message.error()
        offset, key = message.offset(), message.key()
        assert offset is not None
        assert isinstance(key, bytes)
        value = message.value()
        result[offset] = key, None if value is None else bytes(value)

    def all_there() -> bool:
        for message in consumer.consume(1_000, 0.2):
            take(message)
        return last_offset in result

    try:
        eventually(all_there, f"offset {last_offset} of {topic}", 30)
    finally:
        consumer.close()
    return result


def _cleaned(cluster: EngineCluster) -> list[dict[str, Any]]:
    return [line for line in cluster.brokers[0].log_lines() if line["event"] == "log_cleaned"]


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_compacted_topic_keeps_the_last_value_of_each_key(cluster: EngineCluster, codec: str) -> None:
    """CMP-4, CMP-5, CMP-7, CMP-10."""
    instance = cluster.instances.get("ins-cccccccc") or cluster.create_instance("ins-cccccccc")
    topic = f"state-{codec}"
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=CONFIG)])[topic].result(30)
    producer = Producer(
        {
            "bootstrap.servers": instance.bootstrap,
            "compression.type": codec,
            "enable.idempotence": True,
            "batch.num.messages": 20,
        }
    )
    written: dict[int, tuple[bytes, bytes | None]] = {}

    def done(error: object, message: Message) -> None:
        assert error is None
        offset, key = message.offset(), message.key()
        assert offset is not None
        assert isinstance(key, bytes)
        value = message.value()
        written[offset] = key, None if value is None else bytes(value)

    for number in range(RECORDS):
        value = None if number % 31 == 0 else f"{number}:".encode() + bytes(number % 256 for _ in range(300))
        producer.produce(topic, value, key=f"key-{number % KEYS}".encode(), partition=0, on_delivery=done)
        producer.poll(0)
    assert producer.flush(30) == 0
    last = max(written)

    def is_clean() -> bool:
        return len(_read_to(instance, topic, last)) < RECORDS // 2

    eventually(is_clean, "the topic is cleaned")
    result = _read_to(instance, topic, last)
    assert all(written[offset] == pair for offset, pair in result.items()), "offsets and contents never change"
    latest = {key: offset for offset, (key, _) in sorted(written.items())}
    assert set(latest.values()) <= set(result), "the last value of each key is there, delete markers too"

    def runs() -> list[dict[str, Any]]:
        return [line for line in _cleaned(cluster) if line["topic"].endswith(topic)]

    eventually(lambda: bool(runs()), "the cleaner tells of it")  # after readers have what it left
    run = runs()[0]
    assert run["bytes_after"] < run["bytes_before"] / 2
    assert run["cpu_s"] > 0

    cluster.brokers[0].kill()
    cluster.brokers[0].start()
    cluster.brokers[0].wait_until_ready()
    again = _read_to(instance, topic, last)
    assert set(latest.values()) <= set(again) <= set(written)
    assert all(written[offset] == pair for offset, pair in again.items())
    checkpoint = Path(cluster.brokers[0].settings.data_dirs[0], "cleaner-offset-checkpoint").read_text().split("\n")
    assert checkpoint[0] == "0"
    assert any(line.startswith(f"ins-cccccccc.{topic} 0 ") for line in checkpoint[2:])
