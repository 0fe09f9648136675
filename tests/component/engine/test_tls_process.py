"""TLS with other people's clients on real broker processes: large records, other certificates, slow strangers."""

from __future__ import annotations

import os
import resource
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition as KafkaPythonPartition

from tests.testkit.engine import EngineCluster, TestInstance, eventually
from tests.testkit.tls import make_certificate

MB = 1_000_000
LARGE_BYTES = 100 * MB
RECORD_BYTES = 100_000
HALF_OPEN = 2_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    make_certificate(directory)
    return directory


@pytest.fixture(scope="module")
def cluster(
    zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory, authority: Path
) -> Iterator[EngineCluster]:
    directory = tmp_path_factory.mktemp("engine")
    with EngineCluster(zookeeper_address, directory, certificate=authority / "broker.pem") as running:
        yield running


@pytest.fixture(scope="module")
def instance(cluster: EngineCluster) -> TestInstance:
    return cluster.create_instance("ins-aaaaaaaa", security="tls")


def librdkafka(instance: TestInstance, authority: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": instance.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority / "ca.pem"),
    }


def make_topic(conf: dict[str, str], name: str) -> str:
    admin = AdminClient(conf)
    for future in admin.create_topics([NewTopic(name, 1, 1)]).values():
        future.result(30)
    return name


def produce(conf: dict[str, str], topic: str, values: list[bytes]) -> None:
    failures: list[KafkaError] = []

    def done(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({**conf, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=done)
        producer.poll(0)
    assert producer.flush(120) == 0
    assert not failures, failures[:3]


def consume(conf: dict[str, str], topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**conf, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline_s = time.monotonic() + 120
    while len(values) < count and time.monotonic() < deadline_s:
        for message in consumer.consume(500, 0.5):
            assert message.error() is None, message.error()
            values.append(message.value())
    consumer.close()
    return values


@pytest.mark.long("brokers/engine/network/tls_stream.py")
def test_a_hundred_megabytes_come_back_as_they_were(instance: TestInstance, authority: Path) -> None:
    conf = librdkafka(instance, authority)
    topic = make_topic(conf, "large")
    values = [os.urandom(RECORD_BYTES) for _ in range(LARGE_BYTES // RECORD_BYTES)]
    produce(conf, topic, values)
    assert consume(conf, topic, len(values)) == values


def test_librdkafka_and_kafka_python_read_what_the_other_wrote(instance: TestInstance, authority: Path) -> None:
    conf = librdkafka(instance, authority)
    topic = make_topic(conf, "both")
    produce(conf, topic, [b"from librdkafka"])
    secured = {
        "bootstrap_servers": instance.bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": str(authority / "ca.pem"),
    }
    producer = KafkaProducer(**secured)
    producer.send(topic, b"from kafka-python", partition=0).get(30)
    producer.close()
    consumer = KafkaConsumer(**secured, group_id=None, auto_offset_reset="earliest")
    consumer.assign([KafkaPythonPartition(topic, 0)])
    values: list[bytes] = []
    while len(values) < 2:
        values += [message.value for batch in consumer.poll(500).values() for message in batch]
    consumer.close()
    assert values == consume(conf, topic, 2) == [b"from librdkafka", b"from kafka-python"]


def test_a_client_that_does_not_trust_the_authority_gets_nothing(instance: TestInstance, tmp_path: Path) -> None:
    make_certificate(tmp_path / "stranger")
    admin = AdminClient(librdkafka(instance, tmp_path / "stranger"))
    with pytest.raises(Exception, match=r"_TRANSPORT|timed out|Failed"):
        admin.list_topics(timeout=3)


def test_another_certificate_is_taken_up_while_clients_go_on(
    cluster: EngineCluster, instance: TestInstance, authority: Path
) -> None:
    conf = librdkafka(instance, authority)
    topic = make_topic(conf, "renewed")
    producer = Producer(conf)
    producer.produce(topic, b"before", partition=0)
    assert producer.flush(30) == 0
    port = int(instance.bootstrap.rpartition(":")[2])
    before = _serial(port, authority)
    (authority / "broker.pem").unlink()
    make_certificate(authority)
    eventually(lambda: _serial(port, authority) != before, "another certificate is shown")
    producer.produce(topic, b"after", partition=0)
    assert producer.flush(30) == 0
    assert consume(conf, topic, 2) == [b"before", b"after"]


def _serial(port: int, authority: Path) -> str:
    context = ssl.create_default_context(cafile=authority / "ca.pem")
    plain = socket.create_connection(("127.0.0.1", port))
    with plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as secured:
        certificate = secured.getpeercert()
        assert certificate is not None
        return str(certificate["serialNumber"])


@pytest.mark.long("brokers/engine/network/connection_handshake.py")
def test_two_thousand_half_open_handshakes_leave_a_neighbour_its_pace(
    cluster: EngineCluster, instance: TestInstance, authority: Path
) -> None:
    """Half of them send nothing, half of them stop in the middle of their ClientHello."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, HALF_OPEN + 1_000)), hard))
    neighbour = cluster.create_instance("ins-bbbbbbbb", security="tls")
    conf = librdkafka(neighbour, authority)
    topic = make_topic(conf, "watched")
    producer = Producer({**conf, "linger.ms": 0})
    alone_s = _p99_s(producer, topic)
    port = int(instance.bootstrap.rpartition(":")[2])
    hostile: list[socket.socket] = []
    try:
        for number in range(HALF_OPEN):
            hostile.append(socket.create_connection(("127.0.0.1", port)))
            if number % 2:
                hostile[-1].sendall(bytes.fromhex("16030100c8010000c40303") + b"\x00" * 50)
        beside_s = _p99_s(producer, topic)
    finally:
        for connection in hostile:
            connection.close()
    assert beside_s <= max(1.5 * alone_s, 0.02), (alone_s, beside_s)


def _p99_s(producer: Producer, topic: str, count: int = 300) -> float:
    took_s = []
    for number in range(count):
        began_s = time.perf_counter()
        producer.produce(topic, b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        took_s.append(time.perf_counter() - began_s)
    return sorted(took_s)[count * 99 // 100]
