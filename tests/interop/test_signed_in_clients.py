"""Other people's clients over TLS, with each mechanism: let in, kept out, changed over to another secret, cut off, and
asked again who they are while they produce (WIRE-18…21, KIP-368).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from brokers.contract.certificates import CertificatesDocument
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.users import DescribeUsersRequest
from tests.interop.signing_in import CLIENTS, Access, with_confluent
from tests.testkit.client_certificates import Authority
from tests.testkit.engine import EngineCluster, TestInstance, eventually
from tests.testkit.tls import make_certificate
from tests.testkit.users import alter_users, call_as_control_plane, user_addition

pytestmark = pytest.mark.timeout(300)

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOPIC: Final = "orders"
SECURED, ENCRYPTED, REFUSING, CERTIFIED = "ins-aaaaaaaa", "ins-bbbbbbbb", "ins-cccccccc", "ins-dddddddd"
CUT_S_MAX: Final = 1.0
LIFETIME_MS: Final = 2_000
LOADED_S: Final = 3.5 * LIFETIME_MS / 1000
PACE_S: Final = 0.005


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
def secured(cluster: EngineCluster, authority: Path) -> tuple[TestInstance, Access]:
    """An instance with users behind TLS, and alice's way in."""
    return with_users(cluster, authority)


def with_users(cluster: EngineCluster, authority: Path) -> tuple[TestInstance, Access]:
    instance = cluster.create_instance(SECURED, security="sasl_tls")
    alter_users(
        cluster, instance, user_addition("owner", "owner-secret", superuser=1), user_addition("alice", "alice-secret")
    )
    access = Access(
        instance.bootstrap, TOPIC, str(authority / "ca.pem"), "SCRAM-SHA-256", user="alice", password="alice-secret"
    )
    make_topic(replace(access, user="owner", password="owner-secret"))
    return instance, access


def make_topic(access: Access) -> None:
    admin = AdminClient(access.of_librdkafka())
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)


def described(cluster: EngineCluster, instance: TestInstance, name: str) -> Any:
    answer = call_as_control_plane(cluster, instance, ApiKey.DESCRIBE_USERS, 0, DescribeUsersRequest(names=[name]))
    return answer.users[0]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_signs_in_over_tls_produces_and_consumes(
    secured: tuple[TestInstance, Access], client: str, mechanism: str
) -> None:
    value = f"{client} {mechanism}".encode()
    assert value in CLIENTS[client](replace(secured[1], mechanism=mechanism), value)


@pytest.fixture(scope="module")
def refusing(cluster: EngineCluster, authority: Path) -> Access:
    """Access to an instance of its own with a wrong password: all clients share one address, which may fail fifty
    times.
    """
    instance = cluster.create_instance(REFUSING, security="sasl_tls")
    alter_users(cluster, instance, user_addition("alice", "right", instance_id=instance.id))
    return Access(instance.bootstrap, TOPIC, str(authority / "ca.pem"), user="alice", password="wrong")


@pytest.mark.parametrize(
    ("client", "mechanism"),
    [*((client, "SCRAM-SHA-256") for client in CLIENTS), ("aiokafka", "PLAIN"), ("confluent-kafka", "SCRAM-SHA-512")],
)
def test_a_client_with_a_wrong_secret_stays_out(refusing: Access, client: str, mechanism: str) -> None:
    assert CLIENTS[client](replace(refusing, mechanism=mechanism), b"never") == []


@pytest.fixture(scope="module")
def encrypted(cluster: EngineCluster, authority: Path) -> Access:
    """Access to an instance without users over TLS."""
    instance = cluster.create_instance(ENCRYPTED, security="tls")
    access = Access(instance.bootstrap, TOPIC, str(authority / "ca.pem"))
    make_topic(access)
    return access


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_without_a_user_produces_and_consumes_over_tls(encrypted: Access, client: str) -> None:
    assert client.encode() in CLIENTS[client](encrypted, client.encode())


