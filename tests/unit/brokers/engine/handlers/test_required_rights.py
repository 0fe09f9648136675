"""Required rights of each call are Kafka's: with the right, without it, and with a denial; on open connections, in
waiting fetches, in running groups and open transactions.
"""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from brokers.contract.acl_decisions import IMPLIED
from brokers.contract.acls import CLUSTER_NAME, AclOperation, PatternType, Permission, ResourceType
from brokers.engine.access.authorizer import peer_address
from brokers.engine.access.principals import Principal
from brokers.engine.handlers.api_table import API_TABLE
from brokers.engine.handlers.client import ClientContext
from brokers.engine.handlers.context import TenantMetadataView
from brokers.engine.handlers.served_api import DENIALS
from brokers.engine.protocol.apis import ADVERTISED_INTERNAL, ADVERTISED_TENANT, ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.cluster import DescribeClusterRequest
from brokers.engine.protocol.messages.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    ListGroupsRequest,
)
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from brokers.engine.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from brokers.engine.protocol.messages.transactions import InitProducerIdRequest
from brokers.engine.records.batch import TRANSACTIONAL
from tests.testkit.records import FETCH_VERSION, batch, fetch, fetch_request, produce
from tests.testkit.rights import acl, client_as, create_acls, delete_acls
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.asking import config_of, create, metadata_of, wanted_topic
from tests.unit.brokers.engine.handlers.conftest import MINE, House
from tests.unit.brokers.engine.handlers.offsets_asking import commit, coordinator_ready
from tests.unit.brokers.engine.handlers.test_topic_lists import a_topic_with_a_group, asking
from tests.unit.brokers.engine.handlers.transactional import Transactional, coordinated, listed

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTION: Final = ResourceType.TRANSACTIONAL_ID
KINDS: Final = (TOPIC, GROUP, CLUSTER, TRANSACTION)
OPERATIONS: Final = [operation for operation in AclOperation if operation is not AclOperation.ALL]
# Rights that no request of `asking` reaches, or whose denial has no error code; each has a test of its own below.
APART: Final = {
    (ApiKey.PRODUCE, TRANSACTION),
    (ApiKey.INIT_PRODUCER_ID, TRANSACTION),
    (ApiKey.FIND_COORDINATOR, TRANSACTION),
    (ApiKey.DESCRIBE_CONFIGS, CLUSTER),
    (ApiKey.ALTER_CONFIGS, CLUSTER),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, CLUSTER),
    (ApiKey.LIST_GROUPS, GROUP),
    (ApiKey.DESCRIBE_CLUSTER, CLUSTER),
    (ApiKey.DESCRIBE_TRANSACTIONS, TOPIC),
    (ApiKey.LIST_TRANSACTIONS, TRANSACTION),
}
# Another right that allows the call as well.
INSTEAD: Final = {
    (ApiKey.CREATE_TOPICS, TOPIC): (CLUSTER, AclOperation.CREATE),
    (ApiKey.INIT_PRODUCER_ID, CLUSTER): (TOPIC, AclOperation.WRITE),
}
RIGHTS: Final = [api.rights for api in API_TABLE.values()]
# From these versions on only brokers send the call; earlier responses have no place for the error.
UNTIL: Final = {ApiKey.ADD_PARTITIONS_TO_TXN: 3}
SINCE: Final = {ApiKey.DESCRIBE_LOG_DIRS: 3}


def test_every_api_that_is_served_says_which_rights_it_asks() -> None:
    assert {int(api_key) for api_key in ADVERTISED_INTERNAL} <= API_TABLE.keys()
    assert all(required.explanation for required in RIGHTS)
    assert {kind for required in RIGHTS for kind in required.operations} == DENIALS.keys()


async def allow_all_but(owner: WireClient, user: str, kind: ResourceType, *without: AclOperation) -> None:
    """Allows everything on resources of other kinds, and of this one all but these and those implying them."""
    lost = {*without, *(operation for operation in IMPLIED if IMPLIED[operation] in without)}
    grants = [acl(user, AclOperation.ALL, other, _any(other)) for other in KINDS if other is not kind]
    grants += [acl(user, operation, kind, _any(kind)) for operation in OPERATIONS if operation not in lost]
    assert set(await create_acls(owner, *grants)) == {0}


def _any(kind: ResourceType) -> str:
    return CLUSTER_NAME if kind is CLUSTER else "*"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name.lower())
