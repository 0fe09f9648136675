"""Internal connections under mutual TLS: accepted and refused peers, and an upgrade of a cluster broker by broker."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.contract.process import CLUSTER_USER
from brokers.contract.process_identity import (
    CA_FILE,
    MUTUAL_TLS,
    PLAINTEXT,
    ProcessIdentity,
    ProcessRole,
    broker,
    control,
)
from brokers.contract.revoked_certificates import RevokedCertificates
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.metadata import MetadataRequest
from brokers.engine.protocol.messages.sasl import ApiVersionsRequest
from brokers.infra.certificates import ensure_certificate
from brokers.provisioning.publisher import Publisher
from tests.testkit.engine import HOST, BrokerProcess, EngineCluster, TestInstance, eventually
from tests.testkit.tls import context_with, make_certificate, process_context, process_file
from tests.testkit.wire import WireClient

INSTANCE = "ins-aaaaaaaa"
TOPIC = "orders"
VALUE_BYTES = 200_000  # longer than what a link receives at a time


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    directory = tmp_path_factory.mktemp("internal")
    with EngineCluster(zookeeper_address, directory, size=3, internal_security=MUTUAL_TLS) as running:
        replicated(running, running.create_instance(INSTANCE))
        yield running


def replicated(cluster: EngineCluster, instance: TestInstance) -> None:
    """Creates a topic that accepts nothing unless all brokers are in sync."""
    admin = AdminClient({"bootstrap.servers": instance.bootstrap})
    topic = NewTopic(TOPIC, 3, 3, config={"min.insync.replicas": "3"})
    admin.create_topics([topic])[TOPIC].result(30)


def produce(instance: TestInstance, value: bytes) -> None:
    """Produces one record to each partition with acks=all, and waits until all replicas are in the ISR again."""
    failed: list[object] = []
    conf = {"bootstrap.servers": instance.bootstrap, "acks": "all", "message.timeout.ms": 60_000}
    producer = Producer(conf)
    for partition in range(3):
        producer.produce(TOPIC, value, partition=partition, on_delivery=lambda error, _: error and failed.append(error))
    assert producer.flush(60) == 0
    assert not failed


def consumed(instance: TestInstance, value: bytes) -> int:
    """Returns the number of records with this value; other tests write to the topic too."""
    conf = {"bootstrap.servers": instance.bootstrap, "group.id": "tests", "enable.auto.commit": False}
    consumer = Consumer({**conf, "enable.partition.eof": True})
    found, ends = 0, 0
    try:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(3)])
        while ends < 3:
            message = consumer.poll(30.0)
            assert message is not None, "the topic is not read to its end"
            ends += message.error() is not None
            found += message.error() is None and message.value() == value
        return found
    finally:
        consumer.close()


async def asked(broker: BrokerProcess, tls: ssl.SSLContext | None, login: str | None = None) -> bool:
    """True if the internal listener answers a request for metadata."""
    client = None
    try:
        client = await WireClient.connect(broker.settings.internal_port, tls=tls)
        if login is not None:
            assert (await client.ask_as(login)).error_code == 0
        answer = await client.call(ApiKey.METADATA, 9, MetadataRequest(topics=None))
        return bool(answer.brokers)
    except (OSError, asyncio.IncompleteReadError):
        return False
    finally:
        if client is not None:
            client.writer.transport.abort()


def admin_status(broker: BrokerProcess, path: str, tls: ssl.SSLContext | None) -> int | str:
    """Returns the HTTP status, or the reason why there is none."""
    scheme = "http" if tls is None else "https"
    try:
        address = f"{scheme}://{HOST}:{broker.settings.admin_port}{path}"
        with urllib.request.urlopen(address, timeout=10, context=tls) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return "refused"


def strangers(cluster: EngineCluster, directory: Path) -> dict[str, ssl.SSLContext | None]:
    """Returns TLS contexts that must be refused, by their kind."""
    authority = cluster.internal_tls / CA_FILE
    route = make_certificate(directory / "tls")
    others = process_file(directory / "others", broker(cluster.cluster_id, 1))
    return {
        "no TLS": None,
        "no certificate": context_with(None, authority),
        "the certificate of a tenant's route": context_with(route, authority),
        "a broker's of another installation": context_with(others, authority),
        "a broker's of another cluster": process_context(cluster.internal_tls, broker("cl-other000", 1)),
    }


def test_records_are_replicated_between_certified_brokers(cluster: EngineCluster) -> None:
    value = b"v" * VALUE_BYTES
    produce(cluster.instances[INSTANCE], value)
    assert consumed(cluster.instances[INSTANCE], value) == 3


def test_strangers_are_refused_on_the_internal_listener(cluster: EngineCluster, tmp_path: Path) -> None:
    one = cluster.brokers[0]
    for what, tls in strangers(cluster, tmp_path).items():
        assert not asyncio.run(asked(one, tls)), what
    reader = process_context(cluster.internal_tls, ProcessIdentity(ProcessRole.METRICS, "prometheus"))
    assert not asyncio.run(asked(one, reader))
    assert asyncio.run(asked(one, process_context(cluster.internal_tls, control("web"))))


def test_the_secret_opens_nothing_behind_a_certificate_either(cluster: EngineCluster) -> None:
    async def log_in() -> int:
        tls = process_context(cluster.internal_tls, control("web"))
        client = await WireClient.connect(cluster.brokers[0].settings.internal_port, tls=tls)
        handshake = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
        assert (await client.call(ApiKey.API_VERSIONS, 3, handshake)).error_code == 0
        try:
            return int((await client.log_in(CLUSTER_USER, cluster.secret)).error_code)
        except AssertionError:
            return 33
        finally:
            await client.close()

    assert asyncio.run(log_in()) == 33


def test_the_control_plane_sees_an_instance_as_its_owner_does(cluster: EngineCluster) -> None:
    tls = process_context(cluster.internal_tls, control("web"))
    assert asyncio.run(asked(cluster.brokers[0], tls, INSTANCE))


def test_strangers_learn_of_the_admin_port_that_it_lives(cluster: EngineCluster, tmp_path: Path) -> None:
    one = cluster.brokers[0]
    for what, tls in strangers(cluster, tmp_path).items():
        assert admin_status(one, "/metrics", tls) in (403, "refused"), what
        assert admin_status(one, "/v1/status", tls) in (403, "refused"), what
    assert admin_status(one, "/healthz", None) == 200
    assert admin_status(one, "/readyz", None) == 200


def test_each_role_reads_what_it_is_for_on_the_admin_port(cluster: EngineCluster) -> None:
    one = cluster.brokers[0]
    reader = process_context(cluster.internal_tls, ProcessIdentity(ProcessRole.METRICS, "prometheus"))
    assert [admin_status(one, path, reader) for path in ("/metrics", "/v1/status")] == [200, 403]
    web = process_context(cluster.internal_tls, control("web"))
    assert [admin_status(one, path, web) for path in ("/metrics", "/v1/status", "/v1/nothing")] == [200, 200, 404]


def test_a_killed_broker_comes_back_and_follows(cluster: EngineCluster) -> None:
    instance, killed = cluster.instances[INSTANCE], cluster.brokers[1]
    produce(instance, b"before")
    killed.kill()
    killed.start()
    killed.wait_until_ready()
    produce(instance, b"after")


def test_a_renewed_certificate_is_taken_up_while_the_broker_runs(cluster: EngineCluster, tmp_path: Path) -> None:
    one, identity = cluster.brokers[2], broker(cluster.cluster_id, 3)
    file = Path(one.settings.internal_certificate_file)

    def shown() -> bytes | None:
        context = process_context(cluster.internal_tls, control("web"))
        with (
            socket.create_connection((HOST, one.settings.internal_port), 10) as plain,
            context.wrap_socket(plain) as secured,
        ):
            return secured.getpeercert(binary_form=True)

    before = shown()
    # As the agent does: another one of the same name, in one step.
    shutil.copytree(cluster.internal_tls, tmp_path / "renewing")
    (tmp_path / "renewing" / identity.file_name).unlink()
    process_file(tmp_path / "renewing", identity).rename(file)
    eventually(lambda: shown() != before, "the other certificate is shown")
    produce(cluster.instances[INSTANCE], b"renewed")


def test_a_revoked_certificate_is_refused_within_30_s_and_a_later_one_is_not(cluster: EngineCluster) -> None:
    """The certificate is that of a broker that does not run, so that the others go on."""
    identity, tls = broker(cluster.cluster_id, 9), cluster.internal_tls
    earlier = process_context(tls, identity)
    for one in cluster.brokers:
        assert asyncio.run(asked(one, earlier))
    from_at = datetime.now(UTC) + timedelta(seconds=2)
    publisher = Publisher(cluster.zookeeper, "")
    revoked = RevokedCertificates({9: int(from_at.timestamp())})
    assert publisher.publish_revoked(revoked)
    assert not publisher.publish_revoked(revoked)
    for one in cluster.brokers:
        eventually(lambda one=one: not asyncio.run(asked(one, earlier)), "the certificate is refused", 30.0)
    later = ensure_certificate(tls, "later", [HOST], from_at, process=identity)
    assert asyncio.run(asked(cluster.brokers[0], context_with(later, tls / CA_FILE)))
    produce(cluster.instances[INSTANCE], b"after the revocation")


@pytest.mark.long("brokers/engine/assembly", "brokers/engine/replication")
def test_a_cluster_takes_up_certificates_one_broker_after_the_other(zookeeper_address: str, tmp_path: Path) -> None:
    """Brokers without certificates register and connect as before."""
    with EngineCluster(zookeeper_address, tmp_path, size=3, internal_security=PLAINTEXT) as cluster:
        instance = cluster.create_instance(INSTANCE)
        replicated(cluster, instance)
        produce(instance, b"before")
        for one in cluster.brokers:
            one.stop()
            one.settings = replace(one.settings, internal_security=MUTUAL_TLS)
            one.settings.write(one.settings_file)
            one.start()
            one.wait_until_ready()
            produce(instance, f"with broker {one.settings.broker_id}".encode())
        values = [b"before", *(f"with broker {one.settings.broker_id}".encode() for one in cluster.brokers)]
        assert [consumed(instance, value) for value in values] == [3] * 4
        for one in cluster.brokers:
            assert not asyncio.run(with_secret(one)), "the secret opens nothing any more"
            assert any(line["event"] == "internal_certificate_read" for line in one.log_lines())


async def with_secret(broker: BrokerProcess) -> bool:
    client = await WireClient.connect(broker.settings.internal_port)
    try:
        return (await client.log_in(CLUSTER_USER, broker.secret)).error_code == 0
    except (OSError, asyncio.IncompleteReadError):
        return False
    finally:
        client.writer.transport.abort()


def test_a_broker_without_its_certificate_says_where_to_get_it(cluster: EngineCluster, tmp_path: Path) -> None:
    missing = replace(cluster.brokers[0].settings, internal_certificate_file=str(tmp_path / "none.pem"))
    file = tmp_path / "settings.json"
    missing.write(file)
    one = BrokerProcess(missing, file, tmp_path / "log", cluster.secret)
    one.start()
    assert one.process is not None
    assert one.process.wait(30) != 0
    assert "issue_certificate" in json.dumps(one.log_tail())
