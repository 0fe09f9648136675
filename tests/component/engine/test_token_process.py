"""Tokens with other people's clients on real brokers: produce and consume, renewal under load, and refusals."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers.contract import paths
from brokers.contract.oauth import CONFIGURATION, OAuthDocument
from config.environment import BASE_DIR
from tests.testkit.administering import let_everybody_administer
from tests.testkit.engine import EngineCluster, TestInstance, eventually
from tests.testkit.oauth import Issuer
from tests.testkit.tls import make_certificate

TOPIC = "orders"
RENEWALS_MIN = 3
# A connection may authenticate again once a second (Kafka's rule): the client must have a fresh token in time.
TOKEN_S = 4.0
RENEWED_AFTER_S = 2.0
RECORDS_PER_S = 200
LOAD_S = 10.0


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def cluster(zookeeper_address: str, tmp_path_factory: pytest.TempPathFactory, ca: Path) -> Iterator[EngineCluster]:
    with EngineCluster(
        zookeeper_address, tmp_path_factory.mktemp("tokens"), certificate=make_certificate(ca)
    ) as running:
        yield running


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(scope="module")
def instance(cluster: EngineCluster, issuer: Issuer) -> TestInstance:
    instance = cluster.create_instance("ins-aaaaaaaa", security="sasl_plaintext")
    configure(cluster, instance, issuer.document(clock_skew_s=0))
    admin = AdminClient(settings(instance, lambda: issuer.token("owner")))
    eventually(lambda: TOPIC in created(admin), "the topic is there")
    return instance


def created(admin: AdminClient) -> set[str]:
    admin.poll(0)
    if TOPIC not in (found := set(admin.list_topics(timeout=5).topics)):
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(10)
    return found


def configure(cluster: EngineCluster, instance: TestInstance, document: OAuthDocument) -> None:
    cluster.zookeeper.ensure_path(paths.instance_oauth(instance.id))
    cluster.zookeeper.create(paths.instance_oauth_node(instance.id, CONFIGURATION), document.to_json())
    cluster._change(f"instances/{instance.id}/oauth/{CONFIGURATION}")


def settings(
    instance: TestInstance, token: Callable[[], str], lifetime_s: float = 600, ca: Path | None = None
) -> dict[str, Any]:
    """Returns settings for confluent-kafka."""
    secured = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(ca / "ca.pem")} if ca else {}
    return {
        "bootstrap.servers": instance.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _config: (token(), time.time() + lifetime_s),
        **secured,
    }


def with_confluent(instance: TestInstance, token: Callable[[], str], value: bytes, **more: Any) -> list[bytes]:
    """Produces a record and reads the topic; returns [] if the client is refused."""
    refused: list[KafkaError] = []
    conf = settings(instance, token, **more)
    producer = Producer(conf | {"error_cb": refused.append})
    producer.produce(TOPIC, value)
    while producer.flush(0.1):
        if any(error.code() == KafkaError._AUTHENTICATION for error in refused):
            producer.purge()
            producer.flush(5)
            return []
    consumer = Consumer(conf | {"group.id": "none", "enable.auto.commit": False, "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values = []
    try:
        while (message := consumer.poll(10)) is not None and message.error() is None:
            values.append(message.value() or b"")
    finally:
        consumer.close()
    return values


def with_kafka_python(instance: TestInstance, token: Callable[[], str], value: bytes) -> list[bytes]:
    import gc

    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError as TheirError
    from kafka.net.sasl.oauth import AbstractTokenProvider
    from kafka.structs import TopicPartition as Partition

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return token()

    conf = {
        "bootstrap_servers": instance.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(),
    }
    producer = None
    with suppress(TheirError):
        producer = KafkaProducer(**conf, bootstrap_timeout_ms=2_000)
    if producer is None:
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            gc.collect()  # it leaves a pair of sockets behind
        return []
    producer.send(TOPIC, value).get(10)
    producer.close()
    consumer = KafkaConsumer(**conf)
    partition = Partition(TOPIC, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    end = consumer.end_offsets([partition])[partition]
    values = []
    while consumer.position(partition) < end:
        values += [record.value for record in consumer.poll(1_000).get(partition, [])]
    consumer.close()
    return values


def with_aiokafka(instance: TestInstance, token: Callable[[], str], value: bytes) -> list[bytes]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import KafkaError as TheirError
    from aiokafka.structs import TopicPartition as Partition

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return token()

    async def run() -> list[bytes]:
        conf = {
            "bootstrap_servers": instance.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": Provider(),
        }
        producer = AIOKafkaProducer(**conf)
        try:
            await producer.start()
        except TheirError:
            await producer.stop()
            return []
        await producer.send_and_wait(TOPIC, value)
        await producer.stop()
        consumer = AIOKafkaConsumer(**conf)
        await consumer.start()
        partition = Partition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        end = (await consumer.end_offsets([partition]))[partition]
        values = []
        while await consumer.position(partition) < end:
            values.append((await consumer.getone()).value)
        await consumer.stop()
        return values

    return asyncio.run(run())


CLIENTS: dict[str, Callable[..., list[bytes]]] = {
    "confluent-kafka": with_confluent,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_of_others_produce_and_consume_with_tokens(instance: TestInstance, issuer: Issuer, client: str) -> None:
    value = client.encode()
    assert value in CLIENTS[client](instance, lambda: issuer.token("etl"), value)


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_of_others_with_invalid_tokens_stay_out(instance: TestInstance, issuer: Issuer, client: str) -> None:
    assert CLIENTS[client](instance, lambda: issuer.token(aud="other"), b"never") == []


def test_tokens_open_routes_with_tls(cluster: EngineCluster, issuer: Issuer, ca: Path) -> None:
    secured = cluster.create_instance("ins-cccccccc", security="sasl_tls")
    configure(cluster, secured, issuer.document())
    eventually(lambda: with_confluent(secured, issuer.token, b"x", ca=ca) == [b"x"], "a record came back")


def test_tokens_of_one_instance_open_nothing_of_another(
    cluster: EngineCluster, instance: TestInstance, issuer: Issuer
) -> None:
    other, theirs = cluster.create_instance("ins-bbbbbbbb", security="sasl_plaintext"), Issuer(audience="theirs")
    configure(cluster, other, theirs.document())
    eventually(lambda: with_confluent(other, theirs.token, b"theirs"), "their own token opens it")
    assert with_confluent(other, issuer.token, b"never") == []


def test_tokens_are_renewed_under_load_without_a_lost_record(instance: TestInstance, issuer: Issuer) -> None:
    """Each token lives for seconds, and the client authenticates again on the open connection."""
    handed_out: list[float] = []

    def token() -> str:
        handed_out.append(time.monotonic())
        return issuer.token("renewing", TOKEN_S)

    outcomes: list[Any] = []
    disconnects: list[KafkaError] = []
    producer = Producer(
        settings(instance, token, RENEWED_AFTER_S) | {"linger.ms": 5, "error_cb": disconnects.append, "retries": 0}
    )
    began_s, number = time.monotonic(), 0
    while (now_s := time.monotonic()) - began_s < LOAD_S:
        while number < (now_s - began_s) * RECORDS_PER_S:
            producer.produce(
                TOPIC, f"renewing-{number}".encode(), on_delivery=lambda error, _message: outcomes.append(error)
            )
            number += 1
        producer.poll(0.01)
    assert producer.flush(20) == 0
    assert len(handed_out) > RENEWALS_MIN
    assert [error for error in outcomes if error is not None] == []
    assert [error.str() for error in disconnects] == []
    values = with_confluent(instance, lambda: issuer.token("reader"), b"end")
    sent = [f"renewing-{each}".encode() for each in range(number)]
    assert [value for value in values if value.startswith(b"renewing-")] == sent


@contextmanager
def token_endpoint(issue: Callable[[], str]) -> Iterator[str]:
    """Address of a server with the token endpoint of OpenID providers (RFC 6749, 4.4)."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = json.dumps({"access_token": issue(), "token_type": "Bearer", "expires_in": int(TOKEN_S)}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/token"
        finally:
            server.shutdown()
            thread.join()


