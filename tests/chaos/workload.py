"""Workload of a producer that sends numbered records at a constant rate, and records their acknowledgements."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.chaos.verdict import Acknowledged

VALUE_BYTES = 100
NUMBER_DIGITS = 12
QUEUED_MAX = 20_000
READ_TIMEOUT_S = 300.0
FLUSH_TIMEOUT_S = 120.0


def number_of(value: bytes) -> int:
    """Returns the number in a record's value."""
    return int(value[:NUMBER_DIGITS])


class Workload:
    """One producer over all partitions of a topic. `failures` has errors of the client; it should stay empty."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        idempotent: bool,
        records_per_s: int,
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Creates the workload. `settings` are the clients' settings for sign-in."""
        self.bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self._settings = settings
        self.idempotent = idempotent
        self.acknowledged = [Acknowledged() for _ in range(partitions)]
        self.failures: list[str] = []
        self._records_per_s = records_per_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send, name=f"producer-{topic}")
        self._producer = Producer(
            {
                **settings,
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                # Without sequence numbers only one request under way keeps the order.
                "max.in.flight": 5 if idempotent else 1,
                "linger.ms": 2,
                "message.timeout.ms": 300_000,
                "request.timeout.ms": 10_000,
                "socket.timeout.ms": 15_000,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,
                "retry.backoff.ms": 50,
                "topic.metadata.refresh.interval.ms": 10_000,
                "queue.buffering.max.messages": QUEUED_MAX,
                "log_level": 0,
            }
        )

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Stops sending, and waits until every record is acknowledged or has failed."""
        self._stop.set()
        self._thread.join()
        unanswered_count = self._producer.flush(FLUSH_TIMEOUT_S)
        if unanswered_count:
            self.failures.append(f"{unanswered_count} records have no answer")

    @property
    def count(self) -> int:
        return sum(partition.count for partition in self.acknowledged)

    def _send(self) -> None:
        sent_count = 0
        started_s = time.monotonic()
        while not self._stop.is_set():
            number, partition = divmod(sent_count, self.partitions)
            value = b"%0*d" % (NUMBER_DIGITS, number)
            try:
                self._producer.produce(
                    self.topic, value.ljust(VALUE_BYTES, b"."), partition=partition, on_delivery=self._on_delivery
                )
                sent_count += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)
            if sent_count % 20 == 0:
                ahead_s = sent_count / self._records_per_s - (time.monotonic() - started_s)
                if ahead_s > 0:
                    self._poll_for(ahead_s)
                elif ahead_s < -1.0:
                    started_s -= ahead_s  # records that an outage prevented are not sent later

    def _poll_for(self, seconds: float) -> None:
        """Polls for the given time; each acknowledgement ends one poll."""
        ends_s = time.monotonic() + seconds
        while (left_s := ends_s - time.monotonic()) > 0 and not self._stop.is_set():
            self._producer.poll(left_s)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        value, partition = message.value(), message.partition()
        assert value is not None and partition is not None
        self.acknowledged[partition].add(number_of(value), time.monotonic() * 1000)

    def read(self) -> dict[int, list[int]]:
        """Returns the numbers in each partition, in the order of the log."""
        settings: dict[str, Any] = {
            **self._settings,
            "bootstrap.servers": self.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        consumer = Consumer(settings)
        numbers_by_partition: dict[int, list[int]] = {partition: [] for partition in range(self.partitions)}
        end_offsets = {
            partition: consumer.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=30)[1]
            for partition in range(self.partitions)
        }
        next_offsets = dict.fromkeys(range(self.partitions), 0)
        consumer.assign([TopicPartition(self.topic, partition, 0) for partition in range(self.partitions)])
        deadline_s = time.monotonic() + READ_TIMEOUT_S
        while (
            any(next_offsets[partition] < end for partition, end in end_offsets.items())
            and time.monotonic() < deadline_s
        ):
            for message in consumer.consume(10_000, 0.5):
                value, partition, offset = message.value(), message.partition(), message.offset()
                assert message.error() is None and value is not None and partition is not None and offset is not None
                numbers_by_partition[partition].append(number_of(value))
                next_offsets[partition] = offset + 1
        consumer.close()
        return numbers_by_partition
