"""The application of the exactly-once workload: reads numbers, writes `transformed(number)`, in transactions.

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


def transformed(number: int) -> int:
    return number * 7 + 3


def connection(bootstrap: str) -> dict[str, Any]:
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
    def __init__(self, given: argparse.Namespace) -> None:
        self.source, self.sink = given.source, given.sink
        common = connection(given.bootstrap)
        self.is_over = False
        self.dice = random.Random()
        self.producer = Producer(
            {**common, "transactional.id": given.name, "transaction.timeout.ms": 20_000, "linger.ms": 2}
        )
        self.consumer = Consumer(
            {
                **common,
                "group.id": given.group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 1_000,
            }
        )

    def run(self) -> None:
        retried(lambda: self.producer.init_transactions(TIMEOUT_S))
        self.consumer.subscribe([self.source])
        while not self.is_over:
            read = [message for message in self.consumer.consume(BATCH_MAX, POLL_S) if message.error() is None]
            if read:
                self.transform(read)
        self.consumer.close()

    def transform(self, read: list[Message]) -> None:
        """One transaction; if it has to be given up, reading goes back to where the last one ended."""
        try:
            self.producer.begin_transaction()
            ends: dict[int, int] = {}
            for message in read:
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None and offset is not None and value is not None
                self.producer.produce(self.sink, b"%d" % transformed(number_of(value)), partition=partition)
                ends[partition] = offset + 1
            offsets = [TopicPartition(self.source, partition, offset) for partition, offset in ends.items()]
            member = self.consumer.consumer_group_metadata()
            self.linger()
            retried(lambda: self.producer.send_offsets_to_transaction(offsets, member, TIMEOUT_S))
            self.linger()
            if self.dice.random() < GIVEN_UP_SHARE:
                self.give_up()
                return
            retried(lambda: self.producer.commit_transaction(TIMEOUT_S))
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            self.give_up()

    def linger(self) -> None:
        threading.Event().wait(self.dice.uniform(0, LINGER_S))

    def give_up(self) -> None:
        retried(lambda: self.producer.abort_transaction(TIMEOUT_S))
        self.rewind()

    def rewind(self) -> None:
        places = self.consumer.assignment()
        if not places:
            return
        for place in self.consumer.committed(places, TIMEOUT_S):
            place.offset = max(place.offset, 0)
            self.consumer.seek(place)


def retried(call: Callable[[], object]) -> None:
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
        application.is_over = True

    signal.signal(signal.SIGTERM, stop)
    try:
        application.run()
    except KafkaException as failure:
        print(failure, flush=True)
        sys.exit(FATAL)


if __name__ == "__main__":
    main()
