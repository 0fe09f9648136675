"""DescribeUserScramCredentials, AlterUserScramCredentials, and the control plane's DescribeUsers and AlterUsers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from brokers.contract import paths
from brokers.contract.users import USERS_MAX
from brokers.engine.access.authorizer import peer_address
from brokers.engine.access.principals import Principal
from brokers.engine.cluster import in_flight_users
from brokers.engine.handlers.api_table import API_TABLE
from brokers.engine.handlers.auth import users
from brokers.engine.handlers.context import RequestContext, TenantMetadataView
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    ScramUserName,
)
from brokers.engine.protocol.messages.users import (
    AddedUserSecret,
    AddedVerifier,
    AlteredUser,
    AlterUsersRequest,
    DescribeUsersRequest,
)
from brokers.engine.throttling.request_time import ChangeRate
from tests.testkit.rights import client_as
from tests.testkit.scram import salted_password, verifier
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.conftest import MINE, House

pytestmark = pytest.mark.usefixtures("administered")

SALT = b"salt"
DENIED = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def altered(name: str, *secret_ids: str, **fields: Any) -> AlteredUser:
    verifiers = [
        AddedVerifier(
            mechanism=mechanism,
            iterations=4_096,
            salt=SALT,
            salted_password=salted_password("pw", SALT, 4_096, mechanism),
        )
        for mechanism in (1, 2)
    ]
    unchanged = {"superuser": -1, "disabled": -1, "expires_at_ms": -2}
    secrets = [AddedUserSecret(id=id, verifiers=verifiers) for id in secret_ids]
    return AlteredUser(name=name, added_secrets=secrets, **(unchanged | fields))


async def alter(client: WireClient, *users: AlteredUser, validate_only: bool = False) -> list[int]:
    request = AlterUsersRequest(validate_only=validate_only, alterations=list(users))
    return [result.error_code for result in (await client.call(ApiKey.ALTER_USERS, 0, request)).results]


async def describe(client: WireClient, *names: str) -> list[Any]:
    answer = await client.call(ApiKey.DESCRIBE_USERS, 0, DescribeUsersRequest(names=list(names) or None))
    assert answer.error_code == 0, answer
    return list(answer.users)


async def scram(client: WireClient, deleted: tuple[str, ...] = (), upserted: tuple[str, ...] = ()) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=1) for name in deleted],
        upsertions=[
            ScramCredentialUpsertion(
                name=name,
                mechanism=1,
                iterations=4_096,
                salt=SALT,
                salted_password=salted_password("pw", SALT, 4_096, 1),
            )
            for name in upserted
        ],
    )
    answer = await client.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
    return {result.user: result.error_code for result in answer.results}


async def scram_users(client: WireClient, *names: str) -> dict[str, int]:
    wanted = [ScramUserName(name=name) for name in names] or None
    answer = await client.call(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, DescribeUserScramCredentialsRequest(users=wanted)
    )
    return {result.user: result.error_code for result in answer.results}


async def test_the_control_plane_makes_changes_and_removes_users(house: House) -> None:
    owner = await house.broker.internal_client(MINE)
    assert await alter(owner, altered("alice", "a", superuser=1), altered("bob", expires_at_ms=99)) == [0, 0]

    alice, bob = await describe(owner)
    assert (alice.name, alice.superuser, alice.disabled, alice.expires_at_ms) == ("alice", True, False, -1)
    assert (alice.connections, alice.last_used_at_ms) == (0, -1)
    assert [(each.id, each.last_used_at_ms, each.mechanisms) for each in alice.secrets] == [("a", -1, [1, 2])]
    assert (bob.name, bob.expires_at_ms, bob.secrets) == ("bob", 99, [])

    assert await alter(owner, altered("alice", removed_secrets=["a"], disabled=1), altered("bob", is_deleted=True)) == [
        0,
        0,
    ]
    (alice,) = await describe(owner, "alice", "bob", "nobody")
    assert (alice.disabled, alice.secrets) == (True, [])


async def test_an_invalid_alteration_says_why_and_changes_nothing(house: House) -> None:
    owner = await house.broker.internal_client(MINE)
    assert await alter(owner, altered("alice", "a"), validate_only=True) == [0]
    assert await describe(owner) == []
    assert await alter(owner, altered("alice", "a", "b")) == [0]
    shown = await describe(owner)
    assert await alter(
        owner,
        altered("alice", must_exist=2),
        altered("nobody", must_exist=1),
        altered("alice", "c"),
        altered("alice", removed_secrets=["none"]),
        altered("ANONYMOUS"),
        altered("", "a"),
        altered("carol", superuser=7),
        altered("carol", expires_at_ms=-9),
        altered("carol", must_exist=3),
    ) == [92, 91, 44, 91, 93, 93, 42, 42, 42]
    assert await describe(owner) == shown


async def test_users_of_one_instance_are_nothing_to_another(house: House) -> None:
    owner = await house.broker.internal_client(MINE)
    await alter(owner, altered("alice", "a"))
    assert await scram(house.theirs, deleted=("alice",)) == {"alice": ErrorCode.RESOURCE_NOT_FOUND}
    assert await scram_users(house.theirs) == {}
    assert await scram_users(house.mine) == {"alice": 0}


async def test_the_private_calls_are_not_served_to_tenants(house: House) -> None:
    for api_key, request in (
        (ApiKey.DESCRIBE_USERS, DescribeUsersRequest(names=None)),
        (ApiKey.ALTER_USERS, AlterUsersRequest(alterations=[altered("mallory", "m", superuser=1)])),
    ):
        client = await house.broker.client(house.my_port)
        await client.send(api_key, 0, request)
        assert await client.is_closed()


async def test_the_private_calls_refuse_a_tenant_whatever_versions_are_advertised(house: House) -> None:
    services = house.broker.broker.services
    view = TenantMetadataView(object(), services.metadata.current.image, Principal("alice", MINE))
    address = peer_address("127.0.0.1")
    altering, describing = (
        RequestContext(services, view, API_TABLE[key], 0, "", address)
        for key in (ApiKey.ALTER_USERS, ApiKey.DESCRIBE_USERS)
    )
    request = AlterUsersRequest(validate_only=False, alterations=[altered("alice", "s1", superuser=1)])
    (result,) = (await users.alter_users(altering, request)).results
    assert result.error_code == ErrorCode.INVALID_REQUEST
    described = await users.describe_users(describing, DescribeUsersRequest(names=None))
    assert (described.error_code, described.users) == (ErrorCode.INVALID_REQUEST, [])
    assert await describe(await house.broker.internal_client(MINE)) == []


async def test_the_cluster_itself_has_no_users(house: House) -> None:
    cluster = await house.broker.internal_client("penstock")
    assert await alter(cluster, altered("alice", "a")) == [ErrorCode.INVALID_REQUEST]
    answer = await cluster.call(ApiKey.DESCRIBE_USERS, 0, DescribeUsersRequest(names=None))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_kafkas_call_replaces_what_the_mechanism_had(house: House) -> None:
    owner = await house.broker.internal_client(MINE)
    await alter(owner, altered("alice", "a", "b"))
    assert await scram(house.mine, upserted=("alice",)) == {"alice": 0}
    (alice,) = await describe(owner)
    assert [each.mechanisms for each in alice.secrets] == [[2], [2], [1]]
    users = house.broker.broker.current.image.users.of_instance(MINE)
    assert users["alice"].secrets[-1].verifiers == (verifier("pw", 1, SALT),)
    # A second secret may again be added by the control plane, when there is room.
    assert await alter(owner, altered("alice", "c")) == [ErrorCode.POLICY_VIOLATION]


@pytest.mark.parametrize("name", [".", ".."])
async def test_no_user_is_called_like_a_folder(house: House, name: str) -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR; here the broker must not fail, and the console can show each user."""
    assert await scram(house.mine, upserted=(name, "alice")) == {
        name: ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "alice": 0,
    }
    assert await scram(house.mine, deleted=(name,)) == {name: ErrorCode.RESOURCE_NOT_FOUND}
    assert await scram_users(house.mine, name) == {name: ErrorCode.RESOURCE_NOT_FOUND}
    owner = await house.broker.internal_client(MINE)
    assert await alter(owner, altered(name, "s1")) == [ErrorCode.UNACCEPTABLE_CREDENTIAL]
    assert await scram_users(house.mine) == {"alice": 0}


