"""Helpers for tests of operators: traffic that records acknowledgements, broker processes, and their downtimes."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle

import psutil
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.testkit.stack import Stack, words_of

QUIET = {"log_level": 0}
PAUSE_S = 0.005
WITHIN_S = 90.0
PROBED_EVERY_S = 0.03
PROBE_TIMEOUT_S = 0.5
# ApiVersions 0 with an empty client id: any broker that serves answers it.
PROBE = struct.pack(">ihhih", 10, 18, 0, 1, 0)

# Topic -> (partitions, copies).
Topics = Mapping[str, tuple[int, int]]


@dataclass
class Traffic:
    """Results of a producer: (topic, partition, offset, key) of every acknowledgement, and every error."""

    bootstrap: str
    topics: Topics
    acknowledged: set[tuple[str, int, int, bytes]] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    slowest_s: float = 0.0

    def message(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        self.slowest_s = max(self.slowest_s, message.latency() or 0.0)
        self.acknowledged.add((message.topic(), message.partition(), message.offset(), message.key()))

    def unread(self) -> set[tuple[str, int, int, bytes]]:
        """Returns acknowledged records that cannot be read."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "op", "auto.offset.reset": "earliest", **QUIET}
        )
        consumer.assign([TopicPartition(name, i, 0) for name, (count, _) in self.topics.items() for i in range(count)])
        missing = set(self.acknowledged)
        deadline_s = time.monotonic() + WITHIN_S
        while missing and time.monotonic() < deadline_s:
            for message in consumer.consume(5_000, 0.5):
                if message.error() is None:
                    missing.discard((message.topic(), message.partition(), message.offset(), message.key()))
        consumer.close()
        return missing


@contextmanager
def traffic(bootstrap: str, topics: Topics) -> Iterator[Traffic]:
    """Runs an idempotent producer with acks=all on every partition until the block ends."""
    result, must_stop = Traffic(bootstrap, topics), threading.Event()

    def run() -> None:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 5, **QUIET}
        )
        least = min(count for count, _ in topics.values())
        # Each topic as often as it has partitions, so that all grow alike.
        round_of = [name for name, (count, _) in topics.items() for _ in range(count // least)]
        partitions = {name: cycle(range(count)) for name, (count, _) in topics.items()}
        number = 0
        while not must_stop.wait(PAUSE_S):
            for name in round_of:
                number += 1
                partition = next(partitions[name])
                producer.produce(
                    name, b"x" * 200, str(number).encode(), partition=partition, on_delivery=result.message
                )
            producer.poll(0)
        producer.flush(WITHIN_S)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield result
    finally:
        must_stop.set()
        thread.join()


def broker_process(stack: Stack, number: int) -> psutil.Process:
    """Returns the process of this broker. Raises AssertionError if there is none."""
    ending = f"/{number}/settings.json"
    for process in stack.processes():
        words = words_of(process)
        if "brokers.engine" in words and any(word.endswith(ending) for word in words):
            return process
    raise AssertionError(f"broker {number} has no process")


def program_process(stack: Stack, *words: str) -> psutil.Process:
    """Returns the process of one of the product's programs, the parent of its family: its command line has all of
    `words`.
    """
    result = [process for process in stack.processes() if set(words) <= set(words_of(process))]
    assert result, f"nothing runs as {' '.join(words)}"
    return min(result, key=lambda process: process.create_time())


def answers(address: str) -> bool:
    """True if a Kafka server answers on a new connection to this address."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), PROBE_TIMEOUT_S) as probe:
            probe.settimeout(PROBE_TIMEOUT_S)
            probe.sendall(PROBE)
            return len(probe.recv(4)) == 4
    except OSError:
        return False


@contextmanager
def watched(addresses: list[str]) -> Iterator[dict[str, float]]:
    """Records, for each address, the longest time between two answers of its broker during the block, in seconds."""
    longest = dict.fromkeys(addresses, 0.0)
    must_stop = threading.Event()

    def run(address: str) -> None:
        answered_s = time.monotonic()
        while not must_stop.wait(PROBED_EVERY_S):
            if answers(address):
                now_s = time.monotonic()
                longest[address] = max(longest[address], now_s - answered_s)
                answered_s = now_s
        longest[address] = max(longest[address], time.monotonic() - answered_s)

    threads = [threading.Thread(target=run, args=(address,)) for address in addresses]
    for thread in threads:
        thread.start()
    try:
        yield longest
    finally:
        must_stop.set()
        for thread in threads:
            thread.join()
