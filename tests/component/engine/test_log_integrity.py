"""A real broker process with stock clients: killed at random moments, and with a flipped bit."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import CorruptRecordError, KafkaError

from tests.testkit.engine import EngineCluster, TestInstance, eventually
from tests.unit.brokers.engine.inspect.sample import findings, run

KILLS = 3
ACKED_BETWEEN_KILLS = (200, 2_000)
# Kilobytes in many batches, over segments as small as a topic may have them.
VALUE = b"v" * 300
PARTITIONS = 2


@pytest.fixture
def cluster(zookeeper_address: str, tmp_path: Path) -> Iterator[EngineCluster]:
    with EngineCluster(zookeeper_address, tmp_path) as running:
        yield running


def make_topic(instance: TestInstance, name: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config)])[name].result(30)


class Load:
    """A producer with acks=1 that counts acknowledgements."""

    def __init__(self, instance: TestInstance, topic: str) -> None:
        self.acked: list[tuple[int, int]] = []
        self._topic = topic
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": instance.bootstrap,
                "acks": 1,
                "linger.ms": 1,
                "batch.num.messages": 7,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                self._producer.produce(self._topic, VALUE, partition=number % PARTITIONS, on_delivery=self._done)
                number += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)

    def _done(self, error: object, message: object) -> None:
        if error is None:
            self.acked.append((message.partition(), message.offset()))  # type: ignore[attr-defined]

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.flush(60)


def test_verify_finds_nothing_after_kills_at_random_moments_under_load(cluster: EngineCluster) -> None:
    """Every acknowledged offset is in the log, and the broker's own recovery leaves nothing for `log verify`."""
    instance = cluster.create_instance("ins-aaaaaaaa")
    make_topic(instance, "orders", **{"segment.bytes": "1048576"})
    broker = cluster.brokers[0]
    data = Path(broker.settings.data_dirs[0])
    dice = random.Random()
    load = Load(instance, "orders")
    try:
        for _ in range(KILLS):
            wanted = len(load.acked) + dice.randint(*ACKED_BETWEEN_KILLS)
            eventually(lambda wanted=wanted: len(load.acked) >= wanted, "the load goes on")
            broker.kill()
            code, rows = run("recover", data)
            assert code in (0, 1), rows
            broker.start()
            broker.wait_until_ready()
    finally:
        load.stop()
    assert broker.stop() == 0
    code, rows = run("verify", data)
    assert (code, findings(rows)) == (0, [])
    ends = dict.fromkeys(range(PARTITIONS), 0)
    for partition in data.glob("*orders-*"):
        ends[int(partition.name[-1])] = run("recover", partition)[1][-1]["log_end_offset"]
    assert all(offset < ends[partition] for partition, offset in load.acked)
    assert len(set(load.acked)) == len(load.acked), "no offset was given twice"


def test_a_client_refuses_a_batch_whose_bit_was_flipped_and_verify_names_it(cluster: EngineCluster) -> None:
    instance = cluster.create_instance("ins-aaaaaaaa")
    make_topic(instance, "orders")
    producer = Producer({"bootstrap.servers": instance.bootstrap, "linger.ms": 0})
    for number in range(60):
        producer.produce("orders", b"%d." % number + VALUE, partition=0)
        producer.flush(30)
    broker = cluster.brokers[0]
    data = Path(broker.settings.data_dirs[0])
    file = next(data.glob("*orders-0")) / f"{0:020d}.log"
    content = file.read_bytes()
    at = content.index(b"5." + VALUE) + 100
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(bytes([content[at] ^ 4]))
    seen: list[bytes] = []
    consumer = KafkaConsumer(bootstrap_servers=instance.bootstrap, check_crcs=True, max_poll_records=1)
    try:
        consumer.assign([TopicPartition("orders", 0)])
        consumer.seek_to_beginning()
        with pytest.raises((CorruptRecordError, KafkaError)) as refusal:
            eventually(lambda: _take(consumer, seen), "the damaged batch is met")
    finally:
        consumer.close()
    assert "orders" in str(refusal.value) or isinstance(refusal.value, CorruptRecordError)
    assert [value.split(b".")[0] for value in seen] == [b"%d" % number for number in range(len(seen))]
    assert len(seen) <= 5
    assert broker.stop() == 0
    code, rows = run("verify", data)
    faults = [row for row in findings(rows) if "checksum" in row["what"]]
    assert (code, len(faults), faults[0]["offset"]) == (1, 1, 5)
    assert faults[0]["position"] <= at


def _take(consumer: KafkaConsumer, seen: list[bytes]) -> bool:
    """Polls once."""
    for records in consumer.poll(200).values():
        seen.extend(record.value for record in records)
    return False
