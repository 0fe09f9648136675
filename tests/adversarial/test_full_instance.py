"""An instance that is filled at full speed is stopped at the end of its storage, and no other one notices (CKA-26).

Three brokers, three replicas, real clients; ten writers of another instance are acknowledged meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from kafka.errors import PolicyViolationError

from brokers.contract.documents import SHRINK_RETENTION, InstanceSettings
from tests.adversarial.hostile import TOPIC, Neighbour
from tests.testkit import depth
from tests.testkit.engine import EngineCluster, TestInstance, eventually

pytestmark = pytest.mark.long("brokers/engine/capacity", "brokers/engine/assembly/storage_capacity.py")

MB: Final = 1_000_000
BOUGHT_BYTES: Final = depth.number_from("PENSTOCK_FILLED_MB", short=200, long=1_000) * MB
VALUE: Final = bytes(100_000)
PRODUCERS: Final = 3
WRITERS: Final = 10
FILLED_WITHIN_S: Final = 240.0
ACCEPTED_AGAIN_S_MAX: Final = 5.0
# For a machine with other work.
NEIGHBOUR_P99_MS_MAX: Final = 2_000.0
BESIDE: Final = "others"


@pytest.fixture(scope="module")
def three(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path_factory.mktemp("filled"), size=3) as running:
        yield running


def with_topics(cluster: EngineCluster, instance_id: str, *names: str) -> TestInstance:
    instance = cluster.create_instance(instance_id)
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    for future in admin.create_topics([NewTopic(name, 3, 3) for name in names]).values():
        future.result(30)
    return instance


def bytes_on_disk(cluster: EngineCluster, instance_id: str) -> int:
    """Returns the bytes of all replicas, without files that wait for their delete delay."""
    directories = (Path(path) for broker in cluster.brokers for path in broker.settings.data_dirs)
    logs = (log for path in directories for log in path.glob(f"{instance_id}.*/*.log") if "-delete" not in str(log))
    return sum(log.stat().st_size for log in logs)


@dataclass
class Filler:
    """Producers that send at full speed until the first permanent refusal."""

    instance: TestInstance
    errors: Counter[int] = field(default_factory=Counter)
    messages: set[str] = field(default_factory=set)
    delivered: int = 0
    refused_s: float = 0.0

    def on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.delivered += 1
            return
        self.refused_s = self.refused_s or time.monotonic()
        self.errors[error.code()] += 1
        self.messages.add(error.str())

    def run(self) -> None:
        queue = {"queue.buffering.max.kbytes": 16_384, "linger.ms": 5}
        producer = Producer({"bootstrap.servers": self.instance.bootstrap, "acks": "all", **queue})
        deadline_s = time.monotonic() + FILLED_WITHIN_S
        while not self.refused_s and time.monotonic() < deadline_s:
            try:
                producer.produce(TOPIC, VALUE, on_delivery=self.on_delivery)
            except BufferError:
                producer.poll(0.05)
            producer.poll(0)
        producer.flush(60)


def fill(instance: TestInstance) -> tuple[Filler, float]:
    """Fills the instance; returns the producers and the seconds until the first refusal."""
    filler = Filler(instance)
    threads = [threading.Thread(target=filler.run) for _ in range(PRODUCERS)]
    began_s = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return filler, max(filler.refused_s - began_s, 0.001)


def produce_result(instance: TestInstance, topic: str, partition: int = -1) -> int:
    """Produces one record with librdkafka, to this partition or any; returns the error code."""
    producer = Producer({"bootstrap.servers": instance.bootstrap, "acks": "all", "message.timeout.ms": 5000})
    codes: list[int] = []
    producer.produce(
        topic, b"x", partition=partition, on_delivery=lambda error, _message: codes.append(error.code() if error else 0)
    )
    producer.flush(10)
    return codes[0]


def wait_until_full(instance: TestInstance) -> None:
    """Waits until all partitions refuse records: brokers learn of it one after another."""
    for partition in range(3):
        eventually(
            lambda at=partition: produce_result(instance, TOPIC, at) == KafkaError.POLICY_VIOLATION, "it is full"
        )


def seconds_until_accepted(instance: TestInstance, topic: str, free: Callable[[], object]) -> float:
    free()
    began_s = time.monotonic()
    eventually(lambda: produce_result(instance, topic) == 0, "records are taken again")
    return time.monotonic() - began_s


async def test_instance_filled_at_full_speed_is_stopped_where_its_storage_ends(three: EngineCluster) -> None:
    hostile = three.update_instance(
        with_topics(three, "ins-aaaaaaaa", TOPIC, BESIDE, "more"), capacity_bytes=BOUGHT_BYTES
    )
    neighbour_instance = with_topics(three, "ins-bbbbbbbb", TOPIC)
    ports = list(neighbour_instance.document.ports.values())
    # Each writes to partition 0, whose leader has one of the ports: requests to other brokers would not count.
    leader = (
        AdminClient({"bootstrap.servers": neighbour_instance.bootstrap})
        .list_topics(TOPIC)
        .topics[TOPIC]
        .partitions[0]
        .leader
    )
    port = neighbour_instance.document.ports[leader]
    assert port in ports
    neighbours, stop = [Neighbour(port, TOPIC) for _ in range(WRITERS)], asyncio.Event()
    producing = [asyncio.create_task(neighbour.produce_until(stop)) for neighbour in neighbours]
    filler, took_s = await asyncio.to_thread(fill, hostile)
    stored_bytes = bytes_on_disk(three, hostile.id)
    mb_s = filler.delivered * len(VALUE) / took_s / MB
    print(f"bought {BOUGHT_BYTES:,}, stored {stored_bytes:,} ({stored_bytes / BOUGHT_BYTES:.2%}) at {mb_s:.0f} MB/s")
    print(f"errors {dict(filler.errors)}: {filler.messages}")

    codes = await asyncio.to_thread(lambda: [produce_result(hostile, topic) for topic in (TOPIC, BESIDE)])
    by_records_s = await asyncio.to_thread(seconds_until_accepted, hostile, BESIDE, lambda: delete_records(hostile))
    await asyncio.to_thread(fill, hostile)
    by_topic_s = await asyncio.to_thread(seconds_until_accepted, hostile, BESIDE, lambda: delete_topic(hostile))
    stop.set()
    await asyncio.gather(*producing)
    p99_ms = max(neighbour.percentile_ms(99) for neighbour in neighbours)
    print(f"taken again {by_records_s:.1f} s after DeleteRecords, {by_topic_s:.1f} s after DeleteTopics")
    print(
        f"neighbours: {sum(len(neighbour.latencies_ms) for neighbour in neighbours)} records, worst p99 {p99_ms:.0f} ms"
    )

    assert set(filler.errors) == {KafkaError.POLICY_VIOLATION}
    assert BOUGHT_BYTES * 0.97 <= stored_bytes <= BOUGHT_BYTES * 1.02
    assert codes == [KafkaError.POLICY_VIOLATION] * 2
    assert by_records_s <= ACCEPTED_AGAIN_S_MAX and by_topic_s <= ACCEPTED_AGAIN_S_MAX
    assert not any(neighbour.errors for neighbour in neighbours)
    assert p99_ms <= NEIGHBOUR_P99_MS_MAX


async def test_instance_that_shortens_its_retention_is_never_stopped(three: EngineCluster) -> None:
    """Fills it at full speed with records older than the minimum retention: the stored size stays below the bought one,
    and neighbours do not notice.
    """
    settings = InstanceSettings(storage_when_full=SHRINK_RETENTION, storage_retention_minutes_min=1)
    hostile = three.update_instance(
        with_topics(three, "ins-eeeeeeee", TOPIC), capacity_bytes=BOUGHT_BYTES, settings=settings
    )
    neighbour_instance = with_topics(three, "ins-ffffffff", TOPIC)
    leader = (
        AdminClient({"bootstrap.servers": neighbour_instance.bootstrap})
        .list_topics(TOPIC)
        .topics[TOPIC]
        .partitions[0]
        .leader
    )
    neighbours = [Neighbour(neighbour_instance.document.ports[leader], TOPIC) for _ in range(WRITERS)]
    stop = asyncio.Event()
    producing = [asyncio.create_task(neighbour.produce_until(stop)) for neighbour in neighbours]
    errors, peak_bytes = await asyncio.to_thread(write_old_records, three, hostile, 2 * BOUGHT_BYTES)
    stop.set()
    await asyncio.gather(*producing)
    p99_ms = max(neighbour.percentile_ms(99) for neighbour in neighbours)
    print(f"bought {BOUGHT_BYTES:,}, stored {peak_bytes:,} at most ({peak_bytes / BOUGHT_BYTES:.2%}), errors {errors}")
    print(f"neighbours: worst p99 {p99_ms:.0f} ms")

    assert not errors
    assert peak_bytes <= BOUGHT_BYTES * 1.02
    assert not any(neighbour.errors for neighbour in neighbours)
    assert p99_ms <= NEIGHBOUR_P99_MS_MAX
    consumer = Consumer({"bootstrap.servers": hostile.bootstrap, "group.id": "readers"})
    starts = [consumer.get_watermark_offsets(TopicPartition(TOPIC, index), timeout=30)[0] for index in range(3)]
    consumer.close()
    assert all(starts), "the oldest records are gone from each partition"
    eventually(lambda: bytes_on_disk(three, hostile.id) <= BOUGHT_BYTES * 1.1, "followers give up files as well")


def write_old_records(cluster: EngineCluster, instance: TestInstance, size_bytes: int) -> tuple[Counter[int], int]:
    """Writes records that are an hour old up to a size with replicas. Returns the errors, and the maximum size at the
    leaders times the replicas.
    """
    errors: Counter[int] = Counter()
    queue = {"queue.buffering.max.kbytes": 16_384, "linger.ms": 5, "message.timeout.ms": 120_000}
    producer = Producer({"bootstrap.servers": instance.bootstrap, "acks": "all", **queue})
    old_ms = int(time.time() * 1000) - 3_600_000

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            errors[error.code()] += 1

    peak_bytes = 0
    for number in range(size_bytes // len(VALUE) // 3):
        while True:
            try:
                producer.produce(TOPIC, VALUE, timestamp=old_ms, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
        if number % 100 == 0:
            peak_bytes = max(peak_bytes, stored_bytes(cluster, instance.id))
    producer.flush(120)
    return errors, max(peak_bytes, stored_bytes(cluster, instance.id))


def stored_bytes(cluster: EngineCluster, instance_id: str) -> int:
    """Returns the stored bytes by the brokers' own count."""
    return sum(broker.admin(f"/v1/instances/{instance_id}/topics")["stored_bytes"] for broker in cluster.brokers)