async def test_each_call_asks_the_right_that_is_for_it(house: House, kind: ResourceType) -> None:
    """Covers every version, by name and by id: without the right, with it alone, and with a denial of it."""
    topic_id = await a_topic_with_a_group(house)
    owner = await house.broker.internal_client(MINE)
    alice = await client_as(house.broker, MINE, "alice")
    denied = DENIALS[kind]
    wrong: list[str] = []

    async def ask(api_key: ApiKey, what: str, *, expected: bool) -> None:
        nonlocal topic_id
        if api_key is ApiKey.OFFSET_DELETE:
            # A group is deleted with its last offset, which is deleted with its topic.
            assert await commit(owner, {("orders", 0): 0}, group="orders") == {("orders", 0): 0}
        for each in asking(api_key, topic_id):
            if not SINCE.get(api_key, 0) <= each.version <= UNTIL.get(api_key, each.version):
                continue
            codes = await each.codes(alice)
            if (denied in codes) is not expected:
                wrong.append(f"{api_key.name} {each.version} {what}: {sorted(codes)}")
            if api_key is ApiKey.DELETE_TOPICS and 0 in codes:
                topic_id = await house.broker.create_topic(owner, "orders")

    for api_key in ADVERTISED_TENANT:
        operation = API_TABLE[api_key].rights.operations.get(kind)
        if operation is None or (api_key, kind) in APART:
            continue
        right = acl("User:alice", operation, kind, _any(kind))
        await allow_all_but(owner, "User:alice", kind, operation)
        if (api_key, kind) in INSTEAD:
            other, instead = INSTEAD[api_key, kind]
            name = _any(other)
            await create_acls(owner, acl("User:alice", instead, other, name, permission=Permission.DENY))
        await ask(api_key, "without the right", expected=True)
        await create_acls(owner, right)
        await ask(api_key, "with the right", expected=False)
        await create_acls(owner, acl("User:*", operation, kind, _any(kind), permission=Permission.DENY))
        await ask(api_key, "denied", expected=True)
        await delete_acls(owner)
    assert not wrong, "\n".join(wrong)