@pytest.fixture(scope="module")
def certified(cluster: EngineCluster, authority: Path, tmp_path_factory: pytest.TempPathFactory) -> Access:
    """Access to an instance that identifies its clients by certificate."""
    clients = Authority.make("Acme CA")
    instance = cluster.create_instance(CERTIFIED, security="mtls")
    cluster.put_certificates(instance, CertificatesDocument(client_ca_pem=clients.pem))
    folder = tmp_path_factory.mktemp("clients")
    own_file = str(clients.client(folder, "alice"))
    access = Access(instance.bootstrap, TOPIC, str(authority / "ca.pem"), own_file=own_file)
    make_topic(access)
    return access


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_with_a_certificate_produces_and_consumes(certified: Access, client: str) -> None:
    assert client.encode() in CLIENTS[client](certified, client.encode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_secret_is_rotated_over_tls_while_a_producer_goes_on(
    cluster: EngineCluster, secured: tuple[TestInstance, Access], mechanism: str
) -> None:
    """One with the old secret, then one with the new; each record that was acknowledged is there."""
    instance, access = secured
    name = f"rotating-{mechanism}"
    old = replace(access, mechanism=mechanism, user=name, password="old")
    new = replace(old, password="new")
    alter_users(cluster, instance, user_addition(name, "old"))
    producer, outcomes = Producer(old.of_librdkafka()), Outcomes()
    outcomes.send(producer, f"{name} 1")
    alter_users(cluster, instance, user_addition(name, "new"))
    assert f"{name} 2".encode() in with_confluent(new, f"{name} 2".encode())
    outcomes.send(producer, f"{name} 3")
    assert outcomes.errors == [None, None]

    alter_users(cluster, instance, user_addition(name, removed_secrets=["of-old"]))

    read = with_confluent(new, f"{name} 4".encode())
    assert {f"{name} {number}".encode() for number in range(1, 5)} <= set(read)
    assert with_confluent(old, b"never") == []
    (secret,) = described(cluster, instance, name).secrets
    assert secret.id == "of-new"


class Outcomes:
    """Delivery result of each record."""

    def __init__(self) -> None:
        self.errors: list[KafkaError | None] = []

    def note(self, error: KafkaError | None, _message: Message) -> None:
        self.errors.append(error)

    def send(self, producer: Producer, value: str) -> None:
        producer.produce(TOPIC, value.encode(), on_delivery=self.note)
        assert producer.flush(30) == 0


# Opens a connection that has produced, calls what it is given, and answers whether it could produce afterwards.
Holding = Callable[[Access, Callable[[], None]], bool]


def hold_confluent(access: Access, cut: Callable[[], None]) -> bool:
    producer = Producer(access.of_librdkafka() | {"message.timeout.ms": 2_000, "log_level": 0})
    outcomes = Outcomes()
    outcomes.send(producer, "before")
    assert outcomes.errors == [None]
    cut()
    outcomes.send(producer, "after")
    return outcomes.errors[1] is None


def hold_kafka_python(access: Access, cut: Callable[[], None]) -> bool:
    from kafka import KafkaProducer
    from kafka.errors import KafkaError as Failed

    producer = KafkaProducer(
        **access.of_kafka_python(), max_block_ms=2_000, request_timeout_ms=1_500, delivery_timeout_ms=2_000
    )
    producer.send(TOPIC, b"before").get(30)
    cut()
    try:
        producer.send(TOPIC, b"after").get(10)
    except Failed:
        return False
    finally:
        producer.close()
    return True


def hold_aiokafka(access: Access, cut: Callable[[], None]) -> bool:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError as Failed

    async def run() -> bool:
        producer = AIOKafkaProducer(**access.of_aiokafka(), request_timeout_ms=2_000)
        await producer.start()
        await producer.send_and_wait(TOPIC, b"before")
        await asyncio.to_thread(cut)
        try:
            async with asyncio.timeout(3):
                await producer.send_and_wait(TOPIC, b"after")
        except (Failed, TimeoutError):
            return False
        finally:
            with suppress(Failed, TimeoutError):
                async with asyncio.timeout(3):
                    await producer.stop()
        return True

    return asyncio.run(run())


HOLDING: Final[dict[str, Holding]] = {
    "confluent-kafka": hold_confluent,
    "kafka-python": hold_kafka_python,
    "aiokafka": hold_aiokafka,
}


@pytest.mark.parametrize("client", HOLDING)
def test_a_user_that_is_revoked_is_cut_within_a_second_and_stays_out(
    cluster: EngineCluster, secured: tuple[TestInstance, Access], client: str
) -> None:
    instance, access = secured
    name = f"revoked-{client}"
    alter_users(cluster, instance, user_addition(name, "secret"))

    def cut() -> None:
        assert described(cluster, instance, name).connections > 0
        began_s = time.monotonic()
        alter_users(cluster, instance, user_addition(name, disabled=1))
        eventually(lambda: described(cluster, instance, name).connections == 0, f"{client} is cut")
        assert time.monotonic() - began_s < CUT_S_MAX

    assert not HOLDING[client](replace(access, user=name, password="secret"), cut)


def test_a_waiting_consumer_loses_its_right_to_read_within_a_second(
    cluster: EngineCluster, secured: tuple[TestInstance, Access]
) -> None:
    """Its fetch would wait for twenty seconds."""
    instance, access = secured
    alter_users(cluster, instance, user_addition("waiting", "secret"))
    conf = replace(access, user="waiting", password="secret").of_librdkafka()
    consumer = Consumer(conf | {"group.id": "none", "enable.auto.commit": False, "fetch.wait.max.ms": 20_000})
    end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)[1]
    consumer.assign([TopicPartition(TOPIC, 0, end)])
    assert consumer.poll(0.5) is None
    owner = AdminClient(replace(access, user="owner", password="owner-secret").of_librdkafka())
    everybody, denied = [
        AclBinding(ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, principal, "*", AclOperation.ALL, permission)
        for principal, permission in (
            ("User:*", AclPermissionType.ALLOW),
            ("User:waiting", AclPermissionType.DENY),
        )
    ]
    for future in owner.create_acls([everybody]).values():
        future.result(30)
    assert consumer.poll(0.2) is None

    for future in owner.create_acls([denied]).values():
        future.result(30)

    message = consumer.poll(CUT_S_MAX)
    assert message is not None
    assert message.error() is not None
    assert message.error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.close()


