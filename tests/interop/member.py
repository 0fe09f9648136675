"""One member of a consumer group as a process of its own, which can be killed or stopped like a real one.

    python -m tests.interop.member --client confluent-kafka --bootstrap … --group … --topic … --diary FILE

Reads, writes down what it read, commits, and writes that down; a line is `nanoseconds kind partition offset`, with the
clock that all processes of a machine share. Kinds: `assigned`, `revoked` and `lost` (offset -1), `read`, `sends` and
`committed` (the offset to go on from), `refused` (a commit). SIGTERM leaves the group as its users do.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

SESSION_MS = 3_000
HEARTBEAT_MS = 500
POLL_S = 0.1
RECORDS_MAX = 200
Positions = dict[int, int]


class Diary:
    """Lines are in the file at once, whatever happens to the process."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, kind: str, positions: Iterable[tuple[int, int]]) -> None:
        now_ns = time.monotonic_ns()
        lines = "".join(f"{now_ns} {kind} {partition} {offset}\n" for partition, offset in positions)
        if lines:
            os.write(self._file, lines.encode())

    def note(self, kind: str, partitions: Iterable[int]) -> None:
        self.write(kind, [(partition, -1) for partition in partitions])


class Stop:
    def __init__(self) -> None:
        self.wanted = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self.wanted = True


def after(read: Iterable[tuple[int, int]]) -> Positions:
    """Where to go on after what was read, in the order in which it was read."""
    return {partition: offset + 1 for partition, offset in read}


def confluent_kafka(given: argparse.Namespace, diary: Diary, stop: Stop) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": given.bootstrap,
            "group.id": given.group,
            "partition.assignment.strategy": given.strategy,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": given.session_ms,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "topic.metadata.refresh.interval.ms": 2_000,
            "log_level": 0,
        }
        | ({"group.instance.id": given.instance} if given.instance else {})
    )
    consumer.subscribe(
        [given.topic],
        on_assign=lambda _, places: diary.note("assigned", [place.partition for place in places]),
        on_revoke=lambda _, places: diary.note("revoked", [place.partition for place in places]),
        on_lost=lambda _, places: diary.note("lost", [place.partition for place in places]),
    )
    while not stop.wanted:
        read = [(m.partition(), m.offset()) for m in consumer.consume(RECORDS_MAX, POLL_S) if m.error() is None]
        if not read:
            continue
        diary.write("read", read)
        positions = after(read)
        diary.write("sends", positions.items())
        try:
            places = [TopicPartition(given.topic, partition, offset) for partition, offset in positions.items()]
            done = consumer.commit(offsets=places, asynchronous=False)
        except KafkaException:
            diary.write("refused", positions.items())
        else:
            diary.write("committed", [(place.partition, place.offset) for place in done if place.error is None])
    consumer.close()


def kafka_python(given: argparse.Namespace, diary: Diary, stop: Stop) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError

    assignors = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    fresh: set[TopicPartition] = set()

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: set) -> None:  # type: ignore[type-arg]
            diary.note("assigned", [place.partition for place in assigned])
            fresh.update(assigned)

        def on_partitions_revoked(self, revoked: set) -> None:  # type: ignore[type-arg]
            diary.note("revoked", [place.partition for place in revoked])

        def on_partitions_lost(self, lost: set) -> None:  # type: ignore[type-arg]
            diary.note("lost", [place.partition for place in lost])

    consumer = KafkaConsumer(
        bootstrap_servers=given.bootstrap,
        group_id=given.group,
        group_instance_id=given.instance or None,
        partition_assignment_strategy=[assignors[given.strategy]],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=given.session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    consumer.subscribe([given.topic], listener=Listener())
    while not stop.wanted:
        polled = consumer.poll(POLL_S * 1000, max_records=RECORDS_MAX)
        if fresh:
            # This client keeps its position in a partition that it had before the rebalance, even if it has missed a
            # generation in which another member had it (its SyncGroup was answered REBALANCE_IN_PROGRESS). Kafka's own
            # client forgets its position whenever it revokes everything. So the committed offset is fetched.
            # Messages of partitions that it kept are not delivered again.
            polled = {place: messages for place, messages in polled.items() if place not in fresh}
            for place in fresh & consumer.assignment():
                consumer.seek(place, consumer.committed(place) or 0)
            fresh.clear()
        read = [(place.partition, message.offset) for place, messages in polled.items() for message in messages]
        if not read:
            continue
        diary.write("read", read)
        positions = after(read)
        diary.write("sends", positions.items())
        try:
            consumer.commit({place: OffsetAndMetadata(positions[place.partition], "", -1) for place in polled})
        except KafkaError:
            diary.write("refused", positions.items())
        else:
            diary.write("committed", positions.items())
    consumer.close()


def aiokafka(given: argparse.Namespace, diary: Diary, stop: Stop) -> None:
    asyncio.run(_aiokafka(given, diary, stop))


async def _aiokafka(given: argparse.Namespace, diary: Diary, stop: Stop) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.errors import KafkaError

    assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: set) -> None:  # type: ignore[type-arg]
            diary.note("assigned", [place.partition for place in assigned])

        def on_partitions_revoked(self, revoked: set) -> None:  # type: ignore[type-arg]
            diary.note("revoked", [place.partition for place in revoked])

    consumer = AIOKafkaConsumer(
        bootstrap_servers=given.bootstrap,
        group_id=given.group,
        group_instance_id=given.instance or None,
        partition_assignment_strategy=[assignors[given.strategy]],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=given.session_ms,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    consumer.subscribe([given.topic], listener=Listener())
    await consumer.start()
    while not stop.wanted:
        polled = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=RECORDS_MAX)
        read = [(place.partition, message.offset) for place, messages in polled.items() for message in messages]
        if not read:
            continue
        diary.write("read", read)
        positions = after(read)
        diary.write("sends", positions.items())
        try:
            await consumer.commit({place: positions[place.partition] for place in polled})
        except KafkaError:
            diary.write("refused", positions.items())
        else:
            diary.write("committed", positions.items())
    await consumer.stop()


CLIENTS = {"confluent-kafka": confluent_kafka, "kafka-python": kafka_python, "aiokafka": aiokafka}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--client", choices=sorted(CLIENTS), required=True)
    for name in ("bootstrap", "group", "topic"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--diary", type=Path, required=True)
    parser.add_argument("--strategy", default="range")
    parser.add_argument("--instance", default="")
    parser.add_argument("--session-ms", type=int, default=SESSION_MS)
    given = parser.parse_args()
    CLIENTS[given.client](given, Diary(given.diary), Stop())


if __name__ == "__main__":
    main()