async def test_without_any_rule_all_is_as_it_was_and_the_instance_may_say_otherwise(house: House) -> None:
    await house.topic()
    assert (await produce(house.mine, "orders", batch(b"x"))).error_code == 0

    await house.broker.update_instance(MINE, allow_everyone_if_no_acl=False)

    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (await produce(house.mine, "orders", batch(b"x"))).error_code == denied
    assert (await fetch(house.mine, "orders")).error_code == denied
    # The response does not tell a missing topic from a forbidden one.
    assert (await produce(house.mine, "nothing", batch(b"x"))).error_code == denied
    assert (await metadata_of(house.mine)).topics == []
    owner = await house.broker.internal_client(MINE)
    assert (await produce(owner, "orders", batch(b"x"))).error_code == 0
    assert (await fetch(house.theirs, "orders")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_right_is_in_force_on_an_open_connection_within_a_second(house: House) -> None:
    await house.topic()
    owner, alice = await house.broker.internal_client(MINE), await client_as(house.broker, MINE, "alice")
    assert (await produce(alice, "orders", batch(b"x"))).error_code == 0
    async with asyncio.timeout(1):
        await create_acls(owner, acl("User:bob", AclOperation.ALL, TOPIC, "ord", pattern_type=PatternType.PREFIXED))
        assert (await produce(alice, "orders", batch(b"x"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await create_acls(owner, acl("User:alice", AclOperation.WRITE, TOPIC, "*"))
        assert (await produce(alice, "orders", batch(b"x"))).error_code == 0
        assert (await fetch(alice, "orders")).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def test_a_fetch_that_waits_gives_nothing_to_who_has_lost_the_right(house: House) -> None:
    topic_id = await house.topic()
    owner = await house.broker.internal_client(MINE)
    alice, bob = [await client_as(house.broker, MINE, user) for user in ("alice", "bob")]
    by_name = fetch_request("orders", max_wait_ms=20_000)
    await alice.send(ApiKey.FETCH, FETCH_VERSION, by_name)
    await bob.send(ApiKey.FETCH, 13, fetch_request("", topic_id=topic_id, max_wait_ms=20_000))
    partition = house.broker.broker.services.storage.table.get(f"{MINE}.orders", 0)
    assert partition is not None
    await house.broker.until(lambda: len(partition.delayed_operations) == 2)

    await create_acls(owner, acl("User:carol", AclOperation.READ, TOPIC, "orders"))
    assert (await produce(owner, "orders", batch(b"secret"))).error_code == 0

    for client, version in ((alice, FETCH_VERSION), (bob, 13)):
        (line,) = (await client.receive(ApiKey.FETCH, version)).responses[0].partitions
        assert (line.error_code, line.records or b"") == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")


async def test_a_member_of_a_running_group_learns_of_a_lost_right_with_its_next_call(house: House) -> None:
    await house.topic()
    await coordinator_ready(house.mine)
    owner, alice = await house.broker.internal_client(MINE), await client_as(house.broker, MINE, "alice")
    assert await commit(alice, {("orders", 0): 7}) == {("orders", 0): 0}

    await create_acls(owner, acl("User:alice", AclOperation.READ, GROUP, "g", permission=Permission.DENY))

    denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert await commit(alice, {("orders", 0): 8, ("nothing", 0): 8}) == {("orders", 0): denied, ("nothing", 0): denied}
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert (await alice.call(ApiKey.HEARTBEAT, 4, request)).error_code == denied


async def test_a_topic_that_may_not_be_described_is_in_no_listing(house: House) -> None:
    for name in ("orders", "shown"):
        await house.topic(name)
    owner, alice = await house.broker.internal_client(MINE), await client_as(house.broker, MINE, "alice")
    await create_acls(
        owner, acl("User:alice", AclOperation.READ, TOPIC, "shown"), acl("User:b", AclOperation.ALL, TOPIC, "*")
    )

    for version in (0, 1, 8, 12):
        topics = (await metadata_of(alice, version=version)).topics
        assert [(topic.name, topic.error_code) for topic in topics] == [("shown", 0)]
    named = (await metadata_of(alice, "orders", "shown", "nothing")).topics
    assert {topic.name: topic.error_code for topic in named} == {
        "orders": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "shown": 0,
        "nothing": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    assert all(topic.topic_id == UUID_ZERO and not topic.partitions for topic in named if topic.name != "shown")


async def test_a_topic_is_made_for_who_may_create_it_or_anything(house: House) -> None:
    owner = await house.broker.internal_client(MINE)
    alice, bob = [await client_as(house.broker, MINE, user) for user in ("alice", "bob")]
    await create_acls(
        owner,
        acl("User:alice", AclOperation.CREATE, TOPIC, "a-", pattern_type=PatternType.PREFIXED),
        acl("User:bob", AclOperation.CREATE, CLUSTER, CLUSTER_NAME),
        acl("User:*", AclOperation.DESCRIBE, TOPIC, "*"),
    )
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    made = await create(alice, wanted_topic("a-1"), wanted_topic("b-1"))

    assert [(topic.name, topic.error_code) for topic in made] == [("a-1", 0), ("b-1", denied)]
    # Created, without details: she may not describe the configuration of topics.
    assert (made[0].topic_config_error_code, made[0].num_partitions, made[0].configs) == (denied, -1, None)
    assert [topic.error_code for topic in await create(bob, wanted_topic("b-2"))] == [0]
    by_asking = {
        name: (await metadata_of(client, name, auto_create=True)).topics[0].error_code
        for client, name in ((alice, "a-3"), (alice, "b-3"), (bob, "b-4"))
    }
    waiting = ErrorCode.LEADER_NOT_AVAILABLE
    assert by_asking == {"a-3": waiting, "b-3": denied, "b-4": waiting}


async def test_a_topic_that_is_deleted_by_its_id_is_named_to_who_may_describe_it(house: House) -> None:
    topic_id = await house.topic()
    owner, alice = await house.broker.internal_client(MINE), await client_as(house.broker, MINE, "alice")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=5_000)

    async def delete() -> tuple[int, str | None]:
        (result,) = (await alice.call(ApiKey.DELETE_TOPICS, 6, request)).responses
        return result.error_code, result.name

    await create_acls(owner, acl("User:bob", AclOperation.ALL, TOPIC, "orders"))
    assert await delete() == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
    await create_acls(owner, acl("User:alice", AclOperation.DESCRIBE, TOPIC, "orders"))
    assert await delete() == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "orders")
    await create_acls(owner, acl("User:alice", AclOperation.DELETE, TOPIC, "orders"))
    assert await delete() == (0, "orders")


async def test_groups_are_listed_to_who_may_describe_them_or_the_cluster(house: House) -> None:
    await house.topic()
    await coordinator_ready(house.mine, "g1", "g2")
    for group in ("g1", "g2"):
        await commit(house.mine, {("orders", 0): 1}, group=group)
    owner = await house.broker.internal_client(MINE)
    alice, bob = [await client_as(house.broker, MINE, user) for user in ("alice", "bob")]
    await create_acls(
        owner,
        acl("User:alice", AclOperation.DESCRIBE, GROUP, "g1"),
        acl("User:nobody", AclOperation.DESCRIBE, GROUP, "g2"),
        acl("User:bob", AclOperation.DESCRIBE, CLUSTER, CLUSTER_NAME),
    )

    async def groups(client: WireClient) -> list[str]:
        answer = await client.call(ApiKey.LIST_GROUPS, 4, ListGroupsRequest(states_filter=[]))
        return sorted(group.group_id for group in answer.groups)

    assert (await groups(alice), await groups(bob), await groups(owner)) == (["g1"], ["g1", "g2"], ["g1", "g2"])


async def initialised(client: WireClient, transactional_id: str | None) -> int:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    return int((await client.call(ApiKey.INIT_PRODUCER_ID, 4, request)).error_code)


async def test_a_right_to_write_to_any_topic_permits_an_idempotent_producer(house: House) -> None:
    owner, alice = await house.broker.internal_client(MINE), await client_as(house.broker, MINE, "alice")
    await house.broker.update_instance(MINE, allow_everyone_if_no_acl=False)
    assert await initialised(alice, None) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    await create_acls(owner, acl("User:alice", AclOperation.WRITE, TOPIC, "not-there-yet"))
    assert await initialised(alice, None) == 0
    await delete_acls(owner)
    await create_acls(owner, acl("User:alice", AclOperation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME))
    assert await initialised(alice, None) == 0


async def test_a_transactional_id_is_who_may_write_to_its(house: House) -> None:
    await house.topic()
    owner, alice = await house.broker.internal_client(MINE), await client_as(house.broker, MINE, "alice")
    producer = await Transactional.begin(alice, "tx")
    assert await producer.add(("orders", 0)) == {("orders", 0): 0}
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    await create_acls(owner, acl("User:bob", AclOperation.WRITE, TRANSACTION, "tx"))

    assert await initialised(alice, "tx") == denied
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch, "base_sequence": 0}
    of_transaction = batch(b"late", attributes=TRANSACTIONAL, **identity)
    assert (await produce(alice, "orders", of_transaction, transactional_id="tx")).error_code == denied
    # The id alone requires nothing: a batch outside of a transaction requires only the right to its topic.
    assert (await produce(alice, "orders", batch(b"x"), transactional_id="tx")).error_code == 0
    assert await producer.add(("orders", 0), ("nothing", 0)) == {("orders", 0): denied, ("nothing", 0): denied}
    assert await producer.end(committed=True) == denied
    request = FindCoordinatorRequest(key="tx", key_type=1, coordinator_keys=["tx"])
    (found,) = (await alice.call(ApiKey.FIND_COORDINATOR, 4, request)).coordinators
    assert (found.error_code, found.node_id, found.host) == (denied, -1, "")


async def test_transactions_are_shown_to_who_may_describe_them_with_topics_that_may_be_described(house: House) -> None:
    for name in ("orders", "shown"):
        await house.topic(name)
    owner, alice = await house.broker.internal_client(MINE), await client_as(house.broker, MINE, "alice")
    await coordinated(house.mine, "tx")
    producer = await Transactional.begin(alice, "tx")
    await producer.add(("orders", 0), ("shown", 0))

    await create_acls(owner, acl("User:alice", AclOperation.DESCRIBE, TOPIC, "orders", permission=Permission.DENY))
    assert [topic.topic for topic in (await producer.describe()).topics] == ["shown"]
    assert [each.transactional_id for each in (await listed(alice)).transaction_states] == ["tx"]
    await create_acls(owner, acl("User:alice", AclOperation.DESCRIBE, TRANSACTION, "tx", permission=Permission.DENY))
    assert (await producer.describe()).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (await listed(alice)).transaction_states == []


async def test_brokers_are_asked_about_as_the_cluster(house: House) -> None:
    owner, alice = await house.broker.internal_client(MINE), await client_as(house.broker, MINE, "alice")
    await create_acls(owner, acl("User:bob", AclOperation.ALL, CLUSTER, CLUSTER_NAME))
    assert (await config_of(alice, "1", kind=4)).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    await create_acls(owner, acl("User:alice", AclOperation.ALTER_CONFIGS, CLUSTER, CLUSTER_NAME))
    assert (await config_of(alice, "1", kind=4)).error_code == 0


def operations(bits: int) -> set[int]:
    return {operation for operation in range(16) if bits >> operation & 1}


async def test_authorised_operations_are_what_there_is_a_right_to(house: House) -> None:
    """Covers Metadata 8 to 12, DescribeGroups from 3 on, and DescribeCluster."""
    await house.topic()
    await coordinator_ready(house.mine)
    await commit(house.mine, {("orders", 0): 1})
    owner, alice = await house.broker.internal_client(MINE), await client_as(house.broker, MINE, "alice")

    async def shown(client: WireClient) -> list[set[int]]:
        topics = [MetadataRequestTopic(name="orders", topic_id=UUID_ZERO)]
        about = MetadataRequest(
            topics=topics, include_cluster_authorized_operations=True, include_topic_authorized_operations=True
        )
        metadata = await client.call(ApiKey.METADATA, 10, about)
        asked = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
        groups = await client.call(ApiKey.DESCRIBE_GROUPS, 5, asked)
        who = DescribeClusterRequest(include_cluster_authorized_operations=True)
        cluster = await client.call(ApiKey.DESCRIBE_CLUSTER, 0, who)
        assert metadata.cluster_authorized_operations == cluster.cluster_authorized_operations
        return [
            operations(metadata.topics[0].topic_authorized_operations),
            operations(groups.groups[0].authorized_operations),
            operations(cluster.cluster_authorized_operations),
        ]

    everything = [{3, 4, 5, 6, 7, 8, 10, 11}, {3, 6, 8}, {5, 7, 8, 9, 10, 11, 12}]
    assert await shown(owner) == everything
    # The instance is open, and administration requires a rule.
    assert await shown(alice) == [*everything[:2], {5, 8, 10, 12}]
    await create_acls(
        owner,
        acl("User:alice", AclOperation.WRITE, TOPIC, "*"),
        acl("User:alice", AclOperation.ALTER_CONFIGS, TOPIC, "ord", pattern_type=PatternType.PREFIXED),
        acl("User:alice", AclOperation.ALL, GROUP, "g"),
        acl("User:*", AclOperation.DELETE, GROUP, "*", permission=Permission.DENY),
        acl("User:alice", AclOperation.ALTER, CLUSTER, CLUSTER_NAME),
    )
    assert await shown(alice) == [{4, 8, 10, 11}, {3, 8}, {7, 8}]
    assert await shown(owner) == everything
    # The operations on the cluster are shown to users that may describe it.
    await create_acls(owner, acl("User:*", AclOperation.DESCRIBE, CLUSTER, CLUSTER_NAME, permission=Permission.DENY))
    assert (await shown(alice))[2] == set()


async def test_allow_lists_hold_besides(house: House) -> None:
    await house.topic()
    owner, alice = await house.broker.internal_client(MINE), await client_as(house.broker, MINE, "alice")
    await create_acls(owner, acl("User:alice", AclOperation.ALL, TOPIC, "*"))
    await house.allow(produce_ips=("203.0.113.7",))
    assert (await produce(alice, "orders", batch(b"x"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (await fetch(alice, "orders")).error_code == 0


async def test_a_call_that_a_broker_passes_on_is_asked_as_its_client(house: House) -> None:
    """The connection between brokers carries the owner's name, which must not count."""
    await house.topic()
    owner = await house.broker.internal_client(MINE)
    await create_acls(owner, acl("User:alice", AclOperation.READ, TOPIC, "orders"))
    codes = {}
    for client in ("127.0.0.1", "127.0.0.1 alice", "127.0.0.1 bob"):
        passed_on = await house.broker.client(house.broker.config.internal_port)
        assert (await passed_on.log_in(MINE, "a-secret-for-tests", client)).error_code == 0
        codes[client.partition(" ")[2]] = (await fetch(passed_on, "orders")).error_code
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert codes == {"": denied, "alice": 0, "bob": denied}


async def test_a_produce_decides_once_for_each_topic_and_image(house: House) -> None:
    """The decision is cached with the route, so that the next request costs nothing."""
    await house.topic()
    owner = await house.broker.internal_client(MINE)
    await create_acls(owner, acl("User:alice", AclOperation.WRITE, TOPIC, "*"))
    services = house.broker.broker.services
    view = TenantMetadataView(services.metadata.version, services.metadata.current.image, Principal("alice", MINE))
    client = ClientContext(services, view, peer_address("127.0.0.1"), "test")

    route = client.resolve_produce_topic(b"orders")

    assert route.error == 0 and client.produce_topics[b"orders"] is route
    assert client.resolve_produce_topic(b"elsewhere").error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.resolve_consume_topic(b"orders", by_id=False).error == ErrorCode.TOPIC_AUTHORIZATION_FAILED