@pytest.mark.parametrize("acting", ["bob", None])
async def test_nobody_becomes_a_superuser_by_a_new_password_for_one(house: House, acting: str | None) -> None:
    """Without any ACL every user may alter users, except superusers."""
    owner = await house.broker.internal_client(MINE)
    assert await alter(owner, altered("root", "k1", superuser=1), altered("bob", "k1")) == [0, 0]
    client = house.mine if acting is None else await client_as(house.broker, MINE, acting)
    assert await scram(client, upserted=("root", "alice")) == {"root": DENIED, "alice": 0}
    assert await scram(client, deleted=("root",)) == {"root": DENIED}
    as_root = await client_as(house.broker, MINE, "root")
    assert await scram(as_root, upserted=("root",)) == {"root": 0}


async def test_users_per_instance_are_limited_over_both_calls(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight_users, "USERS_MAX", 2)
    owner = await house.broker.internal_client(MINE)
    assert await scram(house.mine, upserted=("a", "b", "c")) == {"a": 0, "b": 0, "c": ErrorCode.POLICY_VIOLATION}
    assert await alter(owner, altered("d", "s")) == [ErrorCode.POLICY_VIOLATION]
    assert await scram(house.theirs, upserted=("a",)) == {"a": 0}
    assert await scram(house.mine, deleted=("a",)) == {"a": 0}
    assert await alter(owner, altered("d", "s")) == [0]


async def test_changes_of_users_are_paid_for_like_all_changes_in_zookeeper(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged: list[int] = []
    monkeypatch.setattr(ChangeRate, "charge", lambda _rate, cost, _now_ms: charged.append(cost))
    await scram(house.mine, upserted=("a", "b", "c"))
    await scram(house.mine, deleted=("nobody",))
    assert charged == [1, 1, 1]


async def test_the_longest_legal_questions_hold_nobody_up(house: House) -> None:
    """12,000 names, most of them unknown; the event loop serves others in between (`LoopTurns`)."""
    names = [f"user-{number}" for number in range(11_990)]
    answered = await scram_users(house.mine, *names)
    assert set(answered.values()) == {ErrorCode.RESOURCE_NOT_FOUND}
    refused = await scram(house.mine, deleted=tuple(names[: USERS_MAX + 5]))
    assert list(refused.values()).count(ErrorCode.INVALID_REQUEST) == 5


async def test_users_outlive_the_broker_and_go_with_their_instance(house: House) -> None:
    await scram(house.mine, upserted=("ä name, with = signs",))
    node = paths.sanitise("ä name, with = signs")
    assert await house.broker.tree.get(paths.instance_user(MINE, node)) is not None
    document = house.broker.broker.current.image.users.of_instance(MINE)[node]
    assert replace(document, secrets=()).name == "ä name, with = signs"
