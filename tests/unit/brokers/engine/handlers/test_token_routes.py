"""OAUTHBEARER on a route with authentication: tokens of an instance's issuer, their lifetime, and their revocation (RFC
7628, KIP-255, KIP-368).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from brokers.contract import paths
from brokers.contract.audit import NOBODY, SIGN_IN_FAILED, AuditEvent
from brokers.contract.authentication_limits import ADDRESS_FAILURES_BURST
from brokers.contract.documents import change_to_json
from brokers.contract.oauth import CONFIGURATION, OAuthDocument
from brokers.engine.access import attempts
from brokers.engine.cluster.image import ImageDelta
from brokers.engine.cluster.tree import Create, Delete, Operation, Set
from brokers.engine.handlers import logins
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.metadata import MetadataRequest
from instances.oauth.limits import TOKEN_BYTES_MAX
from tests.testkit.in_process import InProcessBroker
from tests.testkit.oauth import Issuer, b64, message
from tests.testkit.scram import user
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.test_sasl_routes import (
    FAILED,
    MINE,
    SASL,
    THEIRS,
    SaslHouse,
    is_served,
    say,
    shake_hands,
    sign_in,
)

INVALID = '{"status":"invalid_token"}'
NAME = "OAUTHBEARER"


class TokenHouse(SaslHouse):
    async def configure(self, document: OAuthDocument | None, instance_id: str = MINE) -> None:
        """Writes the configuration like the control plane, and waits until the broker has it."""
        tree, folder = self.broker.tree, paths.instance_oauth(instance_id)
        path = paths.instance_oauth_node(instance_id, CONFIGURATION)
        operations: list[Operation] = []
        if await tree.get(folder) is None:
            operations.append(Create(folder))
        if document is None:
            operations.append(Delete(path, None))
        elif await tree.get(path) is None:
            operations.append(Create(path, document.to_json()))
        else:
            operations.append(Set(path, document.to_json(), None))
        change = change_to_json([f"instances/{instance_id}/oauth/{CONFIGURATION}"])
        await tree.commit([*operations, Create(paths.CHANGE_PREFIX, change, sequence=True)])
        tokens = self.broker.broker.services.access.authentication.tokens
        await self.broker.until(lambda: tokens.configuration(instance_id) == document)

    def logins(self, name: str = "alice") -> int:
        return self.broker.broker.services.access.authentication.logins.count(MINE, name)


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
async def house(tmp_path: Path, issuer: Issuer) -> AsyncIterator[TokenHouse]:
    async with InProcessBroker(tmp_path, overrides={}) as broker:
        made = TokenHouse(
            broker,
            await broker.create_instance(MINE, security=SASL),
            await broker.create_instance(THEIRS, security=SASL),
        )
        await made.put(user("alice", "secret"))
        await made.configure(issuer.document(clock_skew_s=0))
        yield made


async def bring(client: WireClient, token: str, *, is_new: bool = True, **parts: str) -> Any:
    """Sends a token; returns the first response."""
    if is_new:
        assert (await shake_hands(client, NAME)).error_code == 0
    return await say(client, message(token, **parts))


async def refused(client: WireClient, token: str) -> Any:
    """Returns the final response to a client with an invalid token."""
    first = await bring(client, token)
    assert (first.error_code, bytes(first.auth_bytes).decode()) == (0, INVALID)
    return await say(client, b"\x01")


async def test_a_token_opens_a_session_that_lasts_as_long_as_the_token(house: TokenHouse, issuer: Issuer) -> None:
    client = await house.connect()
    answer = await bring(client, issuer.token("orders", 60), traceId="a b", logicalCluster="lkc-1")
    assert (answer.error_code, answer.error_message, bytes(answer.auth_bytes)) == (0, "", b"")
    assert 55_000 < answer.session_lifetime_ms <= 60_000
    assert await is_served(client)
    assert house.logins("orders") == 1


async def test_a_session_lasts_no_longer_than_the_broker_allows(house: TokenHouse, issuer: Issuer) -> None:
    house.broker.broker.services.access.authentication.max_reauth_ms = 5_000
    answer = await bring(await house.connect(), issuer.token(lifetime_s=60))
    assert answer.session_lifetime_ms == 5_000
    assert (await bring(await house.connect(), issuer.token(lifetime_s=2))).session_lifetime_ms <= 2_000


async def test_the_mechanism_is_offered_where_tokens_are_taken(house: TokenHouse, issuer: Issuer) -> None:
    offered = (await shake_hands(await house.connect(), "GSSAPI")).mechanisms
    assert offered == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", NAME]
    theirs = await house.connect(house.their_port)
    answer = await shake_hands(theirs, NAME)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert NAME not in answer.mechanisms


async def test_passwords_work_beside_tokens(house: TokenHouse) -> None:
    await house.signed_in("alice", "secret", 1)


async def test_a_token_of_one_instance_opens_nothing_of_another(house: TokenHouse, issuer: Issuer) -> None:
    theirs = Issuer(issuer="https://their.example.com/", audience="theirs")
    await house.configure(theirs.document(), THEIRS)
    for token in (issuer.token(), issuer.token(iss=theirs.issuer, aud=theirs.audience)):
        answer = await refused(await house.connect(house.their_port), token)
        assert answer.error_code == FAILED
    assert (await bring(await house.connect(house.their_port), theirs.token())).error_code == 0
    assert (await refused(await house.connect(), theirs.token())).error_code == FAILED


async def test_an_invalid_token_is_reported_first_and_fails_when_the_client_has_confirmed(
    house: TokenHouse, issuer: Issuer
) -> None:
    for token in (
        issuer.token(aud="other"),
        issuer.token(lifetime_s=-60),
        Issuer().token(),
        Issuer("two").token(),
        "a",
    ):
        client = await house.connect()
        answer = await refused(client, token)
        assert (answer.error_code, answer.error_message) == (FAILED, INVALID)
        assert await client.is_closed()
    counts = dict(house.broker.broker.services.access.authentication.counts())[MINE]
    assert (counts.succeeded, counts.failed) == (0, 5)


async def test_an_invalid_token_is_audited_though_its_client_leaves(house: TokenHouse, issuer: Issuer) -> None:
    access = house.broker.broker.services.access
    events: list[AuditEvent] = []

    def append(_instance_id: str, value: bytes) -> bool:
        events.append(AuditEvent.from_json(value))
        return True

    access.audit.append = append
    leaving, guessing = await house.connect(), await house.connect()
    assert bytes((await bring(leaving, issuer.token(aud="other"))).auth_bytes).decode() == INVALID
    await leaving.close()
    assert bytes((await bring(guessing, issuer.token(aud="another"))).auth_bytes).decode() == INVALID
    assert bytes((await bring(guessing, issuer.token(aud="third"), is_new=False)).auth_bytes).decode() == INVALID
    assert (await say(guessing, b"\x01")).error_code == FAILED
    access.audit.finish()
    (event,) = [event for event in events if event.items[0].action == SIGN_IN_FAILED]
    assert (event.requests, event.user, event.items[0].after) == (3, NOBODY, {"mechanism": NAME})
    assert dict(access.authentication.counts())[MINE].failed == 3


async def test_a_client_may_bring_another_token_instead(house: TokenHouse, issuer: Issuer) -> None:
    client = await house.connect()
    assert bytes((await bring(client, issuer.token(aud="other"))).auth_bytes).decode() == INVALID
    assert (await bring(client, issuer.token(), is_new=False)).error_code == 0
    assert await is_served(client)


async def test_a_message_that_is_none_fails_at_once(house: TokenHouse) -> None:
    for raw in (b"", b"\x01", b"\0alice\0secret", b"n,,\x01\x01", b"n" * TOKEN_BYTES_MAX):
        client = await house.connect()
        await shake_hands(client, NAME)
        answer = await say(client, raw)
        assert answer.error_code == FAILED
        assert answer.error_message.endswith("due to invalid credentials with SASL mechanism OAUTHBEARER")
        assert await client.is_closed()


async def test_a_client_may_name_whom_its_token_names_and_nobody_else(house: TokenHouse, issuer: Issuer) -> None:
    assert (await bring(await house.connect(), issuer.token(), identity="alice")).error_code == 0
    for _ in range(2):  # the second time the token is cached
        answer = await bring(await house.connect(), issuer.token(), identity="bob")
        assert answer.error_code == FAILED
        assert "(bob) that is different from the token's principal name (alice)" in answer.error_message


async def test_an_old_client_sends_bare_tokens(house: TokenHouse, issuer: Issuer) -> None:
    client = await house.connect()
    await shake_hands(client, NAME, version=0)
    raw = message(issuer.token())
    await client.send_raw(pack(">i", len(raw)) + raw)
    assert await client.receive_frame() == b""
    assert await is_served(client)


async def test_a_token_that_is_known_is_not_checked_again(
    house: TokenHouse, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = issuer.token()
    assert (await bring(await house.connect(), token)).error_code == 0
    verifier = house.broker.broker.services.access.authentication.tokens._verifier
    monkeypatch.setattr(type(verifier), "verify", None)
    assert (await bring(await house.connect(), token)).error_code == 0
    assert house.logins() == 2


async def test_tokens_are_checked_beside_the_loop(
    house: TokenHouse, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = house.broker.broker.services.access.authentication.tokens._verifier
    threads: list[str] = []
    verify = type(verifier).verify

    def watched(*given: Any) -> Any:
        threads.append(threading.current_thread().name)
        return verify(*given)

    monkeypatch.setattr(type(verifier), "verify", watched)
    assert (await bring(await house.connect(), issuer.token())).error_code == 0
    assert (await refused(await house.connect(), "a.b.c")).error_code == FAILED
    assert len(threads) == 2
    assert threading.current_thread().name not in threads


# -- again ------------------------------------------------------------------------------------------------------------


async def test_a_connection_goes_on_with_a_fresh_token(
    house: TokenHouse, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The setting `connections.max.reauth.ms` makes no difference."""
    monkeypatch.setattr(logins, "REAUTHENTICATION_INTERVAL_MS_MIN", 0)
    client = await house.connect()
    assert (await bring(client, issuer.token(lifetime_s=60))).error_code == 0
    for lifetime_s in (120, 180):
        answer = await bring(client, issuer.token(lifetime_s=lifetime_s))
        assert answer.error_code == 0
        assert answer.session_lifetime_ms > (lifetime_s - 5) * 1_000
        assert await is_served(client)
    assert house.logins() == 1


