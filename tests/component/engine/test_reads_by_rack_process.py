"""Three real brokers in three zones: stock consumers with `client.rack` read in their zone, and all zones together get
no more than was bought (KIP-392, WIRE-32, CKA-33).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.testkit.engine import EngineCluster, TestInstance, eventually

ZONES = ("east", "west", "north")
MB = 1_000_000
RECORD = b"r" * 10_000
STORED_BYTES = 30 * MB
SHARE_IN_ZONE_MIN = 0.95
TIMEOUT_S = 60
BOUGHT_BPS = 6 * MB
MEASURED_S = 8.0


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    directory: Path = tmp_path_factory.mktemp("zones")
    with EngineCluster(zookeeper_address, directory, size=3, racks=ZONES) as running:
        yield running


def make_topic(instance: TestInstance, name: str, assignment: list[list[int]]) -> None:
    admin = AdminClient({"bootstrap.servers": instance.bootstrap, "log_level": 0})
    topic = NewTopic(name, len(assignment), replica_assignment=assignment)
    admin.create_topics([topic])[name].result(TIMEOUT_S)


def fill(instance: TestInstance, topic: str, partitions: int, size_bytes: int) -> None:
    producer = Producer({"bootstrap.servers": instance.bootstrap, "acks": "all", "linger.ms": 5})
    for number in range(size_bytes // len(RECORD)):
        while True:
            try:
                producer.produce(topic, RECORD, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(TIMEOUT_S) == 0


def consumer_in(instance: TestInstance, zone: str, topic: str, partitions: int) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": instance.bootstrap,
            "client.rack": zone,
            "group.id": f"of-{zone}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    return consumer


def sent_bytes(cluster: EngineCluster) -> list[int]:
    """Bytes of records that each broker has sent to clients."""
    return [int(broker.admin("/v1/status")["bytes_out_total"]) for broker in cluster.brokers]


def test_consumers_with_a_rack_read_nearly_all_of_their_bytes_in_their_zone(
    cluster: EngineCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Leaders are in all three zones, and records arrive meanwhile."""
    instance = cluster.create_instance("ins-aaaaaaaa")
    assignment = [[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2
    make_topic(instance, "spread", assignment)
    fill(instance, "spread", len(assignment), STORED_BYTES)
    writing = threading.Thread(target=fill, args=(instance, "spread", len(assignment), STORED_BYTES))
    writing.start()
    shares = {}
    for zone, own in zip(ZONES, range(3), strict=True):
        before = sent_bytes(cluster)
        consumer = consumer_in(instance, zone, "spread", len(assignment))
        try:
            read = 0
            while read < 2 * STORED_BYTES // len(RECORD):
                messages = consumer.consume(1_000, TIMEOUT_S)
                assert messages, f"nothing more after {read} records in {zone}"
                assert [message.error() for message in messages if message.error()] == []
                read += len(messages)
        finally:
            consumer.close()
        sent = [now - earlier for now, earlier in zip(sent_bytes(cluster), before, strict=True)]
        shares[zone] = sent[own] / sum(sent)
    writing.join(TIMEOUT_S)
    with capsys.disabled():
        print("\nbytes read in the own zone:", {zone: f"{share:.1%}" for zone, share in shares.items()})
    assert min(shares.values()) >= SHARE_IN_ZONE_MIN


def test_all_zones_together_get_what_was_bought_and_one_alone_as_well(
    cluster: EngineCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """One partition: its leader has a third of the bandwidth as its own part, and so has each follower."""
    instance = cluster.create_instance("ins-bbbbbbbb", consume_bps=BOUGHT_BPS)
    make_topic(instance, "hot", [[1, 2, 3]])
    fill(instance, "hot", 1, 2 * STORED_BYTES)

    def parts() -> list[int]:
        shown = [broker.admin(f"/v1/instances/{instance.id}/bandwidth")["consume"] for broker in cluster.brokers]
        return [int(line["share_bps"]) for line in shown]

    eventually(lambda: sum(parts()) == BOUGHT_BPS and min(parts()) > 0, "each replica has a part")
    alone_bps = rate_of(instance, "west")
    together_bps = sum(in_all_zones(instance))
    with capsys.disabled():
        print(f"\nof {BOUGHT_BPS:,} B/s: {alone_bps:,.0f} in one zone, {together_bps:,.0f} in three")
    assert 0.7 * BOUGHT_BPS <= alone_bps <= 1.15 * BOUGHT_BPS
    assert 0.7 * BOUGHT_BPS <= together_bps <= 1.15 * BOUGHT_BPS


def in_all_zones(instance: TestInstance) -> list[float]:
    with ThreadPoolExecutor(len(ZONES)) as pool:
        return list(pool.map(lambda zone: rate_of(instance, zone), ZONES))


def rate_of(instance: TestInstance, zone: str) -> float:
    """Bytes a second of a consumer, from its first records on, and after the burst that is left over from idle time."""
    consumer = consumer_in(instance, zone, "hot", 1)
    try:
        eventually(lambda: consumer.consume(100, 1.0), "the first records")
        began_s, read_bytes = time.monotonic(), 0
        while time.monotonic() - began_s < MEASURED_S:
            for message in consumer.consume(200, 0.2):
                assert message.error() is None
                read_bytes += len(message.value())
        return read_bytes / (time.monotonic() - began_s)
    finally:
        consumer.close()
