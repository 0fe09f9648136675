"""Apache Kafka 3.9.1 starts on a log directory of ours, serves and appends; we start on what it leaves, and read all.

What has to agree is what either broker checks: broker id and cluster id in `meta.properties`, the topic's id, a leader
epoch above those in the log. Runs where PENSTOCK_APACHE_KAFKA_JARS names a folder with its jars, and Java is there.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kazoo.client import KazooClient

from brokers.engine.partitions.table import PartitionTable, StorageSettings
from config.embedded.process import free_port
from tests.testkit.engine import eventually
from tests.unit.brokers.engine.inspect import sample
from tests.unit.brokers.engine.storage.logs import read_all

JARS = "PENSTOCK_APACHE_KAFKA_JARS"
RECORDS = sum(1 + number % 3 for number in range(sample.BATCHES))
LEADER_EPOCH = 20
STOP_TIMEOUT_S = 60
TOPIC_ID = "AQIDBAUGBwgJCgsMDQ4PEA"  # sample.TOPIC_ID as Kafka writes it


@pytest.fixture
def command() -> list[str]:
    """Java with Apache Kafka's classes."""
    jars, java = os.environ.get(JARS), shutil.which("java")
    if not jars or not list(Path(jars).glob("kafka_2.1*.jar")):
        pytest.skip(f"{JARS} names no folder with Apache Kafka's jars")
    if java is None:
        pytest.skip("no Java here")
    return [java, "-Xmx512m", "-cp", f"{jars}/*", "kafka.Kafka"]


def publish_topic(zookeeper_address: str) -> str:
    """Writes a controller's nodes of cluster and topic into a new chroot; returns its `zookeeper.connect`."""
    chroot = f"/apache-kafka-{uuid.uuid4()}"
    client = KazooClient(zookeeper_address)
    client.start(timeout=10)
    topic = {"version": 3, "partitions": {"0": [1]}, "adding_replicas": {}, "removing_replicas": {}}
    state = {"controller_epoch": 0, "leader": 1, "version": 1, "leader_epoch": LEADER_EPOCH, "isr": [1]}
    client.create(f"{chroot}/cluster/id", json.dumps({"version": "1", "id": "test"}).encode(), makepath=True)
    path = f"{chroot}/brokers/topics/orders"
    client.create(path, json.dumps({**topic, "topic_id": TOPIC_ID}).encode(), makepath=True)
    client.create(f"{path}/partitions/0/state", json.dumps(state).encode(), makepath=True)
    client.stop()
    client.close()
    return f"{zookeeper_address}{chroot}"


@pytest.fixture
def apache_kafka(command: list[str], zookeeper_address: str, tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen]]:
    """A broker on our directory `tmp_path/data`: (bootstrap, process)."""
    sample.build(tmp_path / "data")
    tree = publish_topic(zookeeper_address)
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "broker.id": 1,
        "zookeeper.connect": tree,
        "listeners": f"PLAINTEXT://{address}",
        "log.dirs": tmp_path / "data",
        "log.retention.ms": -1,  # the sample's records are years old
    }
    file = tmp_path / "broker.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    with (tmp_path / "kafka.log").open("wb") as log:
        process = subprocess.Popen([*command, str(file)], cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield address, process
    finally:
        process.kill()
        process.wait()


def listens(address: str) -> bool:
    host, port = address.split(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def test_each_broker_starts_on_the_directory_of_the_other(
    apache_kafka: tuple[str, subprocess.Popen], tmp_path: Path
) -> None:
    address, process = apache_kafka
    eventually(lambda: listens(address), "Apache Kafka listens", 60)
    consumer = KafkaConsumer(bootstrap_servers=address)
    consumer.assign([TopicPartition("orders", 0)])
    consumer.seek_to_beginning()
    served: list[int] = []

    def all_served() -> bool:
        served.extend(record.offset for records in consumer.poll(200).values() for record in records)
        return len(served) >= RECORDS

    eventually(all_served, "Apache Kafka serves what we wrote", 60)
    consumer.close()
    assert served == list(range(RECORDS))
    producer = KafkaProducer(bootstrap_servers=address)
    appended = [producer.send("orders", b"theirs %d" % number, partition=0).get(30).offset for number in range(5)]
    producer.close()
    assert appended == list(range(RECORDS, RECORDS + 5))
    process.terminate()
    process.wait(STOP_TIMEOUT_S)

    code, rows = sample.run("verify", tmp_path / "data")
    assert (code, sample.findings(rows)) == (0, [])
    table = PartitionTable(StorageSettings(roots=(tmp_path / "data",), broker_id=1, cluster_id="test"))
    report = table.recover(time.time_ns() // 1_000_000)
    assert (report.clean, report.scanned_bytes) == (True, 0)
    partition = table.get("orders", 0)
    assert partition is not None
    assert [offset for offset, _ in read_all(partition.log)] == list(range(RECORDS + 5))
    assert partition.log.epochs.entries == [(3, 0), (10, 13), (LEADER_EPOCH, RECORDS)]
    table.close()
