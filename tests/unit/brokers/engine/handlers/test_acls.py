"""DescribeAcls, CreateAcls and DeleteAcls of one instance (KIP-140, KIP-290)."""

from __future__ import annotations

from time import perf_counter

import pytest

from brokers.contract import paths
from brokers.contract.acls import (
    CLUSTER_NAME,
    ENTRIES_MAX,
    NAME_BYTES_MAX,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from brokers.contract.documents import change_to_json
from brokers.contract.users import UserDocument
from brokers.engine.cluster import acl_writes
from brokers.engine.cluster.instance_documents import USERS, change_entry
from brokers.engine.cluster.tree import Create
from brokers.engine.handlers.api_table import limit_of
from brokers.engine.handlers.auth import acls
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.acls import AclCreation
from tests.testkit.rights import acl, acl_filter, client_as, create_acls, delete_acls, describe_acls
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.conftest import MINE, THEIRS, House

pytestmark = pytest.mark.usefixtures("superusers")

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE, ALTER, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER, AclOperation.ALL
ANY, MATCH = 1, 2
INVALID = ErrorCode.INVALID_REQUEST


async def listed(client: WireClient, **more: object) -> dict[tuple[int, str, int], list[tuple[str, str, int, int]]]:
    answer = await describe_acls(client, **more)
    assert answer.error_code == 0, answer
    return {
        (resource.resource_type, resource.resource_name, resource.pattern_type): [
            (line.principal, line.host, line.operation, line.permission_type) for line in resource.acls
        ]
        for resource in answer.resources
    }


async def test_acls_are_made_shown_and_removed_within_one_instance(house: House) -> None:
    ours = acl("User:a", READ, TOPIC, "orders")
    denied = acl("User:*", WRITE, TOPIC, "orders", permission=Permission.DENY, host="10.0.0.1")
    assert await create_acls(house.mine, ours, denied, acl("User:a", READ, GROUP, "g", pattern_type=PREFIXED)) == [
        0,
        0,
        0,
    ]

    of_orders = [("User:*", "10.0.0.1", WRITE, Permission.DENY), ("User:a", "*", READ, Permission.ALLOW)]
    assert await listed(house.mine) == {
        (TOPIC, "orders", LITERAL): of_orders,
        (GROUP, "g", PREFIXED): [("User:a", "*", READ, Permission.ALLOW)],
    }
    assert await listed(house.theirs) == {}
    # An existing rule is no error.
    assert await create_acls(house.mine, ours, ours) == [0, 0]
    # A client that acts for the owner sees and changes the same rules.
    owner = await house.broker.internal_client(MINE)
    (removed,) = await delete_acls(owner, acl_filter(principal_filter="User:a"))
    assert [(line.resource_name, line.principal, line.error_code) for line in removed.matching_acls] == [
        ("orders", "User:a", 0),
        ("g", "User:a", 0),
    ]
    assert await listed(house.mine) == {(TOPIC, "orders", LITERAL): of_orders[:1]}


@pytest.mark.parametrize("version", range(4))
async def test_every_version_makes_shows_and_removes(house: House, version: int) -> None:
    assert await create_acls(house.mine, acl("User:a", READ, TOPIC, "orders"), version=version) == [0]
    if version:
        assert await create_acls(
            house.mine, acl("User:a", READ, TOPIC, "o", pattern_type=PREFIXED), version=version
        ) == [0]
    answer = await describe_acls(house.mine, version=version)
    assert len(answer.resources) == (2 if version else 1)
    (removed,) = await delete_acls(house.mine, version=version)
    assert len(removed.matching_acls) == (2 if version else 1)


FILTERED = {
    (TOPIC, "orders", LITERAL): acl("User:a", READ, TOPIC, "orders"),
    (TOPIC, "*", LITERAL): acl("User:b", READ, TOPIC, "*"),
    (TOPIC, "ord", PREFIXED): acl("User:c", WRITE, TOPIC, "ord", pattern_type=PREFIXED, host="10.0.0.1"),
    (GROUP, "orders", LITERAL): acl("User:a", READ, GROUP, "orders", permission=Permission.DENY),
}


@pytest.mark.parametrize(
    ("asked", "matching"),
    [
        ({}, set(FILTERED)),
        ({"resource_type_filter": GROUP}, {(GROUP, "orders", LITERAL)}),
        ({"resource_name_filter": "orders"}, {(TOPIC, "orders", LITERAL), (GROUP, "orders", LITERAL)}),
        ({"pattern_type_filter": PREFIXED}, {(TOPIC, "ord", PREFIXED)}),
        (
            {"resource_type_filter": TOPIC, "resource_name_filter": "orders", "pattern_type_filter": MATCH},
            {(TOPIC, "orders", LITERAL), (TOPIC, "*", LITERAL), (TOPIC, "ord", PREFIXED)},
        ),
        (
            {"resource_type_filter": TOPIC, "resource_name_filter": "orders", "pattern_type_filter": ANY},
            {(TOPIC, "orders", LITERAL)},
        ),
        ({"resource_name_filter": "or", "pattern_type_filter": MATCH}, {(TOPIC, "*", LITERAL)}),
        ({"resource_name_filter": "*", "pattern_type_filter": LITERAL}, {(TOPIC, "*", LITERAL)}),
        ({"principal_filter": "User:a"}, {(TOPIC, "orders", LITERAL), (GROUP, "orders", LITERAL)}),
        ({"host_filter": "10.0.0.1"}, {(TOPIC, "ord", PREFIXED)}),
        ({"operation": WRITE}, {(TOPIC, "ord", PREFIXED)}),
        ({"permission_type": Permission.DENY}, {(GROUP, "orders", LITERAL)}),
        ({"principal_filter": "User:nobody"}, set()),
        ({"operation": 99}, set()),
    ],
)
async def test_a_filter_matches_as_kafkas_does(
    house: House, asked: dict[str, object], matching: set[tuple[int, str, int]]
) -> None:
    """ResourcePatternFilter and AccessControlEntryFilter."""
    assert await create_acls(house.mine, *FILTERED.values()) == [0] * 4
    assert (await listed(house.mine, **asked)).keys() == matching
    (removed,) = await delete_acls(house.mine, acl_filter(**asked))
    gone = {(line.resource_type, line.resource_name, line.pattern_type) for line in removed.matching_acls}
    assert gone == matching
    assert (await listed(house.mine)).keys() == FILTERED.keys() - matching


async def test_an_entry_is_removed_by_the_first_filter_that_matches_it(house: House) -> None:
    assert await create_acls(house.mine, *FILTERED.values()) == [0] * 4
    results = await delete_acls(
        house.mine, acl_filter(resource_type_filter=GROUP), acl_filter(principal_filter="User:a"), acl_filter()
    )
    assert [len(result.matching_acls) for result in results] == [1, 1, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        acl("User:a", READ, CLUSTER, "another-cluster"),
        acl("User:a", READ, TOPIC, ""),
        acl("a", READ, TOPIC, "t"),
        acl(":a", READ, TOPIC, "t"),
        acl("User:a", READ, TOPIC, "t" * (NAME_BYTES_MAX + 1)),
        acl(f"User:{'a' * NAME_BYTES_MAX}", READ, TOPIC, "t"),
        acl("User:a", READ, TOPIC, "t", host="ü" * NAME_BYTES_MAX),
        *(
            AclCreation(**{"principal": "User:a", "host": "*", "resource_name": "t", **kinds})
            for kinds in (
                {"resource_type": ANY, "resource_pattern_type": 3, "operation": 3, "permission_type": 3},
                {"resource_type": 6, "resource_pattern_type": 3, "operation": 3, "permission_type": 3},
                {"resource_type": 2, "resource_pattern_type": MATCH, "operation": 3, "permission_type": 3},
                {"resource_type": 2, "resource_pattern_type": 3, "operation": ANY, "permission_type": 3},
                {"resource_type": 2, "resource_pattern_type": 3, "operation": 99, "permission_type": 3},
                {"resource_type": 2, "resource_pattern_type": 3, "operation": 3, "permission_type": ANY},
            )
        ),
    ],
)
async def test_an_acl_that_cannot_be_is_refused_and_others_are_made(house: House, wrong: AclCreation) -> None:
    right = acl("User:a", READ, TOPIC, "orders")
    assert await create_acls(house.mine, wrong, right) == [INVALID, 0]
    assert (await listed(house.mine)).keys() == {(TOPIC, "orders", LITERAL)}


