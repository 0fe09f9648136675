"""Other people's clients as plain functions: create, list, produce and consume, each exactly as its users write it.

Records are `(partition, key, value)`; every function returns what it read per partition, in the order it was read.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

Record = tuple[int, bytes, bytes]
Log = dict[int, list[tuple[bytes, bytes]]]

READ_TIMEOUT_S = 120.0


class Client(Protocol):
    """Operations of a client under test."""

    name: str

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None: ...

    def list_topics(self, bootstrap: str) -> set[str]: ...

    def produce(self, bootstrap: str, topic: str, records: Sequence[Record], codec: str) -> None: ...

    def consume(self, bootstrap: str, topic: str, partitions: int, count: int) -> Log: ...


class ConfluentKafka:
    """confluent-kafka, which is librdkafka."""

    name = "confluent-kafka"

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)

    def list_topics(self, bootstrap: str) -> set[str]:
        from confluent_kafka.admin import AdminClient

        return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=10).topics)

    def produce(self, bootstrap: str, topic: str, records: Sequence[Record], codec: str) -> None:
        from confluent_kafka import Producer

        failures = []
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "queue.buffering.max.messages": 1_000_000}
        )
        for partition, key, value in records:
            producer.produce(
                topic, value, key, partition, on_delivery=lambda error, _m: failures.append(error) if error else None
            )
            producer.poll(0)
        assert producer.flush(READ_TIMEOUT_S) == 0
        assert failures == []

    def consume(self, bootstrap: str, topic: str, partitions: int, count: int) -> Log:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "interop", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        log: Log = {partition: [] for partition in range(partitions)}
        read, deadline = 0, time.monotonic() + READ_TIMEOUT_S
        while read < count and time.monotonic() < deadline:
            for message in consumer.consume(10_000, 0.5):
                assert message.error() is None, message.error()
                log[message.partition()].append((message.key(), message.value()))
                read += 1
        consumer.close()
        return log


class KafkaPython:
    """kafka-python, in Python all the way."""

    name = "kafka-python"

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        from kafka.admin import KafkaAdminClient, NewTopic

        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
        finally:
            admin.close()

    def list_topics(self, bootstrap: str) -> set[str]:
        from kafka.admin import KafkaAdminClient

        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            return set(admin.list_topics())
        finally:
            admin.close()

    def produce(self, bootstrap: str, topic: str, records: Sequence[Record], codec: str) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec)
        try:
            sent = [producer.send(topic, value, key, partition=partition) for partition, key, value in records]
            producer.flush(READ_TIMEOUT_S)
            for future in sent:
                future.get(READ_TIMEOUT_S)
        finally:
            producer.close()

    def consume(self, bootstrap: str, topic: str, partitions: int, count: int) -> Log:
        from kafka import KafkaConsumer, TopicPartition

        consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
        consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
        consumer.seek_to_beginning()
        log: Log = {partition: [] for partition in range(partitions)}
        read, deadline = 0, time.monotonic() + READ_TIMEOUT_S
        while read < count and time.monotonic() < deadline:
            for place, messages in consumer.poll(500, max_records=10_000).items():
                log[place.partition].extend((message.key, message.value) for message in messages)
                read += len(messages)
        consumer.close()
        return log


class Kcat:
    """kcat, as a shell user runs it: one partition at a time, keys and values apart by a tab."""

    name = "kcat"

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        """kcat has no admin call: the first mention creates the topic with the instance's default partitions."""
        self._run(bootstrap, "-P", "-t", topic, "-p", "0", stdin=b"")
        deadline = time.monotonic() + 30
        while topic not in self.list_topics(bootstrap, topic) and time.monotonic() < deadline:
            time.sleep(0.1)

    def list_topics(self, bootstrap: str, topic: str | None = None) -> set[str]:
        lines = self._run(bootstrap, "-L", *(("-t", topic) if topic else ())).decode().splitlines()
        return {
            line.split('"')[1] for line in lines if line.strip().startswith('topic "') and "0 partitions" not in line
        }

    def produce(self, bootstrap: str, topic: str, records: Sequence[Record], codec: str) -> None:
        for partition, lines in _by_partition(records).items():
            self._run(
                bootstrap, "-P", "-t", topic, "-p", str(partition), "-K", "\t", "-z", codec,
                "-X", "queue.buffering.max.messages=1000000", stdin=lines,
            )  # fmt: skip

    def consume(self, bootstrap: str, topic: str, partitions: int, count: int) -> Log:
        log: Log = {}
        for partition in range(partitions):
            raw = self._run(
                bootstrap, "-C", "-t", topic, "-p", str(partition), "-o", "beginning", "-e", "-q", "-K", "\t"
            )
            pairs = [line.partition(b"\t") for line in raw.splitlines()]
            log[partition] = [(key, value) for key, _, value in pairs]
        return log

    @staticmethod
    def _run(bootstrap: str, *arguments: str, stdin: bytes | None = None) -> bytes:
        done = subprocess.run(
            ["kcat", "-b", bootstrap, *arguments], input=stdin, capture_output=True, timeout=READ_TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout


def _by_partition(records: Iterable[Record]) -> dict[int, bytes]:
    lines: dict[int, list[bytes]] = {}
    for partition, key, value in records:
        lines.setdefault(partition, []).append(key + b"\t" + value + b"\n")
    return {partition: b"".join(result) for partition, result in lines.items()}