# -- authentication again under load ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short_lived(
    zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory, authority: Path
) -> Iterator[tuple[EngineCluster, TestInstance, Access]]:
    """A broker on which sessions end soon."""
    directory = tmp_path_factory.mktemp("short-lived")
    overrides = {"connections.max.reauth.ms": str(LIFETIME_MS)}
    with EngineCluster(
        zookeeper_address, directory, overrides=overrides, certificate=authority / "broker.pem"
    ) as cluster:
        yield cluster, *with_users(cluster, authority)


# Produces numbered records for a while; those that were acknowledged.
Loading = Callable[[Access, str], list[bytes]]


def load_confluent(access: Access, name: str) -> list[bytes]:
    """On one connection to the broker from beginning to end: librdkafka authenticates again."""
    acknowledged: list[bytes] = []
    disconnects: list[int] = []

    def note(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged.append(message.value() or b"")

    def look(statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        disconnects.append(sum(broker["disconnects"] for broker in brokers))

    producer = Producer(access.of_librdkafka() | {"statistics.interval.ms": 500, "stats_cb": look})
    for value in paced(name):
        producer.produce(TOPIC, value, on_delivery=note)
        producer.poll(PACE_S)
    assert producer.flush(30) == 0
    assert disconnects
    assert disconnects[-1] == 0
    return acknowledged


def load_kafka_python(access: Access, name: str) -> list[bytes]:
    from kafka import KafkaProducer

    producer = KafkaProducer(**access.of_kafka_python())
    sent = {}
    for value in paced(name):
        sent[value] = producer.send(TOPIC, value)
        producer.flush()
    for future in sent.values():
        future.get(30)
    producer.close()
    return list(sent)


def load_aiokafka(access: Access, name: str) -> list[bytes]:
    from aiokafka import AIOKafkaProducer

    async def run() -> list[bytes]:
        acknowledged = []
        async with AIOKafkaProducer(**access.of_aiokafka()) as producer:
            for value in paced(name):
                await producer.send_and_wait(TOPIC, value)
                acknowledged.append(value)
        return acknowledged

    return asyncio.run(run())


LOADING: Final[dict[str, Loading]] = {
    "confluent-kafka": load_confluent,
    "kafka-python": load_kafka_python,
    "aiokafka": load_aiokafka,
}


def paced(name: str) -> Iterator[bytes]:
    """Numbered, for more than three lives of a session."""
    ends_s, number = time.monotonic() + LOADED_S, 0
    while time.monotonic() < ends_s:
        yield f"{name} {number}".encode()
        number += 1


@pytest.mark.long("brokers/engine/handlers/auth/tenant_sasl.py")
@pytest.mark.parametrize("client", LOADING)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_no_record_is_lost_where_clients_are_asked_again_under_load(
    short_lived: tuple[EngineCluster, TestInstance, Access], client: str, mechanism: str
) -> None:
    cluster, instance, access = short_lived
    access = replace(access, mechanism=mechanism)

    def signed_in() -> int:
        status = cluster.brokers[0].admin("/v1/status")
        return int(status["authentications_by_instance"].get(instance.id, {"succeeded": 0})["succeeded"])

    before = signed_in()
    acknowledged = LOADING[client](access, f"{client} {mechanism}")
    # At least at the end of each life, on one connection.
    assert signed_in() - before >= LOADED_S * 1000 // LIFETIME_MS
    read = with_confluent(access, b"last")
    mine = [value for value in read if value.startswith(f"{client} {mechanism} ".encode())]
    assert len(acknowledged) > 10
    # Who is not idempotent may write one twice.
    assert list(dict.fromkeys(mine)) == acknowledged