async def test_it_may_not_become_somebody_else(house: TokenHouse, issuer: Issuer) -> None:
    client = await house.connect()
    assert (await bring(client, issuer.token("alice"))).error_code == 0
    answer = await bring(client, issuer.token("bob"))
    assert answer.error_code == FAILED
    assert "Cannot change principals" in answer.error_message
    client = await house.connect()
    assert (await bring(client, issuer.token("alice"))).error_code == 0
    assert (await shake_hands(client, "PLAIN")).error_code == 0
    await client.send_raw(b"\0\0\0\0")
    assert await client.is_closed()


async def test_a_connection_whose_token_has_ended_is_closed_at_its_next_request(
    house: TokenHouse, issuer: Issuer
) -> None:
    client = await house.connect()
    assert (await bring(client, issuer.token(lifetime_s=0.3))).error_code == 0
    connections = house.broker.broker.listeners.get(MINE)
    assert connections is not None
    await house.broker.until(
        lambda: all(type(each.session).__name__ == "_Expiry" for each in connections.connections)  # type: ignore[attr-defined]
    )
    await client.send(ApiKey.METADATA, 12, MetadataRequest(topics=[]))
    assert await client.is_closed()


async def test_a_connection_without_an_end_may_not_authenticate_again(house: TokenHouse) -> None:
    client = await house.signed_in("alice", "secret")
    assert (await shake_hands(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE


# -- what ends it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["removed", "issuer", "audience", "claim"])
async def test_another_configuration_cuts_what_its_tokens_do_not_open(
    house: TokenHouse, issuer: Issuer, how: str
) -> None:
    client, other = await house.connect(), await house.signed_in("alice", "secret", 1)
    assert (await bring(client, issuer.token())).error_code == 0
    document = issuer.document()
    await house.configure(
        {
            "removed": None,
            "issuer": replace(document, issuer="https://new.example.com/"),
            "audience": replace(document, audience="new"),
            "claim": replace(document, principal_claim="azp"),
        }[how]
    )
    assert await client.is_closed()
    assert await is_served(other)


async def test_other_keys_cut_nothing_and_are_asked_for_from_then_on(house: TokenHouse, issuer: Issuer) -> None:
    client, old = await house.connect(), issuer.token()
    assert (await bring(client, old)).error_code == 0
    renewed = Issuer("new")
    await house.configure(renewed.document())
    assert await is_served(client)
    assert (await refused(await house.connect(), old)).error_code == FAILED
    assert (await bring(await house.connect(), renewed.token())).error_code == 0


async def test_a_user_of_the_name_that_is_disabled_is_kept_out_and_cut(house: TokenHouse, issuer: Issuer) -> None:
    client, alice = await house.connect(), user("alice", "secret")
    assert (await bring(client, issuer.token("alice"))).error_code == 0
    await house.put(replace(alice, disabled=True))
    assert await client.is_closed()
    assert (await bring(await house.connect(), issuer.token("alice"))).error_code == FAILED
    assert (await bring(await house.connect(), issuer.token("bob"))).error_code == 0
    await house.put(removed=("alice",))
    again = await house.connect()
    assert (await bring(again, issuer.token("alice"))).error_code == 0
    assert await is_served(again)


async def test_a_configuration_that_goes_while_a_token_is_looked_at_lets_nobody_in(
    house: TokenHouse, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = house.broker.broker.services.access.authentication.tokens._verifier
    may_go_on, verify = threading.Event(), type(verifier).verify

    def held(*given: Any) -> Any:
        assert may_go_on.wait(10)
        return verify(*given)

    monkeypatch.setattr(type(verifier), "verify", held)
    client = await house.connect()
    bringing = asyncio.create_task(bring(client, issuer.token()))
    await house.broker.until(lambda: house.broker.broker.services.access.authentication.hashing_permits.would_wait())
    await house.configure(None)
    may_go_on.set()
    assert (await bringing).error_code == FAILED


# -- limits -----------------------------------------------------------------------------------------------------------


async def test_an_address_that_brings_wrong_tokens_is_not_looked_at_for_a_while(
    house: TokenHouse, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "REFUSED_DELAY_MS_MIN", 1)
    old = await house.connect()
    assert (await bring(old, issuer.token())).error_code == 0
    client = await house.connect()
    assert (await bring(client, "a.b.c")).error_code == 0
    for _ in range(ADDRESS_FAILURES_BURST - 1):
        assert bytes((await bring(client, "a.b.c", is_new=False)).auth_bytes).decode() == INVALID
    answer = await bring(client, issuer.token(), is_new=False)
    assert (answer.error_code, answer.error_message) == (FAILED, "too many failed attempts; try again later")
    assert await is_served(old)
    assert dict(house.broker.broker.services.access.authentication.counts())[MINE].refused == 1


async def test_a_key_that_is_not_known_is_asked_for_now_and_then(
    house: TokenHouse, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, wish = house.broker.tree, paths.key_request(MINE)
    await refused(await house.connect(), Issuer("two").token())
    assert await tree.get(wish) is None, "the keys are pinned"
    await house.configure(issuer.document(is_fetched=True))
    await refused(await house.connect(), issuer.token(aud="other"))
    assert await tree.get(wish) is None, "the key is known"
    await refused(await house.connect(), Issuer("two").token())
    tokens = house.broker.broker.services.access.authentication.tokens
    await house.broker.until(lambda: not tokens._requests)
    await tree.commit([Delete(wish, None)])
    for _ in range(3):
        await refused(await house.connect(), Issuer("three").token())
    assert await tree.get(wish) is None, "it was asked for a moment ago"


async def test_the_largest_messages_are_looked_at_without_stopping_the_loop(house: TokenHouse, issuer: Issuer) -> None:
    room = TOKEN_BYTES_MAX - len(message("")) - 2
    kid = b64('{"alg":"ES256","kid":"' + "k" * 11_000 + '"}')
    for token in ("." * room, "a" * room, f"{kid}.{'e' * (room - len(kid) - 2)}.a"):
        answer = await refused(await house.connect(), token)
        assert answer.error_code == FAILED


async def test_a_whole_reading_of_the_cluster_finds_the_configuration(house: TokenHouse, issuer: Issuer) -> None:
    before = house.broker.broker.current.image.oauth
    image = await house.broker.broker.watcher.load()
    assert image.oauth == before
    assert image.oauth.of_instance(MINE)[CONFIGURATION].issuer == issuer.issuer


async def test_a_document_that_makes_no_sense_leaves_what_was_known(house: TokenHouse, issuer: Issuer) -> None:
    tree, path = house.broker.tree, paths.instance_oauth_node(MINE, CONFIGURATION)
    change = change_to_json([f"instances/{MINE}/oauth/{CONFIGURATION}"])
    await tree.commit([Set(path, b"{}", None), Create(paths.CHANGE_PREFIX, change, sequence=True)])
    await house.configure(issuer.document(), THEIRS)
    assert (await bring(await house.connect(), issuer.token())).error_code == 0


async def test_an_instance_that_goes_takes_its_configuration_along(house: TokenHouse) -> None:
    current = house.broker.broker.current
    assert current.image.oauth.of_instance(MINE)
    assert not current.image.with_changes(ImageDelta(instances={MINE: None})).oauth.of_instance(MINE)


async def test_passwords_and_tokens_that_are_wrong_count_together_by_address(
    house: TokenHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "REFUSED_DELAY_MS_MIN", 1)
    client = await house.connect()
    await bring(client, "a.b.c")
    for _ in range(ADDRESS_FAILURES_BURST - 1):
        await bring(client, "a.b.c", is_new=False)
    answer = await sign_in(await house.connect(), "alice", "secret")
    assert answer.error_message == "too many failed attempts; try again later"