def test_librdkafka_fetches_new_tokens_of_a_provider_and_loses_nothing_when_they_end(
    instance: TestInstance, issuer: Issuer
) -> None:
    """The settings are those of every client over librdkafka with a token endpoint, kcat included if it is built with
    it.
    """
    handed_out: list[float] = []

    def issue() -> str:
        handed_out.append(time.monotonic())
        return issuer.token("provided", TOKEN_S)

    with token_endpoint(issue) as address:
        producer = Producer(
            {
                "bootstrap.servers": instance.bootstrap, "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc", "linger.ms": 5,
                "sasl.oauthbearer.client.id": "provided", "sasl.oauthbearer.client.secret": "secret",
                "sasl.oauthbearer.token.endpoint.url": address,
            }
        )  # fmt: skip
        sent = [f"provided-{number}".encode() for number in range(int(LOAD_S * 10))]
        failed: list[KafkaError] = []
        began_s = time.monotonic()
        for number, value in enumerate(sent):
            producer.produce(TOPIC, value, on_delivery=lambda error, _: failed.append(error) if error else None)
            while (left_s := began_s + number / 10 - time.monotonic()) > 0:
                producer.poll(left_s)
        assert producer.flush(30) == 0
        del producer
    assert not failed
    assert len(handed_out) >= RENEWALS_MIN
    found = with_confluent(instance, lambda: issuer.token("reader"), b"end")
    assert [value for value in found if value.startswith(b"provided-")] == sent