async def test_a_kind_of_zero_ends_the_connection(house: House) -> None:
    """No client can send such a kind; Apache Kafka also closes the connection."""
    port = house.my_port
    for request in (describe_acls, create_acls):
        client = await house.broker.client(port)
        with pytest.raises(EOFError):
            if request is describe_acls:
                await describe_acls(client, operation=0)
            else:
                await create_acls(client, AclCreation(principal="User:a", host="*", resource_name="t"))


async def test_entries_per_instance_are_limited(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_writes, "ENTRIES_MAX", 2)
    assert await create_acls(house.mine, *(acl(f"User:{n}", READ, TOPIC, "t") for n in range(2))) == [0, 0]
    assert await create_acls(house.mine, acl("User:3", READ, TOPIC, "t")) == [ErrorCode.POLICY_VIOLATION]
    assert await create_acls(house.theirs, acl("User:3", READ, TOPIC, "t")) == [0]
    await delete_acls(house.mine, acl_filter(principal_filter="User:1"))
    assert await create_acls(house.mine, acl("User:3", READ, TOPIC, "t")) == [0]


async def test_a_right_to_alter_the_cluster_grants_rights_and_a_right_to_describe_it_shows_them(house: House) -> None:
    """Administration can be delegated in an open instance."""
    anonymous = await house.broker.client(house.my_port)
    owner = await house.broker.internal_client(MINE)
    alice, bob = [await client_as(house.broker, MINE, user) for user in ("alice", "bob")]
    grant = acl("User:bob", READ, TOPIC, "orders")
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for client in (alice, bob, anonymous):
        assert (await describe_acls(client)).error_code == 0  # allowed while no rule covers the cluster
        assert await create_acls(client, grant) == [denied]
    assert await create_acls(owner, acl("User:alice", ALTER, CLUSTER, CLUSTER_NAME)) == [0]

    for client in (bob, anonymous):
        assert await create_acls(client, grant) == [denied]
        assert (await describe_acls(client)).error_code == denied
        (refused,) = await delete_acls(client)
        assert (refused.error_code, refused.matching_acls) == (denied, [])
    assert await create_acls(alice, grant) == [0]
    assert len(await listed(alice)) == 2
    # She revokes her own right.
    (removed,) = await delete_acls(alice, acl_filter(principal_filter="User:alice"))
    assert [line.error_code for line in removed.matching_acls] == [0]
    assert (await describe_acls(alice)).error_code == 0  # no rule covers the cluster any more
    assert await create_acls(alice, grant) == [denied]
    assert (await create_acls(owner, acl("User:bob", READ, CLUSTER, CLUSTER_NAME))) == [0]
    assert (await describe_acls(alice)).error_code == denied


