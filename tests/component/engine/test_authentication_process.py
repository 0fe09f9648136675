"""Users of an instance with other people's clients: each mechanism, rotation, revocation, quotas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.users import DescribeUsersRequest
from tests.interop.signing_in import CLIENTS, Access
from tests.testkit.administering import let_everybody_administer
from tests.testkit.engine import EngineCluster, TestInstance, eventually
from tests.testkit.users import alter_users, call_as_control_plane, user_addition
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.asking import set_quota

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
TOPIC = "orders"
CUT_S_MAX = 1.0


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineCluster]:
    directory = tmp_path_factory.mktemp("sasl")
    with EngineCluster(zookeeper_address, directory) as running:
        yield running


@pytest.fixture(scope="module")
def instance(cluster: EngineCluster) -> TestInstance:
    instance = cluster.create_instance("ins-aaaaaaaa", security="sasl_plaintext")
    alter_users(
        cluster, instance, user_addition("owner", "owner-secret", superuser=1), user_addition("alice", "alice-secret")
    )
    admin = AdminClient(settings(instance, "owner", "owner-secret"))
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    return instance


def described(cluster: EngineCluster, instance: TestInstance, name: str) -> Any:
    answer = call_as_control_plane(cluster, instance, ApiKey.DESCRIBE_USERS, 0, DescribeUsersRequest(names=[name]))
    return answer.users[0]


def settings(instance: TestInstance, name: str, password: str, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
    """Returns settings for confluent-kafka."""
    return access(instance, name, password, mechanism).of_librdkafka()


def access(instance: TestInstance, name: str, password: str, mechanism: str) -> Access:
    return Access(instance.bootstrap, TOPIC, mechanism=mechanism, user=name, password=password)


def with_confluent(instance: TestInstance, name: str, password: str, mechanism: str, value: bytes) -> list[bytes]:
    return CLIENTS["confluent-kafka"](access(instance, name, password, mechanism), value)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_clients_of_others_sign_in_produce_and_consume(instance: TestInstance, client: str, mechanism: str) -> None:
    value = f"{client} {mechanism}".encode()
    assert value in CLIENTS[client](access(instance, "alice", "alice-secret", mechanism), value)


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_of_others_with_a_wrong_secret_stay_out(
    cluster: EngineCluster, instance: TestInstance, client: str
) -> None:
    name = f"wrong-{client}"
    alter_users(cluster, instance, user_addition(name, "right"))
    for mechanism in MECHANISMS[:2]:
        assert CLIENTS[client](access(instance, name, "wrong", mechanism), b"never") == []


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_secret_is_rotated_through_two_live_ones(
    cluster: EngineCluster, instance: TestInstance, mechanism: str
) -> None:
    name = f"rotating-{mechanism}"
    alter_users(cluster, instance, user_addition(name, "old"))
    assert with_confluent(instance, name, "old", mechanism, b"1")
    alter_users(cluster, instance, user_addition(name, "new"))
    assert with_confluent(instance, name, "old", mechanism, b"2")
    assert with_confluent(instance, name, "new", mechanism, b"3")
    alter_users(cluster, instance, user_addition(name, removed_secrets=["of-old"]))
    assert with_confluent(instance, name, "new", mechanism, b"4")
    assert with_confluent(instance, name, "old", mechanism, b"never") == []

    (secret,) = described(cluster, instance, name).secrets
    assert secret.id == "of-new"
    assert secret.last_used_at_ms > secret.created_at_ms


def test_a_user_that_is_disabled_is_cut_within_a_second(cluster: EngineCluster, instance: TestInstance) -> None:
    alter_users(cluster, instance, user_addition("leaving", "secret"))
    producer = Producer(settings(instance, "leaving", "secret") | {"message.timeout.ms": 2_000})
    outcomes: list[Any] = []
    producer.produce(TOPIC, b"before", on_delivery=lambda error, _message: outcomes.append(error))
    producer.flush(10)
    assert outcomes == [None]
    assert described(cluster, instance, "leaving").connections > 0

    began_s = time.monotonic()
    alter_users(cluster, instance, user_addition("leaving", disabled=1))
    eventually(lambda: described(cluster, instance, "leaving").connections == 0, "its connections are cut")
    assert time.monotonic() - began_s < CUT_S_MAX

    producer.produce(TOPIC, b"after", on_delivery=lambda error, _message: outcomes.append(error))
    producer.flush(10)
    assert outcomes[1] is not None


def test_kafkas_own_calls_make_and_describe_users(cluster: EngineCluster, instance: TestInstance) -> None:
    owner = AdminClient(settings(instance, "owner", "owner-secret"))
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8_192)
    upsertion = UserScramCredentialUpsertion("by-kafka", credential, b"by-kafka-secret", b"their salt")
    owner.alter_user_scram_credentials([upsertion])["by-kafka"].result(10)

    shown = owner.describe_user_scram_credentials(["by-kafka"])["by-kafka"].result(10)
    assert [(info.mechanism, info.iterations) for info in shown.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_512, 8_192)
    ]
    assert with_confluent(instance, "by-kafka", "by-kafka-secret", "SCRAM-SHA-512", b"x")
    assert with_confluent(instance, "by-kafka", "by-kafka-secret", "PLAIN", b"x")

    alice = AdminClient(settings(instance, "alice", "alice-secret"))
    takeover = UserScramCredentialUpsertion("owner", credential, b"alices-choice", b"their salt")
    with pytest.raises(KafkaException, match="Cluster authorization failed"):
        alice.alter_user_scram_credentials([takeover])["owner"].result(10)
    let_everybody_administer(cluster, instance)
    with pytest.raises(KafkaException, match="Only superusers set the secrets of a superuser"):
        alice.alter_user_scram_credentials([takeover])["owner"].result(10)


LEVELS: Sequence[dict[str, str | None]] = (
    {"user": "paced", "client-id": "etl"},
    {"user": "paced", "client-id": None},
    {"user": "paced"},
    {"user": None, "client-id": "etl"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "etl"},
    {"client-id": None},
)


def test_a_named_user_is_held_to_the_first_of_the_eight_levels_that_is_set(
    cluster: EngineCluster, instance: TestInstance
) -> None:
    """All levels are set; each is removed after it was seen to delay."""
    alter_users(cluster, instance, user_addition("paced", "secret"))

    async def change(entity: dict[str, str | None], rate: float | None) -> None:
        client = await WireClient.connect(cluster.brokers[0].settings.internal_port)
        assert (await client.log_in(instance.id, cluster.secret)).error_code == 0
        assert await set_quota(client, entity, "producer_byte_rate", rate) == 0
        await client.close()

    async def set_all() -> None:
        for number, entity in enumerate(LEVELS, start=1):
            await change(entity, 1_000.0 + number)

    asyncio.run(set_all())
    for level, entity in enumerate(LEVELS, start=1):
        producer = Producer(settings(instance, "paced", "secret") | {"client.id": "etl"})
        producer.produce(TOPIC, bytes(20_000))
        assert producer.flush(20) == 0
        (newest, *_) = cluster.brokers[0].admin(f"/v1/instances/{instance.id}/throttles")["entries"]
        assert (newest["rule"]["level"], newest["user"], newest["client_id"]) == (level, "paced", "etl")
        assert newest["limit_bytes_per_s"] == 1_000.0 + level
        asyncio.run(change(entity, None))
