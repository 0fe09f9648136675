"""Calls of group members over the wire, in every version, on their coordinator (GRP-4…20, 29, CKA-16)."""

from __future__ import annotations

import asyncio
from typing import Any

from brokers.engine.coordinators.limits import GROUP_ID_BYTES_MAX, LEAVING_MEMBERS_MAX
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.groups import (
    OPERATIONS_NOT_ASKED,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.conftest import MINE, House

WAIT_S = 10.0
SESSION_MS = 10_000


async def coordinated(client: WireClient, group: str = "g") -> None:
    """Waits until the group has a coordinator."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    async with asyncio.timeout(WAIT_S):
        while (await client.call(ApiKey.FIND_COORDINATOR, 4, request)).coordinators[0].error_code:
            pass
        while (await describe(client, group)).error_code:
            pass


def join_request(**changes: Any) -> JoinGroupRequest:
    wanted = {
        "group_id": "g",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"m")],
    }
    return JoinGroupRequest(**(wanted | changes))


async def join(client: WireClient, version: int = 9, **changes: Any) -> Any:
    """Joins the group, twice if the first response has a member id."""
    answer = await client.call(ApiKey.JOIN_GROUP, version, join_request(**changes))
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        changes["member_id"] = answer.member_id
        answer = await client.call(ApiKey.JOIN_GROUP, version, join_request(**changes))
    return answer


async def sync(client: WireClient, joined: Any, version: int = 5, assignment: bytes = b"mine", **changes: Any) -> Any:
    wanted = {
        "group_id": "g",
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)],
    }
    return await client.call(ApiKey.SYNC_GROUP, version, SyncGroupRequest(**(wanted | changes)))


async def describe(client: WireClient, group: str = "g", version: int = 5, **more: Any) -> Any:
    answer = await client.call(ApiKey.DESCRIBE_GROUPS, version, DescribeGroupsRequest(groups=[group], **more))
    return answer.groups[0]


async def listed(client: WireClient, version: int = 5, **filters: Any) -> Any:
    wanted: dict[str, Any] = {"states_filter": [], "types_filter": []}
    return await client.call(ApiKey.LIST_GROUPS, version, ListGroupsRequest(**(wanted | filters)))


async def test_a_member_joins_syncs_beats_and_leaves_in_every_version(house: House) -> None:
    await coordinated(house.mine)
    for version in range(10):
        joined = await join(house.mine, version)
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 2 * version + 1, "range")
        assert joined.leader == joined.member_id
        assert joined.member_id.startswith("test-")
        assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, b"m")]
        assert joined.protocol_type == ("consumer" if version >= 7 else None)

        synced = await sync(house.mine, joined, min(version, 5))
        assert (synced.error_code, synced.assignment) == (0, b"mine")

        heartbeat = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
        assert (await house.mine.call(ApiKey.HEARTBEAT, min(version, 4), heartbeat)).error_code == 0

        left = await house.mine.call(
            ApiKey.LEAVE_GROUP,
            min(version, 5),
            LeaveGroupRequest(
                group_id="g", member_id=joined.member_id, members=[MemberIdentity(member_id=joined.member_id)]
            ),
        )
        assert left.error_code == 0
        assert [member.error_code for member in left.members or ()] == ([0] if version >= 3 else [])
        assert (await describe(house.mine)).group_state == "Empty"


async def test_a_group_is_described_to_its_owner_in_every_version(house: House) -> None:
    await coordinated(house.mine)
    joined = await join(house.mine, group_instance_id="pod")
    assert (await describe(house.mine)).group_state == "CompletingRebalance"
    await sync(house.mine, joined, group_instance_id="pod")

    for version in range(6):
        group = await describe(house.mine, version=version, include_authorized_operations=True)

        assert (group.error_code, group.group_id, group.group_state) == (0, "g", "Stable")
        assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
        (member,) = group.members
        assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "test", "/127.0.0.1")
        assert (member.member_metadata, member.member_assignment) == (b"m", b"mine")
        assert member.group_instance_id == ("pod" if version >= 4 else None)
        # READ, DELETE and DESCRIBE.
        assert group.authorized_operations == (1 << 3 | 1 << 6 | 1 << 8 if version >= 3 else OPERATIONS_NOT_ASKED)


async def test_an_unknown_group_is_dead_and_operations_are_returned_on_request(house: House) -> None:
    await coordinated(house.mine)

    group = await describe(house.mine, "nobody's")

    assert (group.error_code, group.group_state, group.members) == (0, "Dead", [])
    assert group.authorized_operations == OPERATIONS_NOT_ASKED


async def test_groups_are_listed_in_every_version(house: House) -> None:
    await coordinated(house.mine)
    await join(house.mine)
    for version in range(6):
        answer = await listed(house.mine, version)

        assert answer.error_code == 0
        (group,) = answer.groups
        assert (group.group_id, group.protocol_type) == ("g", "consumer")
        assert group.group_state == ("CompletingRebalance" if version >= 4 else "")
        assert group.group_type == ("classic" if version >= 5 else "")


async def test_groups_are_listed_by_state_and_type(house: House) -> None:
    await coordinated(house.mine)
    await join(house.mine)
    for filters, result in (
        ({"states_filter": ["completingREBALANCE"]}, True),
        ({"states_filter": ["Stable", "Empty"]}, False),
        ({"states_filter": ["nonsense"]}, False),
        ({"types_filter": ["Classic"]}, True),
        ({"types_filter": ["consumer"]}, False),
        ({"types_filter": ["classic"], "states_filter": ["stable"]}, False),
    ):
        assert bool((await listed(house.mine, **filters)).groups) is result, filters


async def test_two_instances_with_a_group_of_the_same_name_know_nothing_of_each_other(house: House) -> None:
    await coordinated(house.mine)
    mine = await join(house.mine)
    await sync(house.mine, mine)

    assert (await describe(house.theirs)).group_state == "Dead"
    assert (await listed(house.theirs)).groups == []
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=mine.member_id)
    assert (await house.theirs.call(ApiKey.HEARTBEAT, 4, heartbeat)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    theirs = await join(house.theirs)
    assert (theirs.generation_id, theirs.leader) == (1, theirs.member_id)
    assert (await describe(house.mine)).group_state == "Stable"


async def test_the_cluster_itself_sees_everybodys_groups_by_their_internal_names(house: House) -> None:
    await coordinated(house.mine)
    await join(house.mine)
    cluster = await house.broker.internal_client("penstock")

    assert [group.group_id for group in (await listed(cluster)).groups] == [f"{MINE}.g"]
    assert (await describe(cluster, f"{MINE}.g")).group_state == "CompletingRebalance"


async def test_the_control_plane_sees_an_instances_groups_as_their_owner_does(house: House) -> None:
    await coordinated(house.mine)
    await join(house.mine)
    owner = await house.broker.internal_client(MINE)

    assert [group.group_id for group in (await listed(owner)).groups] == ["g"]


async def test_members_belong_to_groups_with_a_name(house: House) -> None:
    await coordinated(house.mine)
    client = house.mine
    joined = await join(client)
    for group in ("", "g" * GROUP_ID_BYTES_MAX):
        answers = [
            await client.call(ApiKey.JOIN_GROUP, 9, join_request(group_id=group)),
            await sync(client, joined, group_id=group),
            await client.call(ApiKey.HEARTBEAT, 4, HeartbeatRequest(group_id=group, generation_id=1, member_id="m")),
            await client.call(ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(group_id=group, members=[])),
        ]
        assert [answer.error_code for answer in answers] == [ErrorCode.INVALID_GROUP_ID] * 4
    assert (await describe(house.mine, "")).group_state == "Dead"


async def test_a_sync_of_version_5_says_which_protocol_it_means_before_anything_else(house: House) -> None:
    await coordinated(house.mine)
    joined = await join(house.mine)
    for missing in ("protocol_type", "protocol_name"):
        answer = await sync(house.mine, joined, group_id="", **{missing: None})

        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_a_join_that_waits_for_others_keeps_only_its_own_connection_waiting(house: House) -> None:
    await coordinated(house.mine)
    leader = await join(house.mine)
    await sync(house.mine, leader)
    second = await house.broker.client(house.my_port, "second")

    waiting = asyncio.create_task(join(second))
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id=leader.member_id)
    async with asyncio.timeout(WAIT_S):
        while (await house.mine.call(ApiKey.HEARTBEAT, 4, heartbeat)).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            pass
    again = await house.mine.call(ApiKey.JOIN_GROUP, 9, join_request(member_id=leader.member_id))
    joined = await waiting

    assert again.generation_id == joined.generation_id == 2
    assert {member.member_id for member in again.members} == {leader.member_id, joined.member_id}


async def test_a_client_that_goes_away_while_it_waits_stays_a_member_until_its_time_is_over(house: House) -> None:
    await coordinated(house.mine)
    leader = await join(house.mine)
    await sync(house.mine, leader)
    second = await house.broker.client(house.my_port, "second")
    await second.send(ApiKey.JOIN_GROUP, 3, join_request())
    async with asyncio.timeout(WAIT_S):
        while len((await describe(house.mine)).members) < 2:
            pass

    await second.close()
    again = await house.mine.call(ApiKey.JOIN_GROUP, 9, join_request(member_id=leader.member_id))

    assert (again.generation_id, len(again.members)) == (2, 2)


async def test_a_join_of_version_0_has_its_session_for_a_rebalance_timeout(house: House) -> None:
    await coordinated(house.mine)
    joined = await join(house.mine, 0)

    (shard,) = [
        shard for shard in house.broker.broker.services.coordination.groups.shards() if len(shard.machine.groups)
    ]
    (group,) = shard.machine.groups
    assert group.members[joined.member_id].rebalance_timeout_ms == SESSION_MS


async def test_an_old_departure_has_its_error_code_at_the_top_of_the_answer(house: House) -> None:
    await coordinated(house.mine)

    answer = await house.mine.call(ApiKey.LEAVE_GROUP, 2, LeaveGroupRequest(group_id="g", member_id="nobody"))

    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_nobody_sends_away_more_members_than_a_group_can_have(house: House) -> None:
    await coordinated(house.mine)
    members = [MemberIdentity(member_id="x")] * (LEAVING_MEMBERS_MAX + 1)

    answer = await house.mine.call(ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(group_id="g", members=members))

    assert answer.error_code == ErrorCode.INVALID_REQUEST


async def test_before_there_are_coordinators_everybody_is_sent_to_look_for_one(house: House) -> None:
    joined = await house.mine.call(ApiKey.JOIN_GROUP, 9, join_request(member_id="m"))
    heartbeat = await house.mine.call(
        ApiKey.HEARTBEAT, 4, HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    )
    left = await house.mine.call(ApiKey.LEAVE_GROUP, 5, LeaveGroupRequest(group_id="g", members=[]))
    synced = await sync(house.mine, joined)

    assert {answer.error_code for answer in (joined, heartbeat, left, synced)} == {ErrorCode.NOT_COORDINATOR}
    assert joined.member_id == "m"
    assert (await describe(house.mine)).error_code == ErrorCode.NOT_COORDINATOR


async def test_an_instance_that_is_being_deleted_lets_nobody_join(house: House) -> None:
    await coordinated(house.mine)
    await house.broker.update_instance(MINE, state="deleting")

    answer = await house.mine.call(ApiKey.JOIN_GROUP, 9, join_request())

    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