@pytest.mark.parametrize("client", ["kafka-python", "aiokafka"])
def test_clients_of_others_lose_nothing_when_their_tokens_end(
    instance: TestInstance, issuer: Issuer, client: str
) -> None:
    """kafka-python authenticates again on the open connection, aiokafka reconnects."""
    values = [f"{client}-{number}".encode() for number in range(40)]
    _produce_slowly[client](instance, issuer, values)
    found = with_confluent(instance, lambda: issuer.token("reader"), b"end")
    assert set(values) <= set(found)


def _slowly_with_kafka_python(instance: TestInstance, issuer: Issuer, values: list[bytes]) -> None:
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return issuer.token("slow", 1.5)

    producer = KafkaProducer(
        bootstrap_servers=instance.bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(), retries=10, retry_backoff_ms=50, reconnect_backoff_ms=50,
    )  # fmt: skip
    for value in values:
        producer.send(TOPIC, value).get(20)
        _pause()
    producer.close()


def _slowly_with_aiokafka(instance: TestInstance, issuer: Issuer, values: list[bytes]) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return issuer.token("slow", 1.5)

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=instance.bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(), retry_backoff_ms=50,
        )  # fmt: skip
        await producer.start()
        for value in values:
            await producer.send_and_wait(TOPIC, value)
            await asyncio.sleep(0.1)
        await producer.stop()

    asyncio.run(run())


def _pause() -> None:
    import threading

    threading.Event().wait(0.1)


_produce_slowly = {"kafka-python": _slowly_with_kafka_python, "aiokafka": _slowly_with_aiokafka}


def test_the_lines_of_the_how_to_run(
    instance: TestInstance, issuer: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token.jwt").write_text(issuer.token("reader"))
    text = (BASE_DIR / "docs" / "how-to" / "authenticate-clients.md").read_text(encoding="utf-8")
    blocks = [code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "token.jwt" in code]
    assert len(blocks) == 2
    for code in blocks:
        names: dict[str, Any] = {}
        exec(code.replace("\u2026", instance.bootstrap), names)
        producer = names["producer"]
        if isinstance(producer, Producer):
            producer.produce(TOPIC, b"x")
            assert producer.flush(10) == 0
        else:
            producer.send(TOPIC, b"x").get(10)
            producer.close()


def test_a_token_has_the_rights_of_the_name_it_carries(
    cluster: EngineCluster, instance: TestInstance, issuer: Issuer
) -> None:
    """ACLs and quotas name the claim's value like a user."""
    from confluent_kafka.admin import (
        AclBinding,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    let_everybody_administer(cluster, instance)
    admin = AdminClient(settings(instance, lambda: issuer.token("owner")))
    admin.poll(0)
    deny = AclBinding(
        ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, "User:denied", "*", AclOperation.WRITE,
        AclPermissionType.DENY,
    )  # fmt: skip
    allow = AclBinding(
        ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, "User:*", "*", AclOperation.ALL,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    for future in admin.create_acls([deny, allow]).values():
        future.result(10)

    def outcome(name: str) -> Any:
        outcomes: list[Any] = []
        producer = Producer(settings(instance, lambda: issuer.token(name)))
        producer.produce(TOPIC, b"x", on_delivery=lambda error, _message: outcomes.append(error))
        producer.flush(10)
        return outcomes[0]

    assert outcome("denied").code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert outcome("allowed") is None
