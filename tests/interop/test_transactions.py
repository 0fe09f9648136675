"""Consume, transform, produce with stock clients: offsets and output commit together or not at all (TXN-25, TXN-26)."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.groups import committed
from tests.testkit.waiting import eventually

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

RECORDS = 30
TIMEOUT_S = 30.0


class Topics:
    """An input with records 0, 1, …, and an empty output."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.name = uuid.uuid4().hex[:12]
        self.source, self.sink = f"source-{self.name}", f"sink-{self.name}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for created in admin.create_topics([NewTopic(name, 1, 3) for name in (self.source, self.sink)]).values():
            created.result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        for number in range(RECORDS):
            producer.produce(self.source, b"%d" % number)
        assert producer.flush(TIMEOUT_S) == 0

    def read(self, isolation: str) -> list[bytes]:
        """All of the output, as far as a reader of this isolation gets."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"reader-{uuid.uuid4().hex}",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.sink, 0, 0)])
        result: list[bytes] = []
        try:
            while True:
                message = consumer.poll(TIMEOUT_S)
                assert message is not None, "neither a record nor the end"
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    return result
                value = message.value()
                assert value is not None
                result.append(value)
        finally:
            consumer.close()

    @property
    def group(self) -> str:
        return f"group-{self.name}"

    def committed(self) -> int:
        return committed(self.bootstrap, self.group, self.source, 1)[0]


@pytest.fixture
def topics(coordinating_bootstrap: str) -> Topics:
    return Topics(coordinating_bootstrap)


def doubled(numbers: range) -> list[bytes]:
    return [b"%d" % (2 * number) for number in numbers]


class Confluent:
    """One run of an application: reads on from the committed offset."""

    def __init__(self, topics: Topics) -> None:
        common = {"bootstrap.servers": topics.bootstrap, "log_level": 0}
        self.topics = topics
        self.producer = Producer({**common, "transactional.id": f"app-{topics.name}", "transaction.timeout.ms": 60_000})
        self.producer.init_transactions(TIMEOUT_S)
        self.consumer = Consumer(
            {
                **common,
                "group.id": topics.group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self.consumer.subscribe([topics.source])

    def transform(self, count: int) -> None:
        """Sends a number of records in a transaction that is left open."""
        self.producer.begin_transaction()
        read = []
        while len(read) < count:
            read += self.consumer.consume(count - len(read), TIMEOUT_S)
        for message in read:
            self.producer.produce(self.topics.sink, b"%d" % (2 * int(message.value() or b"")))
        positions = self.consumer.position([TopicPartition(self.topics.source, 0)])
        self.producer.send_offsets_to_transaction(positions, self.consumer.consumer_group_metadata(), TIMEOUT_S)
        assert self.producer.flush(TIMEOUT_S) == 0


def test_output_and_offsets_commit_together_or_not_at_all(topics: Topics) -> None:
    first = Confluent(topics)
    first.transform(10)
    assert topics.read("read_committed") == []
    assert topics.read("read_uncommitted") == doubled(range(10))
    first.producer.commit_transaction(TIMEOUT_S)
    assert topics.read("read_committed") == doubled(range(10))
    eventually(lambda: topics.committed() == 10, what="the offset of the first transaction")
    first.transform(10)
    first.producer.abort_transaction(TIMEOUT_S)
    assert topics.read("read_committed") == doubled(range(10))
    assert topics.committed() == 10
    first.consumer.close()
    second = Confluent(topics)
    second.transform(20)
    second.producer.commit_transaction(TIMEOUT_S)
    assert topics.read("read_committed") == doubled(range(RECORDS))
    eventually(lambda: topics.committed() == RECORDS, what="the offset of the last transaction")
    second.consumer.close()


def test_an_application_that_was_replaced_gets_nothing_through(topics: Topics) -> None:
    zombie = Confluent(topics)
    zombie.transform(10)
    successor = Confluent(topics)
    with pytest.raises(KafkaException) as raised:
        zombie.producer.commit_transaction(TIMEOUT_S)
    assert raised.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    assert topics.read("read_committed") == []
    zombie.consumer.close()
    successor.transform(RECORDS)
    successor.producer.commit_transaction(TIMEOUT_S)
    assert topics.read("read_committed") == doubled(range(RECORDS))
    successor.consumer.close()


def test_aiokafka_transforms_exactly_once(topics: Topics) -> None:
    asyncio.run(_aiokafka(topics))
    assert topics.read("read_committed") == doubled(range(RECORDS))
    assert topics.committed() == RECORDS


async def _aiokafka(topics: Topics) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.structs import TopicPartition as Place

    producer = AIOKafkaProducer(bootstrap_servers=topics.bootstrap, transactional_id=f"app-{topics.name}")
    consumer = AIOKafkaConsumer(
        topics.source,
        bootstrap_servers=topics.bootstrap,
        group_id=topics.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    await producer.start()
    await consumer.start()
    try:
        place, position, aborted = Place(topics.source, 0), 0, False
        while position < RECORDS:
            read = (await consumer.getmany(timeout_ms=1_000, max_records=10)).get(place, [])
            if not read:
                continue
            await producer.begin_transaction()
            for message in read:
                await producer.send(topics.sink, b"%d" % (2 * int(message.value)))
            await producer.send_offsets_to_transaction({place: read[-1].offset + 1}, topics.group)
            if not aborted:  # the first attempt is thrown away
                aborted = True
                await producer.abort_transaction()
                consumer.seek(place, position)
                continue
            await producer.commit_transaction()
            position = read[-1].offset + 1
    finally:
        await consumer.stop()
        await producer.stop()


def test_kafka_python_transforms_exactly_once(topics: Topics) -> None:
    from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata
    from kafka import TopicPartition as Place

    producer = KafkaProducer(bootstrap_servers=topics.bootstrap, transactional_id=f"app-{topics.name}")
    consumer = KafkaConsumer(
        topics.source,
        bootstrap_servers=topics.bootstrap,
        group_id=topics.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    try:
        _kafka_python(topics, producer, consumer, Place(topics.source, 0), OffsetAndMetadata)
    finally:
        consumer.close()
        producer.close()
    assert topics.read("read_committed") == doubled(range(RECORDS))
    assert topics.committed() == RECORDS


def _kafka_python(topics: Topics, producer: Any, consumer: Any, place: Any, committed_at: Any) -> None:
    position, aborted = 0, False
    producer.init_transactions()
    while position < RECORDS:
        read = consumer.poll(1_000, max_records=10).get(place, [])
        if not read:
            continue
        producer.begin_transaction()
        for message in read:
            producer.send(topics.sink, b"%d" % (2 * int(message.value)))
        offsets = {place: committed_at(read[-1].offset + 1, "", -1)}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        if not aborted:
            aborted = True
            producer.abort_transaction()
            consumer.seek(place, position)
            continue
        producer.commit_transaction()
        position = read[-1].offset + 1
