"""Clients that misuse their rack: a follower lets them read, meters and delays them as a leader does, and a neighbour
notices none of it (KIP-392).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median

import pytest

from brokers.contract.acls import AclOperation, Permission, ResourceType
from brokers.engine.handlers.fetch.async_fetch import SYNCHRONOUS_REQUEST_BYTES_MAX
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from brokers.engine.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from tests.testkit.records import batch, fetch, fetch_request, produce, values
from tests.testkit.rights import acl, client_as, create_acls
from tests.testkit.turns import count_turns
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.trio import running_trio
from tests.unit.brokers.engine.handlers.zones import MINE, TOPIC, ZONES, Zones, with_instance

THEIRS = "ins-bbbbbbbb"
LINE_BYTES = 33
# Enough partitions for a fetch that is read in turns.
MANY = SYNCHRONOUS_REQUEST_BYTES_MAX // LINE_BYTES + 1
# The longest string of the protocol.
RACK_BYTES_MAX = 2**15 - 1
TURNS_MIN = 3
HOSTILE_CONNECTIONS = 20
# Requests of each hostile connection that may be answered during one of the neighbour.
TURNS_OF_EACH_MAX = 2


@pytest.fixture
async def zones(tmp_path: Path) -> AsyncIterator[Zones]:
    """Followers stay in sync, however slow the machine is."""
    async with running_trio(tmp_path, ZONES, quota_burst_ms="-1", replica_lag_time_max_ms="60000") as trio:
        yield await with_instance(trio)


def fetch_of_all(topics: dict[str, int], rack: str) -> FetchRequest:
    """Returns a request for all partitions of `topics`, given with their numbers of partitions."""
    request = fetch_request("", rack=rack)
    request.topics = [
        FetchTopic(
            topic=name,
            topic_id=UUID_ZERO,
            partitions=[
                FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1_000) for index in range(count)
            ],
        )
        for name, count in topics.items()
    ]
    return request


async def test_a_follower_refuses_a_reader_whose_right_goes_while_it_waits(zones: Zones) -> None:
    await zones.topic(1, 2)
    await produce(zones.at[1], TOPIC, batch(b"a"), acks=-1)
    await zones.committed(2, 1)
    owner = await zones.trio.brokers[1].internal_client(MINE)
    alice = await client_as(zones.trio.brokers[2], MINE, "alice")
    assert values((await fetch(alice, TOPIC, rack="west")).records) == [b"a"]
    request = fetch_request(TOPIC, 1, rack="west", max_wait_ms=30_000)
    waiting = asyncio.create_task(alice.call(ApiKey.FETCH, 12, request))
    await zones.trio.until(lambda: len(zones.replica(2).delayed_operations) == 1)

    right = acl("User:alice", AclOperation.READ, ResourceType.TOPIC, TOPIC, permission=Permission.DENY)
    assert await create_acls(owner, right) == [0]

    denied = (await waiting).responses[0].partitions[0]
    assert (denied.error_code, denied.preferred_read_replica) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
    at_leader = await client_as(zones.trio.brokers[1], MINE, "alice")
    named = await fetch(at_leader, TOPIC, rack="west")
    assert (named.error_code, named.preferred_read_replica) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)


@pytest.mark.parametrize("limit", ["client", "topic"])
async def test_a_follower_delays_a_reader_over_a_limit_and_says_why(zones: Zones, limit: str) -> None:
    config = {"penstock_consume_byte_rate": "1000"} if limit == "topic" else {}
    await zones.topic(1, 2, **config)
    await produce(zones.at[1], TOPIC, batch(b"a" * 4_000), acks=-1)
    await zones.committed(2, 1)
    if limit == "client":
        await zones.trio.brokers[2].set_quota(MINE, {"consumer_byte_rate": "1000"}, client_id=None)
    assert (await fetch(zones.at[2], TOPIC, rack="west")).records

    delayed = await zones.at[2].call(ApiKey.FETCH, 12, fetch_request(TOPIC, rack="west"))

    assert delayed.throttle_time_ms > 1_000
    assert delayed.responses == []
    (entry,) = zones.services(2).accounting.accountings.get_or_create(MINE).ledger.as_json(0)
    assert entry["rule"]["quota"] == "consumer_byte_rate"
    assert not zones.services(1).accounting.accountings.get_or_create(MINE).ledger.as_json(0)


async def test_a_client_that_names_every_partition_is_sent_away_in_turns_and_leaves_nothing(zones: Zones) -> None:
    topics = {"a": MANY // 2, "b": MANY - MANY // 2}
    for name, partitions in topics.items():
        await zones.topic(1, 2, name=name, partitions=partitions)
    await produce(zones.at[1], "a", batch(b"first"), acks=-1)
    await zones.trio.until(lambda: zones.replica(2, "a").high_watermark == 1)
    pushes = zones.services(1).storage.high_watermark_pushes

    async with count_turns() as turns:
        for _ in range(3):
            before = turns()
            answer = await zones.at[1].call(ApiKey.FETCH, 12, fetch_of_all(topics, "west"))
            assert turns() - before >= TURNS_MIN
            lines = [line for topic in answer.responses for line in topic.partitions]
            assert [line.preferred_read_replica for line in lines] == [2] * MANY
            assert {line.records for line in lines} == {b""}
    assert len(pushes) == MANY

    read = await zones.at[2].call(ApiKey.FETCH, 12, fetch_of_all(topics, "west"))
    lines = [line for topic in read.responses for line in topic.partitions]
    assert {(line.error_code, line.preferred_read_replica) for line in lines} == {(0, -1)}
    assert [values(line.records) for line in lines if line.records] == [[b"first"]]

    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in topics], timeout_ms=30_000)
    deleted = await zones.at[1].call(ApiKey.DELETE_TOPICS, 6, request)
    assert {result.error_code for result in deleted.responses} == {0}
    await zones.trio.until(lambda: len(pushes) == 0)


@pytest.mark.parametrize("version", [11, 12])
async def test_a_rack_as_long_as_it_may_be_is_one_that_no_broker_has(zones: Zones, version: int) -> None:
    await zones.topic(1, 2)
    await produce(zones.at[1], TOPIC, batch(b"a"), acks=-1)
    await zones.committed(2, 1)
    for broker in (1, 2):
        for rack in ("w" * RACK_BYTES_MAX, "\u00e9" * (RACK_BYTES_MAX // 2)):
            answer = await fetch(zones.at[broker], TOPIC, rack=rack, version=version)
            assert (answer.preferred_read_replica, values(answer.records)) == (-1, [b"a"]), broker
    assert len(zones.services(1).storage.high_watermark_pushes) == 0


async def test_a_longer_rack_ends_the_connection(zones: Zones) -> None:
    """Versions from 12 on could name one; Kafka refuses it as well."""
    await zones.at[1].send(ApiKey.FETCH, 12, fetch_request(TOPIC, rack="w" * (RACK_BYTES_MAX + 1)))
    assert await zones.at[1].is_closed()


async def test_clients_that_change_their_rack_with_each_request_leave_a_neighbour_its_turns(zones: Zones) -> None:
    """Each connection has one request in flight, so between two of the neighbour's all others have about one each."""
    await zones.topic(1, 2, 3)
    await produce(zones.at[1], TOPIC, batch(b"a"), acks=-1)
    neighbour = await with_instance(zones.trio, THEIRS)
    await neighbour.topic(1, 2, 3)
    port = zones.trio.brokers[1].broker.current.image.instances[MINE].document.ports[1]
    named: list[int] = []
    is_over = False

    async def change_racks(client: WireClient) -> None:
        number = 0
        while not is_over:
            rack = ("west", "north", f"zone {number}")[number % 3]
            named.append((await fetch(client, TOPIC, rack=rack, max_wait_ms=30_000)).preferred_read_replica)
            number += 1

    clients = [await zones.trio.brokers[1].client(port) for _ in range(HOSTILE_CONNECTIONS)]
    hostile = [asyncio.create_task(change_racks(client)) for client in clients]
    between = []
    for number in range(50):
        begun = len(named)
        await produce(neighbour.at[1], TOPIC, batch(b"%d" % number))
        read = await neighbour.at[1].call(ApiKey.FETCH, 12, fetch_request(TOPIC, number))
        assert read.throttle_time_ms == 0
        between.append(len(named) - begun)
    is_over = True
    await asyncio.gather(*hostile)

    assert set(named) == {2, 3, -1}
    assert median(between) <= 2 * TURNS_OF_EACH_MAX * HOSTILE_CONNECTIONS
    assert len(zones.services(1).storage.high_watermark_pushes) == 2
