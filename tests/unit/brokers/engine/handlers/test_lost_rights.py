"""Waiting calls end within a second when the client loses its right: fetches, members that join or sync."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

import pytest

from brokers.contract.acls import AclOperation, PatternType, Permission, ResourceType
from brokers.engine.cluster.image import ClusterImage, ImageDelta
from brokers.engine.handlers.fetch.async_fetch import SYNCHRONOUS_REQUEST_BYTES_MAX
from brokers.engine.handlers.waiting_calls import TURN_S_MAX, WaitingCalls
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.fetch import FetchRequest
from brokers.engine.protocol.messages.groups import JoinGroupRequest, SyncGroupRequest
from brokers.engine.scheduling.turn_queue import TurnQueue
from tests.testkit.records import FETCH_VERSION, batch, fetch_request, produce
from tests.testkit.rights import acl, client_as, create_acls, delete_acls
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.conftest import MINE, THEIRS, House
from tests.unit.brokers.engine.handlers.test_groups import coordinated, join, join_request
from tests.unit.brokers.engine.handlers.test_user_calls import alter, altered

WAIT_MS = 20_000
NOTICED_S_MAX = 1.0
TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
LINE_BYTES = 33
# The maximum number of connections that an instance has on a broker.
MANY = 5_000

Change = Callable[[House, WireClient], Awaitable[Any]]


def waiting(house: House) -> int:
    return house.broker.broker.services.access.waiting_calls.count(MINE)


def long_request() -> FetchRequest:
    """Returns a request with enough partitions to be served in turns."""
    request = fetch_request("orders", max_wait_ms=WAIT_MS)
    request.topics[0].partitions *= SYNCHRONOUS_REQUEST_BYTES_MAX // LINE_BYTES + 1
    return request


async def error_of_fetch(client: WireClient, version: int) -> int:
    async with asyncio.timeout(NOTICED_S_MAX):
        answer = await client.receive(ApiKey.FETCH, version)
    assert not answer.responses[0].partitions[0].records
    return int(answer.responses[0].partitions[0].error_code)


async def deny(house: House, owner: WireClient) -> None:
    right = acl("User:alice", AclOperation.READ, ResourceType.TOPIC, "orders", permission=Permission.DENY)
    assert await create_acls(owner, right) == [0]


async def only_others(house: House, owner: WireClient) -> None:
    right = acl("User:bob", AclOperation.ALL, ResourceType.TOPIC, "ord", pattern_type=PatternType.PREFIXED)
    assert await create_acls(owner, right) == [0]


async def close(house: House, owner: WireClient) -> None:
    await house.broker.update_instance(MINE, allow_everyone_if_no_acl=False)


@pytest.mark.parametrize("change", [deny, only_others, close])
@pytest.mark.parametrize("version", [3, FETCH_VERSION, 13])
async def test_a_fetch_that_waits_is_answered_when_its_right_goes(house: House, change: Change, version: int) -> None:
    topic_id = await house.topic()
    owner, alice = await house.broker.internal_client(MINE), await client_as(house.broker, MINE, "alice")
    by_id = version >= 13
    request = fetch_request("" if by_id else "orders", max_wait_ms=WAIT_MS, **({"topic_id": topic_id} if by_id else {}))
    await alice.send(ApiKey.FETCH, version, request)
    await house.broker.until(lambda: waiting(house) == 1)

    await change(house, owner)

    assert await error_of_fetch(alice, version) == TOPIC_DENIED
    assert waiting(house) == 0


async def test_an_instance_that_owes_time_does_not_keep_a_right_by_it(house: House) -> None:
    """Otherwise a user could keep a right by sending long requests before it is revoked."""
    await house.topic()
    owner, alice = await house.broker.internal_client(MINE), await client_as(house.broker, MINE, "alice")
    await alice.send(ApiKey.FETCH, FETCH_VERSION, fetch_request("orders", max_wait_ms=WAIT_MS))
    await house.broker.until(lambda: waiting(house) == 1)
    services = house.broker.broker.services
    services.accounting.accountings.get_or_create(MINE).request_time.charge(5_000_000, services.clock.monotonic_ms())

    await deny(house, owner)

    assert await error_of_fetch(alice, FETCH_VERSION) == TOPIC_DENIED


async def test_a_fetch_whose_user_is_no_superuser_any_more_is_answered(house: House) -> None:
    await house.topic()
    owner, root = await house.broker.internal_client(MINE), await client_as(house.broker, MINE, "root")
    assert await alter(owner, altered("root", "secret", superuser=1)) == [0]
    await only_others(house, owner)
    await root.send(ApiKey.FETCH, FETCH_VERSION, fetch_request("orders", max_wait_ms=WAIT_MS))
    await house.broker.until(lambda: waiting(house) == 1)

    assert await alter(owner, altered("root", superuser=0)) == [0]

    assert await error_of_fetch(root, FETCH_VERSION) == TOPIC_DENIED


async def test_a_fetch_that_keeps_its_right_waits_on_and_gets_new_records(house: House) -> None:
    await house.topic()
    owner = await house.broker.internal_client(MINE)
    alice, bob = [await client_as(house.broker, MINE, user) for user in ("alice", "bob")]
    for client in (alice, bob, house.theirs):
        if client is house.theirs:
            await house.broker.create_topic(client, "orders")
        await client.send(ApiKey.FETCH, FETCH_VERSION, fetch_request("orders", max_wait_ms=WAIT_MS))
    services = house.broker.broker.services
    await house.broker.until(lambda: waiting(house) == 2 and services.access.waiting_calls.count(THEIRS) == 1)

    await only_others(house, owner)

    assert await error_of_fetch(alice, FETCH_VERSION) == TOPIC_DENIED
    assert (waiting(house), services.access.waiting_calls.count(THEIRS)) == (1, 1)
    assert (await produce(owner, "orders", batch(b"x"))).error_code == 0
    line = (await bob.receive(ApiKey.FETCH, FETCH_VERSION)).responses[0].partitions[0]
    assert line.error_code == 0
    assert line.records


async def test_a_long_fetch_that_waits_is_asked_again_after_any_change(house: House) -> None:
    await house.topic()
    owner, alice = await house.broker.internal_client(MINE), await client_as(house.broker, MINE, "alice")
    request = long_request()
    await alice.send(ApiKey.FETCH, FETCH_VERSION, request)
    await house.broker.until(lambda: waiting(house) == 1)

    await deny(house, owner)

    assert await error_of_fetch(alice, FETCH_VERSION) == TOPIC_DENIED


async def joined_pair(house: House) -> tuple[WireClient, Any, WireClient]:
    """Returns a group's leader, its join response, and alice, whose request to join waits for the leader's."""
    await coordinated(house.mine)
    leader, alice = await client_as(house.broker, MINE, "leader"), await client_as(house.broker, MINE, "alice")
    joined = await join(leader)
    given = await alice.call(ApiKey.JOIN_GROUP, 9, join_request())
    assert given.error_code == ErrorCode.MEMBER_ID_REQUIRED
    request: JoinGroupRequest = join_request(member_id=given.member_id)
    await alice.send(ApiKey.JOIN_GROUP, 9, request)
    await house.broker.until(lambda: waiting(house) == 1)
    return leader, joined, alice


async def test_a_member_that_waits_to_join_is_answered_when_it_loses_the_right(house: House) -> None:
    leader, joined, alice = await joined_pair(house)
    owner = await house.broker.internal_client(MINE)

    right = acl("User:alice", AclOperation.READ, ResourceType.GROUP, "g", permission=Permission.DENY)
    await create_acls(owner, right, acl("User:*", AclOperation.READ, ResourceType.GROUP, "g"))

    async with asyncio.timeout(NOTICED_S_MAX):
        answer = await alice.receive(ApiKey.JOIN_GROUP, 9)
    assert (answer.error_code, answer.members) == (GROUP_DENIED, [])
    # The group continues for members with the right.
    again = await leader.call(ApiKey.JOIN_GROUP, 9, join_request(member_id=joined.member_id))
    assert again.error_code == 0


async def test_a_member_that_waits_for_its_assignment_is_answered_when_it_loses_the_right(house: House) -> None:
    leader, joined, alice = await joined_pair(house)
    owner = await house.broker.internal_client(MINE)
    again = await leader.call(ApiKey.JOIN_GROUP, 9, join_request(member_id=joined.member_id))
    answer = await alice.receive(ApiKey.JOIN_GROUP, 9)
    assert (again.error_code, answer.error_code) == (0, 0)
    waits, leads = (alice, answer) if again.leader == again.member_id else (leader, again)
    user = "alice" if waits is alice else "leader"
    request = SyncGroupRequest(
        group_id="g", generation_id=leads.generation_id, member_id=leads.member_id,
        protocol_type="consumer", protocol_name="range", assignments=[],
    )  # fmt: skip
    await waits.send(ApiKey.SYNC_GROUP, 5, request)
    await house.broker.until(lambda: waiting(house) == 1)

    await create_acls(
        owner, acl(f"User:{user}", AclOperation.READ, ResourceType.GROUP, "*", permission=Permission.DENY)
    )

    async with asyncio.timeout(NOTICED_S_MAX):
        synced = await waits.receive(ApiKey.SYNC_GROUP, 5)
    assert (synced.error_code, synced.assignment) == (GROUP_DENIED, b"")


async def test_nothing_is_kept_of_calls_that_are_over(house: House) -> None:
    await house.topic()
    owner, alice = await house.broker.internal_client(MINE), await client_as(house.broker, MINE, "alice")
    for version in (3, FETCH_VERSION):
        await alice.call(ApiKey.FETCH, version, fetch_request("orders", max_wait_ms=30))
    await alice.send(ApiKey.FETCH, FETCH_VERSION, fetch_request("orders", max_wait_ms=WAIT_MS))
    await house.broker.until(lambda: waiting(house) == 1)
    await alice.close()
    await house.broker.until(lambda: waiting(house) == 0)
    await delete_acls(owner)


class Slow:
    """A waiting call whose check takes long; counts its checks."""

    def __init__(self) -> None:
        self.looked = 0

    def check_right(self) -> None:
        self.looked += 1
        ends_s = perf_counter() + 20e-6
        while perf_counter() < ends_s:
            pass


async def test_the_most_calls_there_can_be_are_looked_at_in_short_turns_and_paid_for() -> None:
    """Changes during the checks start them over, and do not pile up."""
    loop = asyncio.get_running_loop()
    spent_s: list[float] = []
    tasks: set[asyncio.Task[None]] = set()

    def spawn(work: Any) -> None:
        tasks.add(loop.create_task(work))

    calls = WaitingCalls(TurnQueue(loop), spawn, lambda _instance_id, spent: spent_s.append(spent))
    mine = [Slow() for _ in range(MANY)]
    foreign = Slow()
    for call in mine:
        calls.add(MINE, call)
    calls.add(THEIRS, foreign)
    image = ClusterImage("test")

    for _ in range(10):
        after = image.with_changes(ImageDelta(acls=image.acls.with_changes({(MINE, "n"): object()})))  # type: ignore[dict-item]
        calls.on_image(image, after)
        image = after
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)

    assert len(tasks) == 1
    assert foreign.looked == 0
    assert {call.looked for call in mine} <= {1, 2}
    # Some checks are delayed by other processes; most are not.
    assert sorted(spent_s)[len(spent_s) // 2] < 2 * TURN_S_MAX
    assert len(spent_s) >= MANY * 20e-6 / TURN_S_MAX / 2
