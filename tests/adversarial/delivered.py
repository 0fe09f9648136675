"""Measures whether clients get the bought or allowed bandwidth: `python -m tests.adversarial.delivered [--only WORD]`.

Three brokers, stock clients. Each case sends or reads a fixed amount, one request after the other or in another pattern
that a shared limit handles badly, and prints how long that took and how long it should take.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.testkit.engine import EngineCluster, TestInstance, eventually
from tests.testkit.own_zookeeper import own_zookeeper

KB: Final = 1_000
MB: Final = 1_000_000
TOPIC: Final = "t"
TIMEOUT_S: Final = 30
# One partition on each broker.
ASSIGNMENT: Final = [[1], [2], [3]]
# A client may be this much slower than the limit alone says, and its first requests this much faster.
SLOWER: Final = 1.0 / 0.95
SLACK_S: Final = 1.0


@dataclass(frozen=True)
class Result:
    """Figures of one case; `due_s` is bytes over the limit, without credit for idle time."""

    name: str
    took_s: float
    due_s: float
    longest_s: float = 0.0

    @property
    def is_delivered(self) -> bool:
        return self.took_s <= self.due_s * SLOWER + SLACK_S

    @property
    def is_limited(self) -> bool:
        return self.took_s >= self.due_s * 0.97 - SLACK_S

    def __str__(self) -> str:
        verdict = "" if self.is_delivered and self.is_limited else "  MISSED"
        times = f"{self.took_s:7.1f} s, due {self.due_s:5.1f} s, longest wait {self.longest_s:5.1f} s"
        return f"{self.name:48} {times}{verdict}"


class World:
    def __init__(self, cluster: EngineCluster) -> None:
        self.cluster = cluster
        self._instance_count = 0

    def create_instance(self, bought_bps: int, config: dict[str, str] | None = None) -> TestInstance:
        self._instance_count += 1
        instance = self.cluster.create_instance(
            f"ins-{self._instance_count:08d}", produce_bps=bought_bps, consume_bps=bought_bps
        )
        admin = AdminClient({"bootstrap.servers": instance.bootstrap, "log_level": 0})
        topic = NewTopic(TOPIC, len(ASSIGNMENT), replica_assignment=ASSIGNMENT, config=config or {})
        admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
        eventually(
            lambda: [self._leader_count(broker, instance) for broker in self.cluster.brokers] == [1, 1, 1],
            "each broker leads a partition",
        )
        return instance

    def set_quota(self, instance: TestInstance, limits: dict[str, int], **entity: str) -> None:
        values = {name: str(value) for name, value in limits.items()}
        self.cluster.set_quota(instance.id, values, **{"user": "ANONYMOUS", **entity})

    @staticmethod
    def _leader_count(broker: Any, instance: TestInstance) -> int:
        answer = broker.admin(f"/v1/instances/{instance.id}/bandwidth")
        return int(answer["produce"]["leaders"])


def create_producer(instance: TestInstance, client_id: str = "app", **more: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": instance.bootstrap, "client.id": client_id, "linger.ms": 0, "acks": "all",
            "message.max.bytes": 10 * MB, "log_level": 0, "delivery.timeout.ms": 300_000, **more,
        }
    )  # fmt: skip


def send(producer: Producer, records: int, size_bytes: int, partition: Callable[[int], int], *, serial: bool) -> float:
    """Sends and waits, for each record if `serial`; returns the longest time between two deliveries in seconds."""
    value, errors = bytes(size_bytes), []
    delivery_times_s = [time.monotonic()]

    def on_delivery(error: Any, _message: Any) -> None:
        delivery_times_s.append(time.monotonic())
        if error is not None:
            errors.append(error)

    for number in range(records):
        producer.produce(TOPIC, value, partition=partition(number), on_delivery=on_delivery)
        if serial:
            producer.flush()
    producer.flush()
    assert not errors, errors[:3]
    return max(later - earlier for earlier, later in pairwise(delivery_times_s))


def one_partition(_number: int) -> int:
    return 0


def in_turn(number: int) -> int:
    return number % len(ASSIGNMENT)


def measure(name: str, due_s: float, work: Callable[[], float]) -> Result:
    began_s = time.monotonic()
    longest_s = work()
    return Result(name, time.monotonic() - began_s, due_s, longest_s)


def serial_after_hot(world: World, records: int, size_bytes: int) -> Result:
    """S1, S2: sends to three brokers in turn, after a while to one partition."""
    instance = world.create_instance(5 * MB)
    producer = create_producer(instance)
    send(producer, 40, 900 * KB, one_partition, serial=False)
    return measure(
        f"{records} x {size_bytes // KB} KB in turn after one hot partition",
        records * size_bytes / (5 * MB),
        lambda: send(producer, records, size_bytes, in_turn, serial=True),
    )


def serial_under_quota(world: World) -> Result:
    """S3: sends to three brokers in turn under a client quota."""
    instance = world.create_instance(20 * MB)
    world.set_quota(instance, {"producer_byte_rate": 500 * KB}, client_id="app")
    producer = create_producer(instance)
    send(producer, 20, 100 * KB, one_partition, serial=False)
    return measure(
        "client quota 500 kB/s, 24 x 100 KB in turn", 4.8, lambda: send(producer, 24, 100 * KB, in_turn, serial=True)
    )


def one_key_under_quota(world: World) -> Result:
    """S4: sends with one key under a client quota, from the start."""
    instance = world.create_instance(20 * MB)
    world.set_quota(instance, {"producer_byte_rate": 100 * KB}, client_id="app")
    producer = create_producer(instance)
    return measure(
        "client quota 0.1 MB/s, 60 x 20 KB, one key",
        12.0,
        lambda: send(producer, 60, 20 * KB, one_partition, serial=True),
    )


def spread_under_quota(world: World) -> Result:
    """S5: sends to three partitions at once under a client quota."""
    instance = world.create_instance(20 * MB)
    world.set_quota(instance, {"producer_byte_rate": 200 * KB}, user="ANONYMOUS", client_id="app")
    producer = create_producer(instance, **{"batch.size": 60 * KB})
    return measure(
        "client quota 0.2 MB/s, 40 x 50 KB over three", 10.0, lambda: send(producer, 40, 50 * KB, in_turn, serial=False)
    )


def moving_hot_partition(world: World, every_s: float) -> Result:
    """S6: sends to another partition every few seconds; at most 16 MB are queued."""
    instance = world.create_instance(20 * MB)
    producer = create_producer(instance, **{"queue.buffering.max.kbytes": 16_000})
    value, sent, began_s, length_s = bytes(100 * KB), 0, time.monotonic(), 36.0
    delivered_bytes = [0]

    def count_delivery(error: Any, message: Any) -> None:
        delivered_bytes[0] += 0 if error else len(message.value())

    while (now_s := time.monotonic() - began_s) < length_s:
        try:
            producer.produce(TOPIC, value, partition=int(now_s / every_s) % 3, on_delivery=count_delivery)
            sent += 1
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
    delivered_s = delivered_bytes[0] / (20 * MB)
    producer.purge()
    return Result(f"hot partition moves every {every_s:g} s, 20 MB/s", length_s, delivered_s)


def read_under_topic_limit(world: World) -> Result:
    """S7: reads one batch that takes 20 s at the topic's limit, and a small one behind it."""
    instance = world.create_instance(20 * MB)
    producer = create_producer(instance, **{"batch.size": 10 * MB})
    send(producer, 1, 600 * KB, one_partition, serial=True)
    send(producer, 1, 1 * KB, one_partition, serial=True)
    admin = AdminClient({"bootstrap.servers": instance.bootstrap, "log_level": 0})
    entry = ConfigEntry("penstock.consume.byte.rate", str(30 * KB), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    return measure("topic limit 30 kB/s, a batch of 600 KB, consumed", 20.0, lambda: read(instance, 2))


def read(instance: TestInstance, records: int, partitions: tuple[int, ...] = (0,), **more: Any) -> float:
    """Reads a number of records; returns the longest time between two of them in seconds."""
    consumer = Consumer(
        {
            "bootstrap.servers": instance.bootstrap, "group.id": "g", "client.id": "app", "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "log_level": 0, **more,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in partitions])
    read_times_s = [time.monotonic()]
    while len(read_times_s) <= records:
        message = consumer.poll(60)
        assert message is not None and message.error() is None, message and message.error()
        read_times_s.append(time.monotonic())
    consumer.close()
    return max(later - earlier for earlier, later in pairwise(read_times_s))


def read_three_brokers(world: World) -> Result:
    """Reads from three brokers with one client."""
    instance = world.create_instance(5 * MB)
    fast = world.cluster.update_instance(instance, produce_bps=500 * MB)
    send(create_producer(fast), 300, 100 * KB, in_turn, serial=False)
    return measure("30 MB read from three brokers, 5 MB/s", 6.0, lambda: read(instance, 300, (0, 1, 2)))


def read_one_partition(world: World) -> Result:
    """Reads one hot partition with one client."""
    instance = world.create_instance(5 * MB)
    fast = world.cluster.update_instance(instance, produce_bps=500 * MB)
    send(create_producer(fast), 300, 100 * KB, one_partition, serial=False)
    return measure("30 MB read from one broker, 5 MB/s", 6.0, lambda: read(instance, 300))


CASES: Final[dict[str, Callable[[World], Result]]] = {
    "s1": lambda world: serial_after_hot(world, 40, 900 * KB),
    "s2": lambda world: serial_after_hot(world, 150, 100 * KB),
    "s2-small": lambda world: serial_after_hot(world, 1_500, 10 * KB),
    "s3": serial_under_quota,
    "s4": one_key_under_quota,
    "s5": spread_under_quota,
    "s6": lambda world: moving_hot_partition(world, 12),
    "s6-5": lambda world: moving_hot_partition(world, 5),
    "s7": read_under_topic_limit,
    "reads": read_three_brokers,
    "reads-one": read_one_partition,
}


@contextmanager
def running_world() -> Iterator[World]:
    with (
        tempfile.TemporaryDirectory(prefix="penstock-delivered-") as directory,
        own_zookeeper(Path(directory)) as zookeeper,
        EngineCluster(zookeeper.address, Path(directory), size=3) as cluster,
    ):
        yield World(cluster)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.adversarial.delivered", description=__doc__)
    parser.add_argument("--only", default="", help="run only cases whose name begins with this")
    options = parser.parse_args()
    results = []
    with running_world() as world:
        for name, case in CASES.items():
            if name.startswith(options.only):
                results.append(case(world))
                print(f"{name:10} {results[-1]}", flush=True)
    raise SystemExit(any(not (result.is_delivered and result.is_limited) for result in results))


if __name__ == "__main__":
    main()
