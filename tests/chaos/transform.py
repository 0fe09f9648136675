"""Application of the exactly-once workload: reads numbers, and writes `transform_number(number)` in transactions.

python -m tests.chaos.transform --bootstrap … --source … --sink … --group … --name …

Several of them share the group, each under a transactional id of its own. It continues after every error that a client
may continue after; when its producer is fenced or failed for good it ends with FATAL, and its supervisor starts it
again.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.chaos.workload import number_of

FATAL: Final = 3
TIMEOUT_S: Final = 30.0
BATCH_MAX: Final = 200
POLL_S: Final = 0.2
RETRIES: Final = 100
# A transaction is kept open for up to this long before and after its offsets are sent, or kills would hit it rarely.
LINGER_S: Final = 0.2
# Share of transactions that are aborted without a reason, after everything was sent.
GIVEN_UP_SHARE: Final = 0.1


def transform_number(number: int) -> int:
    return number * 7 + 3


def client_settings(bootstrap: str) -> dict[str, Any]:
    """Returns the network settings of both clients."""
    return {
        "bootstrap.servers": bootstrap,
        "socket.timeout.ms": 10_000,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "retry.backoff.ms": 50,
        "topic.metadata.refresh.interval.ms": 10_000,
        "log_level": 0,
    }


class Application:
    def __init__(self, args: argparse.Namespace) -> None:
        self.source, self.sink = args.source, args.sink
        settings = client_settings(args.bootstrap)
        self.is_stopped = False
        self.random = random.Random()
        self.producer = Producer(
            {**settings, "transactional.id": args.name, "transaction.timeout.ms": 20_000, "linger.ms": 2}
        )
        self.consumer = Consumer(
            {
                **settings,
                "group.id": args.group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 1_000,
            }
        )

    def run(self) -> None:
        retry(lambda: self.producer.init_transactions(TIMEOUT_S))
        self.consumer.subscribe([self.source])
        while not self.is_stopped:
            messages = [message for message in self.consumer.consume(BATCH_MAX, POLL_S) if message.error() is None]
            if messages:
                self.transform(messages)
        self.consumer.close()

    def transform(self, messages: list[Message]) -> None:
        """Transforms the messages in one transaction. After an abort, returns the consumer to the committed offsets."""
        try:
            self.producer.begin_transaction()
            next_offsets: dict[int, int] = {}
            for message in messages:
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None and offset is not None and value is not None
                self.producer.produce(self.sink, b"%d" % transform_number(number_of(value)), partition=partition)
                next_offsets[partition] = offset + 1
            offsets = [TopicPartition(self.source, partition, offset) for partition, offset in next_offsets.items()]
            group_metadata = self.consumer.consumer_group_metadata()
            self.linger()
            retry(lambda: self.producer.send_offsets_to_transaction(offsets, group_metadata, TIMEOUT_S))
            self.linger()
            if self.random.random() < GIVEN_UP_SHARE:
                self.abort()
                return
            retry(lambda: self.producer.commit_transaction(TIMEOUT_S))
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            self.abort()

    def linger(self) -> None:
        threading.Event().wait(self.random.uniform(0, LINGER_S))

    def abort(self) -> None:
        retry(lambda: self.producer.abort_transaction(TIMEOUT_S))
        self.rewind()

    def rewind(self) -> None:
        partitions = self.consumer.assignment()
        if not partitions:
            return
        for partition in self.consumer.committed(partitions, TIMEOUT_S):
            partition.offset = max(partition.offset, 0)
            self.consumer.seek(partition)


def retry(call: Callable[[], object]) -> None:
    """Repeats a call while its error is retriable."""
    for _ in range(RETRIES):
        try:
            call()
            return
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise
    raise SystemExit(FATAL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bootstrap", "source", "sink", "group", "name"):
        parser.add_argument(f"--{name}", required=True)
    application = Application(parser.parse_args())

    def stop(*_: object) -> None:
        application.is_stopped = True

    signal.signal(signal.SIGTERM, stop)
    try:
        application.run()
    except KafkaException as failure:
        print(failure, flush=True)
        sys.exit(FATAL)


if __name__ == "__main__":
    main()
