"""Copies messages from one topic to another, each exactly once: `copier.py SOURCE TARGET`.

The copies and the offsets of what was read are one transaction: either both are there or none. Readers of the target
set `isolation.level=read_committed`, or they also see copies that were given up. SIGTERM ends the program between two
transactions.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from settings import client_settings

AT_ONCE = 500
POLL_S = 1.0
TIMEOUT_S = 60


class Copier:
    """One copier. `name` is its own among those that run: a new one of the same name ends the old one's transaction."""

    def __init__(self, source: str, target: str, name: str) -> None:
        self._target = target
        self._is_stopping = False
        self._consumer = Consumer(
            client_settings()
            | {
                "group.id": f"copier-{source}-{target}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": "false",
                "isolation.level": "read_committed",
            }
        )
        self._producer = Producer(client_settings() | {"transactional.id": f"copier-{source}-{target}-{name}"})
        self._producer.init_transactions(TIMEOUT_S)
        self._consumer.subscribe([source])

    def stop(self, *_signal: object) -> None:
        self._is_stopping = True

    def run(self) -> None:
        try:
            while not self._is_stopping:
                messages = self._consumer.consume(AT_ONCE, timeout=POLL_S)
                if messages:
                    self._copy(messages)
        finally:
            self._consumer.close()

    def _copy(self, messages: Sequence[Message]) -> None:
        self._producer.begin_transaction()
        try:
            for message in messages:
                if message.error() is not None:
                    raise KafkaException(message.error())
                self._send(message)
            positions = self._consumer.position(self._consumer.assignment())
            metadata = self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(positions, metadata, TIMEOUT_S)
            self._commit()
        except KafkaException as failure:
            if failure.args[0].fatal():  # another copier has this name, or the broker has given it up: start anew
                raise
            self._producer.abort_transaction(TIMEOUT_S)
            self._rewind()

    def _send(self, message: Message) -> None:
        value = message.value()
        changed = None if value is None else value.upper()  # the work of your program
        while True:
            try:
                self._producer.produce(self._target, key=message.key(), value=changed, headers=message.headers())
                return
            except BufferError:
                self._producer.poll(0.1)

    def _commit(self) -> None:
        """A commit whose outcome is not known may be tried again: it happens once."""
        while True:
            try:
                self._producer.commit_transaction(TIMEOUT_S)
                return
            except KafkaException as failure:
                if not failure.args[0].retriable():
                    raise

    def _rewind(self) -> None:
        """Reads again from what was committed: messages of the transaction that was given up were not copied."""
        assigned = self._consumer.assignment()
        for committed in self._consumer.committed(assigned, TIMEOUT_S):
            if committed.offset >= 0:
                self._consumer.seek(committed)
            else:
                first, _ = self._consumer.get_watermark_offsets(committed, TIMEOUT_S)
                self._consumer.seek(TopicPartition(committed.topic, committed.partition, first))


if __name__ == "__main__":
    copier = Copier(sys.argv[1], sys.argv[2], os.environ.get("COPIER_NAME", "1"))
    signal.signal(signal.SIGTERM, copier.stop)
    copier.run()
