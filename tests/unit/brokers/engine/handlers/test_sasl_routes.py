"""A route with authentication: legal requests are those of Apache Kafka's brokers (WIRE-18, WIRE-19, KIP-368)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from brokers.contract import paths
from brokers.contract.documents import change_to_json
from brokers.contract.users import UserDocument
from brokers.engine.access import attempts, passwords
from brokers.engine.cluster.tree import Create, Delete, Operation, Set
from brokers.engine.handlers import logins
from brokers.engine.handlers.auth import tenant_sasl
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.metadata import MetadataRequest
from brokers.engine.protocol.messages.sasl import ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from tests.testkit.in_process import InProcessBroker
from tests.testkit.scram import ScramClient, user
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.test_no_garbage import ROUNDS, left_behind, left_each_time  # noqa: F401

MINE, THEIRS = "ins-aaaaaaaa", "ins-bbbbbbbb"
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")

SASL = "sasl_plaintext"


@dataclass
class SaslHouse:
    broker: InProcessBroker
    port: int
    their_port: int

    async def connect(self, port: int | None = None) -> WireClient:
        return await self.broker.client(port or self.port)

    async def signed_in(self, name: str = "alice", password: str = "secret", mechanism: int = 0) -> WireClient:
        client = await self.connect()
        answer = await sign_in(client, name, password, mechanism)
        assert answer.error_code == 0, answer
        return client

    async def put(self, *users: UserDocument, instance_id: str = MINE, removed: tuple[str, ...] = ()) -> None:
        """Writes users like another broker, and waits until this one has them."""
        tree, operations = self.broker.tree, list[Operation]()
        folder = paths.instance_users(instance_id)
        if await tree.get(folder) is None:
            operations.append(Create(folder))
        named = [(paths.sanitise(each.name), each) for each in users]
        for node, each in named:
            path = paths.instance_user(instance_id, node)
            is_new = await tree.get(path) is None
            operations.append(Create(path, each.to_json()) if is_new else Set(path, each.to_json(), None))
        operations += [Delete(paths.instance_user(instance_id, node), None) for node in removed]
        nodes = [node for node, _ in named] + list(removed)
        change = change_to_json([f"instances/{instance_id}/users/{node}" for node in nodes])
        await tree.commit([*operations, Create(paths.CHANGE_PREFIX, change, sequence=True)])
        current = self.broker.broker.current

        def seen() -> bool:
            shown = current.image.users.of_instance(instance_id)
            return all(shown.get(node) == each for node, each in named) and not any(node in shown for node in removed)

        await self.broker.until(seen)


async def shake_hands(client: WireClient, mechanism: str, version: int = 1) -> Any:
    return await client.call(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism))


async def say(client: WireClient, token: bytes, version: int = 2) -> Any:
    return await client.call(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(auth_bytes=token))


async def sign_in(client: WireClient, name: str, password: str, mechanism: int = 0) -> Any:
    """Signs in, with PLAIN for `mechanism` 0; returns the last response."""
    if not mechanism:
        assert (await shake_hands(client, "PLAIN")).error_code == 0
        return await say(client, f"\0{name}\0{password}".encode())
    scram = ScramClient(name, password, mechanism)
    assert (await shake_hands(client, scram.mechanism_name)).error_code == 0
    first = await say(client, scram.first())
    if first.error_code:
        return first
    final = await say(client, scram.final(first.auth_bytes))
    assert final.error_code or scram.is_servers(final.auth_bytes)
    return final


async def is_served(client: WireClient) -> bool:
    answer = await client.call(ApiKey.METADATA, 12, MetadataRequest(topics=[]))
    return bool(answer.brokers)


@pytest.fixture
def overrides() -> dict[str, str]:
    return {}


@pytest.fixture
async def sasl(tmp_path: Path, overrides: dict[str, str]) -> AsyncIterator[SaslHouse]:
    async with InProcessBroker(tmp_path, overrides=overrides) as broker:
        house = SaslHouse(
            broker,
            await broker.create_instance(MINE, security=SASL),
            await broker.create_instance(THEIRS, security=SASL),
        )
        await house.put(user("alice", "secret", "second"))
        await house.put(user("bob", "their-secret", instance_id=THEIRS), instance_id=THEIRS)
        yield house


@pytest.mark.parametrize("mechanism", [1, 2])
@pytest.mark.parametrize("name", ["carol", "ä=,", "x" * 200])
async def test_the_first_answer_does_not_tell_whether_there_is_such_a_user(
    sasl: SaslHouse, name: str, mechanism: int
) -> None:
    """Salt and iterations do not change when the user is created, gets a second secret, or is deleted."""

    async def asked() -> bytes:
        client, scram = await sasl.connect(), ScramClient(name, "any", mechanism)
        await shake_hands(client, scram.mechanism_name)
        return bytes((await say(client, scram.first())).auth_bytes).partition(b",s=")[2]

    answers = [await asked()]
    for secrets in (("one",), ("one", "two")):
        await sasl.put(user(name, *secrets))
        answers.append(await asked())
    await sasl.put(removed=(paths.sanitise(name),))
    answers.append(await asked())
    assert len(set(answers)) == 1


@pytest.mark.parametrize("mechanism", [0, 1, 2])
async def test_a_user_signs_in_with_either_secret(sasl: SaslHouse, mechanism: int) -> None:
    for password in ("secret", "second", "secret"):
        client = await sasl.signed_in("alice", password, mechanism)
        assert await is_served(client)


@pytest.mark.parametrize("mechanism", [0, 1, 2])
@pytest.mark.parametrize(
    ("name", "password"), [("alice", "wrong"), ("nobody", "secret"), ("bob", "their-secret"), ("ALICE", "secret")]
)
async def test_a_failed_authentication_is_answered_late_and_ends_the_connection(
    sasl: SaslHouse, mechanism: int, name: str, password: str
) -> None:
    client = await sasl.connect()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    answer = await sign_in(client, name, password, mechanism)
    assert answer.error_code == FAILED
    assert answer.error_message in (
        "Authentication failed: Invalid username or password",
        "Authentication failed during authentication due to invalid credentials with SASL mechanism "
        f"SCRAM-SHA-{256 if mechanism == 1 else 512}",
    )
    assert loop.time() - began_s >= tenant_sasl.FAILED_AUTHENTICATION_DELAY_MS / 1000 * 0.9
    assert await client.is_closed()


async def test_users_of_one_instance_open_nothing_of_another(sasl: SaslHouse) -> None:
    client = await sasl.connect(sasl.their_port)
    assert (await sign_in(client, "alice", "secret", 1)).error_code == FAILED
    client = await sasl.connect(sasl.their_port)
    assert (await sign_in(client, "bob", "their-secret")).error_code == 0


async def test_an_old_client_sends_bare_tokens(sasl: SaslHouse) -> None:
    scram = ScramClient("alice", "secret", 1)
    client = await sasl.connect()
    await shake_hands(client, "SCRAM-SHA-256", version=0)
    await client.send_raw(pack(">i", len(scram.first())) + scram.first())
    final = scram.final(await client.receive_frame())
    await client.send_raw(pack(">i", len(final)) + final)
    assert scram.is_servers(await client.receive_frame())
    assert await is_served(client)

    client = await sasl.connect()
    await shake_hands(client, "PLAIN", version=0)
    token = b"\0alice\0secret"
    await client.send_raw(pack(">i", len(token)) + token)
    assert await client.receive_frame() == b""
    assert await is_served(client)


async def test_an_old_client_that_proves_nothing_gets_no_answer(sasl: SaslHouse) -> None:
    client = await sasl.connect()
    await shake_hands(client, "PLAIN", version=0)
    token = b"\0alice\0wrong"
    await client.send_raw(pack(">i", len(token)) + token)
    assert await client.is_closed()


async def test_an_unknown_mechanism_is_answered_with_those_there_are(sasl: SaslHouse) -> None:
    client = await sasl.connect()
    answer = await shake_hands(client, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert await client.is_closed()


async def test_versions_are_answered_once_and_name_the_calls_of_authentication(sasl: SaslHouse) -> None:
    client = await sasl.connect()
    answer = await client.call(ApiKey.API_VERSIONS, 3, VERSIONS)
    assert {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} <= {each.api_key for each in answer.api_keys}
    await client.send(ApiKey.API_VERSIONS, 3, VERSIONS)
    assert await client.is_closed()


async def test_nothing_else_is_legal_before_a_proof(sasl: SaslHouse) -> None:
    for version in (0, 12):
        client = await sasl.connect()
        await client.send(ApiKey.METADATA, version, MetadataRequest(topics=[]))
        assert await client.is_closed()
    client = await sasl.connect()
    await client.send(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"))
    assert await client.is_closed()
    client = await sasl.connect()
    await shake_hands(client, "PLAIN")
    assert (await shake_hands(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await client.is_closed()


async def test_a_client_that_stays_unauthenticated_loses_the_connection(
    sasl: SaslHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenant_sasl, "AUTHENTICATION_MS_MAX", 50)
    client = await sasl.connect()
    await shake_hands(client, "SCRAM-SHA-256")
    assert await client.is_closed()


async def test_an_authenticated_connection_may_not_authenticate_where_that_is_off(sasl: SaslHouse) -> None:
    client = await sasl.signed_in()
    assert (await shake_hands(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await say(client, b"\0alice\0secret")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await is_served(client)


# -- again (KIP-368) --------------------------------------------------------------------------------------------------


def as_often_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "REAUTHENTICATION_INTERVAL_MS_MIN", 0)


@pytest.mark.parametrize("mechanism", [0, 1])
async def test_a_connection_authenticates_again_and_goes_on(
    sasl: SaslHouse, monkeypatch: pytest.MonkeyPatch, mechanism: int
) -> None:
    as_often_as_it_likes(monkeypatch)
    authentication = sasl.broker.broker.services.access.authentication
    authentication.max_reauth_ms = 60_000
    client = await sasl.connect()
    assert (await sign_in(client, "alice", "secret", mechanism)).session_lifetime_ms == 60_000
    for password in ("second", "secret"):
        answer = await sign_in(client, "alice", password, mechanism)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 60_000)
        assert await is_served(client)
    assert authentication.logins.count(MINE, "alice") == 1


async def test_it_may_not_become_somebody_else_nor_prove_nothing(
    sasl: SaslHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    await sasl.put(user("carol", "hers"))
    sasl.broker.broker.services.access.authentication.max_reauth_ms = 60_000
    for name, password in (("carol", "hers"), ("alice", "wrong")):
        client = await sasl.signed_in()
        answer = await sign_in(client, name, password)
        assert answer.error_code == FAILED
        assert await client.is_closed()
    client = await sasl.signed_in()
    assert (await shake_hands(client, "SCRAM-SHA-256")).error_code == 0
    await client.send(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"))
    assert await client.is_closed()
    await sasl.broker.until(lambda: sasl.broker.broker.services.access.authentication.logins.count(MINE, "alice") == 0)


async def test_a_connection_that_does_not_authenticate_again_is_closed_at_its_next_request(sasl: SaslHouse) -> None:
    sasl.broker.broker.services.access.authentication.max_reauth_ms = 50
    late = await sasl.signed_in()
    in_time = await sasl.signed_in()
    connections = sasl.broker.broker.listeners.get(MINE)
    assert connections is not None
    await sasl.broker.until(
        lambda: all(type(each.session).__name__ == "_Expiry" for each in connections.connections)  # type: ignore[attr-defined]
    )
    assert (await sign_in(in_time, "alice", "secret")).error_code == 0
    await late.send(ApiKey.METADATA, 12, MetadataRequest(topics=[]))
    assert await late.is_closed()


# -- revocation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [0, 1])
@pytest.mark.parametrize("how", ["removed", "disabled", "expired", "secret"])
async def test_a_client_whose_user_is_revoked_loses_the_connection(sasl: SaslHouse, mechanism: int, how: str) -> None:
    alice = user("alice", "secret", "second")
    revoked = await sasl.signed_in("alice", "secret", mechanism)
    other = await sasl.signed_in("alice", "second", mechanism)
    await sasl.put(user("carol", "hers"))
    carol = await sasl.signed_in("carol", "hers", mechanism)
    if how == "removed":
        await sasl.put(removed=("alice",))
    elif how == "disabled":
        await sasl.put(replace(alice, disabled=True))
    elif how == "expired":
        now_ms = sasl.broker.broker.clock.now_ms()
        await sasl.put(replace(alice, expires_at_ms=now_ms + 200))
    else:
        await sasl.put(replace(alice, secrets=alice.secrets[1:]))

    async with asyncio.timeout(5):
        assert await revoked.is_closed()
    assert await is_served(carol)
    if how == "secret":
        assert await is_served(other)
    else:
        assert await other.is_closed()
        client = await sasl.connect()
        assert (await sign_in(client, "alice", "secret", mechanism)).error_code == FAILED


async def test_a_change_that_leaves_the_secret_leaves_the_connection(sasl: SaslHouse) -> None:
    client = await sasl.signed_in()
    await sasl.put(replace(user("alice", "secret"), superuser=True))
    assert await is_served(client)


async def test_connections_of_a_user_are_closed_some_in_each_turn(
    sasl: SaslHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "CLOSED_PER_TURN_MAX", 2)
    clients = [await sasl.signed_in() for _ in range(7)]
    await sasl.put(removed=("alice",))
    for client in clients:
        assert await client.is_closed()
    assert sasl.broker.broker.services.access.authentication.logins.count(MINE, "alice") == 0


# -- brute force ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [0, 1])
async def test_too_many_wrong_passwords_are_refused_unseen_and_open_connections_go_on(
    sasl: SaslHouse, monkeypatch: pytest.MonkeyPatch, mechanism: int
) -> None:
    monkeypatch.setattr(attempts, "USER_FAILURES_BURST", 3)
    owner = await sasl.signed_in("alice", "secret", mechanism)
    for _ in range(3):
        client = await sasl.connect()
        assert (await sign_in(client, "alice", "wrong", mechanism)).error_code == FAILED

    client = await sasl.connect()
    answer = await sign_in(client, "alice", "secret", mechanism)

    assert (answer.error_code, answer.error_message) == (FAILED, "too many failed attempts; try again later")
    assert await is_served(owner)
    counts = dict(sasl.broker.broker.services.access.authentication.counts())[MINE]
    assert (counts.succeeded, counts.failed, counts.refused) == (1, 3, 1)
    entries = sasl.broker.broker.accountings.get_or_create(MINE).ledger.as_json(0)
    assert [(entry["rule"]["kind"], entry["user"]) for entry in entries] == [("authentication", "alice")]  # type: ignore[index]


async def test_many_connections_of_one_user_cost_one_hash(sasl: SaslHouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restart a broker has no proven passwords, and all clients reconnect at once."""
    hashed = []
    hash_once = passwords._stored_key
    monkeypatch.setattr(passwords, "_stored_key", lambda *given: hashed.append(given) or hash_once(*given))

    clients = await asyncio.gather(*(sasl.signed_in() for _ in range(30)))

    assert len(hashed) == 1
    assert len(clients) == 30


async def test_connections_that_signed_in_or_were_refused_leave_no_cycles(
    left_behind: Counter[str],  # noqa: F811
    sasl: SaslHouse,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tenant_sasl, "FAILED_AUTHENTICATION_DELAY_MS", 0)
    monkeypatch.setattr(attempts, "USER_FAILURES_BURST", 10_000)
    monkeypatch.setattr(attempts, "ADDRESS_FAILURES_BURST", 10_000)
    as_often_as_it_likes(monkeypatch)
    sasl.broker.broker.services.access.authentication.max_reauth_ms = 60_000
    listener = sasl.broker.broker.listeners.get(MINE)
    assert listener is not None

    async def work() -> None:
        for number in range(ROUNDS):
            client = await WireClient.connect(sasl.port)
            assert (await sign_in(client, "alice", "secret", number % 3)).error_code == 0
            assert (await sign_in(client, "alice", "second", number % 3)).error_code == 0
            await client.close()
            client = await WireClient.connect(sasl.port)
            assert (await sign_in(client, "alice", "wrong", number % 3)).error_code == FAILED
            await client.close()
        await sasl.broker.until(lambda: not listener.connections)

    assert not await left_each_time(left_behind, work)