async def test_the_largest_legal_request_is_answered_in_turns(house: House) -> None:
    """A request with the maximum number of creations: rules beyond the instance's limit are rejected."""
    count = limit_of(ApiKey.CREATE_ACLS).items_max - 1
    creations = [acl(f"User:{n % 7}", READ, TOPIC, f"t{n:05}", pattern_type=PREFIXED) for n in range(count)]
    turns = house.broker.broker.services.accounting.loop_turns
    began_s = perf_counter()

    codes = await create_acls(house.mine, *creations)

    took_s = perf_counter() - began_s
    assert codes == [0] * ENTRIES_MAX + [INVALID] * (count - ENTRIES_MAX)
    assert len(await listed(house.mine)) == ENTRIES_MAX
    results = await delete_acls(
        house.mine, *[acl_filter(principal_filter=f"User:{n}") for n in range(acls.FILTERS_MAX + 1)]
    )
    assert sum(len(result.matching_acls) for result in results) == ENTRIES_MAX
    assert results[-1].error_code == INVALID
    assert await listed(house.mine) == {}
    print(f"{count} creations in {took_s:.1f} s, longest turn {turns.longest_s * 1e3:.1f} ms of {turns.longest_of}")


async def test_the_cluster_itself_has_no_acls(house: House) -> None:
    cluster = await house.broker.internal_client("penstock")
    assert await create_acls(cluster, acl("User:a", READ, TOPIC, "t")) == [INVALID]
    assert (await describe_acls(cluster)).error_code == INVALID
    (refused,) = await delete_acls(cluster)
    assert refused.error_code == INVALID


async def test_a_superuser_of_one_instance_is_nobody_in_another(house: House) -> None:
    tree, current = house.broker.tree, house.broker.broker.current
    users = [UserDocument(name=name, created_at_ms=0, superuser=True) for name in ("admin", "ANONYMOUS")]
    change = change_to_json([change_entry(MINE, USERS, user.name) for user in users])
    await tree.commit(
        [
            *(Create(paths.instance_user(MINE, user.name), user.to_json()) for user in users),
            Create(
                paths.CHANGE_PREFIX,
                change,
                sequence=True,
            ),
        ]
    )
    await house.broker.until(lambda: len(current.image.users.of_instance(MINE)) == 1 + len(users))
    for instance_id in (MINE, THEIRS):
        owner = await house.broker.internal_client(instance_id)
        everything = acl("User:*", ALL, CLUSTER, CLUSTER_NAME, permission=Permission.DENY)
        assert await create_acls(owner, everything) == [0]

    assert (await describe_acls(await client_as(house.broker, MINE, "admin"))).error_code == 0
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert (await describe_acls(await client_as(house.broker, THEIRS, "admin"))).error_code == denied
    # An anonymous client is not the user of that name.
    assert (await describe_acls(await house.broker.client(house.my_port))).error_code == denied
