"""Users by certificate with other people's clients on a real broker process: names, rights, revocation."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaProducer
from kafka.errors import KafkaError, TopicAuthorizationFailedError

from brokers.contract.audit import AuditEvent
from brokers.contract.audit_limits import TALLIES_PER_INSTANCE_MAX
from brokers.contract.certificates import CertificatesDocument
from instances.routes import certificate_checks as checks
from tests.testkit.administering import let_everybody_administer
from tests.testkit.audit import audit_events
from tests.testkit.client_certificates import NOW, Authority, client_tls
from tests.testkit.engine import EngineCluster, TestInstance, eventually
from tests.testkit.tls import make_certificate

CUT_WITHIN_S = 1.0
FLOOD = 1_000


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


def test_users_by_certificate_have_rights_of_their_own_until_they_are_revoked(
    cluster: EngineCluster, authority: Path, tmp_path: Path
) -> None:
    acme = Authority.make("Acme CA")
    files = {name: acme.client(tmp_path, name) for name in ("alice", "bob")}
    instance = let_everybody_administer(cluster, cluster.create_instance("ins-aaaaaaaa", security="mtls"))
    cluster.put_certificates(instance, CertificatesDocument(client_ca_pem=acme.pem))
    (route,) = instance.document.routes
    rules = "RULE:^CN=(.*?)$/$1/U, DEFAULT"
    cluster.update_instance(instance, routes=(replace(route, principal_mapping_rules=rules),))

    def librdkafka(name: str) -> dict[str, str]:
        file = str(files[name])
        return {
            "bootstrap.servers": instance.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": str(authority / "ca.pem"),
            "ssl.certificate.location": file,
            "ssl.key.location": file,
        }

    def kafka_python(name: str) -> KafkaProducer:
        return KafkaProducer(
            bootstrap_servers=instance.bootstrap,
            security_protocol="SSL",
            ssl_cafile=str(authority / "ca.pem"),
            ssl_certfile=str(files[name]),
            ssl_keyfile=str(files[name]),
            retries=0,
        )

    admin = AdminClient(librdkafka("alice"))
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
    allow = AclBinding(
        ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:ALICE", "*", AclOperation.ALL,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    admin.create_acls([allow])[allow].result(30)

    alice = kafka_python("alice")
    alice.send("orders", b"from kafka-python", partition=0).get(30)
    bob = kafka_python("bob")

    def is_denied() -> bool:
        try:
            bob.send("orders", b"not allowed", partition=0).get(30)
        except TopicAuthorizationFailedError:
            return True
        except KafkaError:
            return False
        return False

    eventually(is_denied, "bob has no rights")
    producer = Producer(librdkafka("alice"))
    producer.produce("orders", b"from librdkafka", partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({**librdkafka("alice"), "group.id": "test"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    values: list[bytes] = []
    deadline_s = time.monotonic() + 30
    while len(values) < 2 and time.monotonic() < deadline_s:
        values += [message.value() for message in consumer.consume(2, 0.5)]
    assert values == [b"from kafka-python", b"from librdkafka"]
    consumer.close()

    for client in (alice, bob):
        client.close()
    context = client_tls(authority, files["alice"])
    watched = _open(instance, context)
    revoked = checks.revocation_list(acme.revoked("alice"), acme.pem, {}, NOW).revoked
    began_s = time.monotonic()
    cluster.put_certificates(instance, CertificatesDocument(client_ca_pem=acme.pem, revoked=revoked))
    assert watched.recv(1) == b""  # the broker says farewell
    assert time.monotonic() - began_s < CUT_WITHIN_S
    watched.close()
    with pytest.raises(OSError):
        _open(instance, context)


def test_refused_certificates_are_rows_of_the_audit_log_and_a_flood_of_them_is_counted(
    cluster: EngineCluster, authority: Path, tmp_path: Path
) -> None:
    acme = Authority.make("Acme CA")
    files = {
        "revoked": acme.client(tmp_path, "alice"),
        "untrusted": Authority.make("Acme CA").client(tmp_path, "mallory"),
        "no_certificate": None,
    }
    instance = cluster.create_instance("ins-bbbbbbbb", security="mtls")
    revoked = checks.revocation_list(acme.revoked("alice"), acme.pem, {}, NOW).revoked
    cluster.put_certificates(instance, CertificatesDocument(client_ca_pem=acme.pem, revoked=revoked))
    trusted = client_tls(authority, acme.client(tmp_path, "bob"))
    eventually(lambda: _is_let_in(instance, trusted), "the authority is known")
    contexts = {reason: client_tls(authority, file) for reason, file in files.items()}
    for context in contexts.values():
        with pytest.raises(OSError):
            _open(instance, context)

    def reported() -> dict[str, AuditEvent]:
        return {event.items[0].after["reason"]: event for event in audit_events(cluster, instance.id)}  # type: ignore[index]

    eventually(lambda: reported().keys() == files.keys(), "each reason is in the audit log")
    for event in reported().values():
        assert (event.items[0].action, event.user, event.address) == ("client.sign_in_failed", "", "127.0.0.1")

    def failed() -> int:
        status = cluster.brokers[0].admin("/v1/status")
        return int(status["authentications_by_instance"][instance.id]["failed"])

    before = failed()
    for _ in range(FLOOD):
        with pytest.raises(OSError):
            _open(instance, contexts["no_certificate"])
    eventually(lambda: failed() == before + FLOOD, "each refusal is counted")
    assert len(audit_events(cluster, instance.id)) <= 2 * TALLIES_PER_INSTANCE_MAX + len(files)


def _is_let_in(instance: TestInstance, context: ssl.SSLContext) -> bool:
    try:
        _open(instance, context).close()
    except OSError:
        return False
    return True


def _open(instance: TestInstance, context: ssl.SSLContext) -> ssl.SSLSocket:
    """Opens a connection and waits for one answer. Raises OSError."""
    host, _, port = instance.bootstrap.rpartition(":")
    connection = context.wrap_socket(socket.create_connection((host, int(port)), 10), server_hostname=host)
    try:
        connection.sendall((10).to_bytes(4, "big") + bytes.fromhex("0012000000000001ffff"))
        left = int.from_bytes(connection.recv(4), "big")
        if not left:
            raise ConnectionError("the connection was closed")
        while left:
            left -= len(connection.recv(left))
    except OSError:
        connection.close()
        raise
    return connection
