"""An instance that one of two brokers serves, while both coordinate for it (CKA-5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from brokers.engine.handlers.groups import coordinator_forwarding
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
)
from brokers.engine.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from brokers.engine.protocol.messages.producers import ListTransactionsRequest
from brokers.engine.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from brokers.engine.protocol.messages.transactions import InitProducerIdRequest
from tests.testkit.in_process import SECRET, InProcessBroker
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.test_groups import describe, join, listed, sync

MINE = "ins-aaaaaaaa"
WAIT_S = 10.0
GROUPS = [f"g{number}" for number in range(8)]


class Pair:
    """Two brokers: `one` serves the instance, `two` only coordinates for it."""

    def __init__(self, one: InProcessBroker, two: InProcessBroker, client: WireClient) -> None:
        self.one = one
        self.two = two
        self.client = client

    def coordinator(self, group: str) -> InProcessBroker:
        for broker in (self.one, self.two):
            runtime = broker.broker.services.coordination.groups
            assert runtime is not None
            if not runtime.refusal(f"{MINE}.{group}"):
                return broker
        raise AssertionError("nobody coordinates")

    def groups_of(self, broker: InProcessBroker) -> list[str]:
        return [group for group in GROUPS if self.coordinator(group) is broker]

    @property
    def far(self) -> str:
        return self.groups_of(self.two)[0]

    @property
    def near(self) -> str:
        return self.groups_of(self.one)[0]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with (
        InProcessBroker(tmp_path / "1", broker_id=1) as item,
        InProcessBroker(tmp_path / "2", broker_id=2, ensemble=item.ensemble) as two,
    ):
        await item.until(lambda: len(item.broker.current.image.brokers) == 2)
        client = await item.client(await item.create_instance(MINE))
        result = Pair(item, two, client)
        async with asyncio.timeout(WAIT_S):
            for group in GROUPS:
                for kind in (0, 1):
                    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[group])
                    while (await client.call(ApiKey.FIND_COORDINATOR, 4, request)).coordinators[0].error_code:
                        pass
                while (await describe(client, group)).error_code:
                    pass
        assert result.groups_of(item)
        assert result.groups_of(two)
        yield result


async def test_every_group_is_found_at_a_broker_that_serves_the_instance(pair: Pair) -> None:
    answer = await pair.client.call(
        ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=GROUPS)
    )

    assert {coordinator.node_id for coordinator in answer.coordinators} == {1}


async def test_a_member_of_a_group_that_is_coordinated_elsewhere_notices_nothing(pair: Pair) -> None:
    joined = await join(pair.client, group_id=pair.far)
    synced = await sync(pair.client, joined, group_id=pair.far)
    heartbeat = HeartbeatRequest(group_id=pair.far, generation_id=1, member_id=joined.member_id)
    heartbeat_answer = await pair.client.call(ApiKey.HEARTBEAT, 4, heartbeat)
    group = await describe(pair.client, pair.far)

    assert (joined.error_code, synced.assignment, heartbeat_answer.error_code) == (0, b"mine", 0)
    assert (group.group_state, group.members[0].client_id) == ("Stable", "test")
    (held,) = [shard for shard in pair.two.broker.services.coordination.groups.shards() if len(shard.machine.groups)]
    assert [result.id for result in held.machine.groups] == [f"{MINE}.{pair.far}"]

    leaving = LeaveGroupRequest(group_id=pair.far, members=[MemberIdentity(member_id=joined.member_id)])
    assert (await pair.client.call(ApiKey.LEAVE_GROUP, 5, leaving)).members[0].error_code == 0


async def until_rebalancing(pair: Pair, joined: JoinGroupResponse) -> HeartbeatRequest:
    """Starts a join of another member; returns the first heartbeat that reports the rebalance."""
    heartbeat = HeartbeatRequest(group_id=pair.far, generation_id=1, member_id=joined.member_id)
    async with asyncio.timeout(WAIT_S):
        while (await pair.client.call(ApiKey.HEARTBEAT, 4, heartbeat)).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            pass
    return heartbeat


async def test_a_member_that_waits_in_a_join_keeps_nobody_else_waiting(pair: Pair) -> None:
    leader = await join(pair.client, group_id=pair.far)
    await sync(pair.client, leader, group_id=pair.far)
    second = await pair.one.client(pair.one.broker.listeners.get(MINE).port, "second")
    waiting = asyncio.create_task(join(second, group_id=pair.far))
    await until_rebalancing(pair, leader)

    again = await join(pair.client, group_id=pair.far, member_id=leader.member_id)

    assert again.generation_id == (await waiting).generation_id == 2


async def test_calls_about_many_groups_are_answered_by_each_ones_coordinator_in_the_order_asked(pair: Pair) -> None:
    for group in GROUPS:
        await join(pair.client, group_id=group)

    answer = await pair.client.call(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=GROUPS))
    assert [(group.group_id, group.group_state) for group in answer.groups] == [
        (group, "CompletingRebalance") for group in GROUPS
    ]

    deleted = await pair.client.call(ApiKey.DELETE_GROUPS, 2, DeleteGroupsRequest(groups_names=[*GROUPS, "nobody's"]))
    assert [(result.group_id, result.error_code) for result in deleted.results] == [
        *((group, ErrorCode.NON_EMPTY_GROUP) for group in GROUPS),
        ("nobody's", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


async def test_very_many_groups_are_passed_on_in_parts_and_answered_in_the_order_asked(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_forwarding, "IDS_AT_ONCE_MAX", 3)
    for group in GROUPS:
        await join(pair.client, group_id=group)
    answer = await pair.client.call(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=GROUPS))
    assert [(group.group_id, group.group_state) for group in answer.groups] == [
        (group, "CompletingRebalance") for group in GROUPS
    ]


async def test_all_groups_of_the_instance_are_listed_once_by_its_brokers(pair: Pair) -> None:
    for group in GROUPS:
        await join(pair.client, group_id=group)

    answer = await listed(pair.client)

    assert answer.error_code == 0
    assert sorted(group.group_id for group in answer.groups) == GROUPS


async def test_offsets_are_committed_and_fetched_where_the_group_is_coordinated(pair: Pair) -> None:
    await pair.one.create_topic(pair.client, "orders")
    for at, group in enumerate(GROUPS):
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=at, committed_metadata="")
        commit = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name="orders", partitions=[partition])],
        )
        answer = await pair.client.call(ApiKey.OFFSET_COMMIT, 8, commit)
        assert answer.topics[0].partitions[0].error_code == 0

    many = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in GROUPS])
    fetched = await pair.client.call(ApiKey.OFFSET_FETCH, 8, many)
    assert [(group.group_id, group.topics[0].partitions[0].committed_offset) for group in fetched.groups] == [
        (group, at) for at, group in enumerate(GROUPS)
    ]
    item = OffsetFetchRequest(group_id=pair.far, topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0])])
    alone = await pair.client.call(ApiKey.OFFSET_FETCH, 7, item)
    assert alone.topics[0].partitions[0].committed_offset == GROUPS.index(pair.far)


async def test_transactional_ids_find_their_coordinators(pair: Pair) -> None:
    for id in GROUPS:
        answer = await pair.client.call(
            ApiKey.INIT_PRODUCER_ID,
            3,
            InitProducerIdRequest(
                transactional_id=id, transaction_timeout_ms=10_000, producer_id=-1, producer_epoch=-1
            ),
        )
        assert (id, answer.error_code) == (id, 0)

    every = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    result = await pair.client.call(ApiKey.LIST_TRANSACTIONS, 0, every)

    assert sorted(state.transactional_id for state in result.transaction_states) == GROUPS


async def test_when_the_coordinator_is_gone_its_clients_look_for_the_next(pair: Pair) -> None:
    far = pair.far
    joined = await join(pair.client, group_id=far)
    await sync(pair.client, joined, group_id=far)
    second = await pair.one.client(pair.one.broker.listeners.get(MINE).port, "second")
    waiting = asyncio.create_task(join(second, group_id=far))
    heartbeat = await until_rebalancing(pair, joined)

    await pair.two.broker.stop()

    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    assert (await pair.client.call(ApiKey.HEARTBEAT, 4, heartbeat)).error_code == ErrorCode.NOT_COORDINATOR


async def test_a_client_that_goes_away_while_it_waits_takes_its_way_with_it(pair: Pair) -> None:
    leader = await join(pair.client, group_id=pair.far)
    await sync(pair.client, leader, group_id=pair.far)
    forwarders: Any = pair.one.broker.coordinator_forwarding._forwarders
    second = await pair.one.client(pair.one.broker.listeners.get(MINE).port, "second")
    waiting = asyncio.create_task(join(second, group_id=pair.far))
    await until_rebalancing(pair, leader)
    assert forwarders.pending_requests == 1
    held = len(forwarders)

    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await second.close()

    await pair.one.until(lambda: not forwarders.pending_requests and len(forwarders) == held - 1)


async def log_in_for(client: WireClient, address: str, username: str) -> int:
    await client.call(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
    token = f"{address}\0{username}\0{SECRET}".encode()
    answer = await client.call(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token))
    return int(answer.error_code)


async def test_the_coordinator_knows_the_clients_own_address(pair: Pair) -> None:
    passing_on = await pair.two.client(pair.two.config.internal_port)
    assert await log_in_for(passing_on, "203.0.113.7", MINE) == 0

    joined = await join(passing_on, group_id=pair.far)

    group = await describe(pair.client, pair.far)
    assert [(member.member_id, member.client_host) for member in group.members] == [(joined.member_id, "/203.0.113.7")]


@pytest.mark.parametrize(("address", "username"), [("203.0.113.7", "penstock"), ("somebody", MINE)])
async def test_only_an_instances_clients_are_passed_on_and_only_by_address(
    pair: Pair, address: str, username: str
) -> None:
    passing_on = await pair.two.client(pair.two.config.internal_port)

    assert await log_in_for(passing_on, address, username) == ErrorCode.SASL_AUTHENTICATION_FAILED
