"""An idempotent producer whose every fifth answer gets lost: no duplicate, no gap, the order kept (IDE-6, IDE-12)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.engine.protocol.apis import ApiKey
from config.embedded.process import free_port
from tests.interop.lossy import LossyProxy
from tests.testkit.engine import HOST, EngineCluster

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

RECORDS = int(os.environ.get("PENSTOCK_INTEROP_RECORDS", "1000"))
PARTITIONS, EVERY = 3, 5
TIMEOUT_S = 120.0


def produced(bootstrap: str, topic: str, count: int) -> None:
    """Small batches, so that there are many answers to lose."""
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "batch.num.messages": 20,
            "linger.ms": 1,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "log_level": 0,
        }
    )
    for number in range(count):
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failures.append(str(error)) if error else None,
        )
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == []


def read(bootstrap: str, topic: str) -> dict[int, list[int]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0})
    result: dict[int, list[int]] = {index: [] for index in range(PARTITIONS)}
    places = [TopicPartition(topic, index, 0) for index in range(PARTITIONS)]
    ends = {place.partition: consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)[1] for place in places}
    consumer.assign(places)
    while any(len(result[index]) < end for index, end in ends.items()):
        messages = consumer.consume(1_000, 10)
        assert messages, "the records stay away"
        for message in messages:
            result[message.partition()].append(int(message.value() or b""))
    consumer.close()
    return result


def test_an_idempotent_producer_loses_answers_but_neither_records_nor_their_order(
    zookeeper_address: str, tmp_path: Path
) -> None:
    with EngineCluster(zookeeper_address, tmp_path) as cluster:
        instance = cluster.create_instance("ins-lossy000")
        ((broker_id, listening),) = instance.document.ports.items()
        proxy = LossyProxy(free_port(), (HOST, listening), every=EVERY, api_key=ApiKey.PRODUCE)
        # The proxy's address is advertised as the broker's.
        instance = cluster.update_instance(instance, endpoints={broker_id: f"{HOST}:{proxy.port}"})
        with proxy:
            admin = AdminClient({"bootstrap.servers": instance.bootstrap})
            admin.create_topics([NewTopic("sequenced", PARTITIONS, 1)])["sequenced"].result(30)
            produced(instance.bootstrap, "sequenced", RECORDS)
            assert proxy.lost >= 8, "too few answers were lost to prove anything"
            result = read(instance.bootstrap, "sequenced")
    assert result == {index: list(range(index, RECORDS, PARTITIONS)) for index in range(PARTITIONS)}