def delete_records(instance: TestInstance) -> None:
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    ends = [TopicPartition(TOPIC, index, -1) for index in range(3)]
    for future in admin.delete_records(ends).values():
        future.result(30)


def delete_topic(instance: TestInstance) -> None:
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    for future in admin.delete_topics([TOPIC]).values():
        future.result(30)


@pytest.fixture()
def small(three: EngineCluster, request: pytest.FixtureRequest) -> TestInstance:
    """Returns an instance that stores more than it bought; each test has its own, because some of them buy more."""
    instance = with_topics(three, f"ins-{zlib.crc32(request.node.name.encode()):08x}", TOPIC)
    producer = Producer({"bootstrap.servers": instance.bootstrap, "acks": "all"})
    for _ in range(20):
        producer.produce(TOPIC, VALUE, partition=0)
    assert producer.flush(30) == 0
    instance = three.update_instance(instance, capacity_bytes=MB)
    wait_until_full(instance)
    return instance


def test_kafka_python_gives_up_a_refused_record_at_once(small: TestInstance) -> None:
    producer = KafkaProducer(bootstrap_servers=small.bootstrap, retries=10)
    began_s = time.monotonic()
    with pytest.raises(PolicyViolationError):
        producer.send(TOPIC, b"x").get(timeout=20)
    assert time.monotonic() - began_s < 10
    producer.close()


def test_idempotent_producer_of_librdkafka_goes_on_after_a_refusal(three: EngineCluster, small: TestInstance) -> None:
    producer = Producer({"bootstrap.servers": small.bootstrap, "enable.idempotence": True})
    codes: list[int] = []

    def send() -> int:
        producer.produce(TOPIC, b"x", on_delivery=lambda error, _message: codes.append(error.code() if error else 0))
        producer.flush(20)
        return codes[-1]

    assert send() == KafkaError.POLICY_VIOLATION
    three.update_instance(small, capacity_bytes=1_000 * MB)
    eventually(lambda: send() == 0, "the same producer goes on")


def test_transaction_that_met_the_end_of_the_storage_is_aborted(three: EngineCluster) -> None:
    instance = with_topics(three, "ins-dddddddd", TOPIC)
    producer = Producer({"bootstrap.servers": instance.bootstrap, "transactional.id": "mover"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(20):
        producer.produce(TOPIC, VALUE, partition=0)
    producer.commit_transaction(30)
    instance = three.update_instance(instance, capacity_bytes=MB)
    wait_until_full(instance)

    producer.begin_transaction()
    producer.produce(TOPIC, b"x", partition=0)
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    producer.abort_transaction(30)
