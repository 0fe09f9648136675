"""Three brokers in three zones in the test's event loop: clients with a rack read from the replica in it (KIP-392,
WIRE-32), whatever they claim, ignore or ask for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from brokers.engine.partitions.high_watermark_push import PUSH_DURATION_MS
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.cluster import DescribeClusterRequest
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from brokers.engine.replication.fetcher import WAIT_MS
from tests.testkit.records import batch, fetch, fetch_request, produce, values
from tests.unit.brokers.engine.handlers.trio import IDS, running_trio
from tests.unit.brokers.engine.handlers.zones import MINE, TOPIC, ZONES, Zones, with_instance
from tests.unit.brokers.engine.partitions.transactional import end, write

LONG_MS = 30_000


@pytest.fixture
async def zones(tmp_path: Path) -> AsyncIterator[Zones]:
    async with running_trio(tmp_path, ZONES) as trio:
        yield await with_instance(trio)


# --- whom the leader names --------------------------------------------------------------------------------------------


async def test_tenants_see_the_zones_of_their_brokers(zones: Zones) -> None:
    described = await zones.at[2].call(ApiKey.DESCRIBE_CLUSTER, 1, DescribeClusterRequest())
    assert {broker.broker_id: broker.rack for broker in described.brokers} == ZONES
    shown = await zones.at[1].call(ApiKey.METADATA, 12, MetadataRequest(topics=[MetadataRequestTopic(name="x")]))
    assert {broker.node_id: broker.rack for broker in shown.brokers} == ZONES


@pytest.mark.parametrize("version", [11, 12, 17])
async def test_the_leader_names_the_replica_in_the_clients_zone_and_sends_nothing(zones: Zones, version: int) -> None:
    topic_id = await zones.topic(1, 2, 3)
    await produce(zones.at[1], TOPIC, batch(b"a"), acks=-1)
    named: dict[str, Any] = {"version": version, "topic_id": topic_id}

    for zone, wanted in (("east", -1), ("west", 2), ("north", 3), ("elsewhere", -1), ("", -1)):
        answer = await fetch(zones.at[1], TOPIC, rack=zone, max_wait_ms=LONG_MS, **named)
        assert (answer.preferred_read_replica, answer.high_watermark) == (wanted, 1), zone
        assert values(answer.records) == ([b"a"] if wanted == -1 else []), zone
    await zones.committed(2, 1)
    read = await fetch(zones.at[2], TOPIC, rack="west", **named)
    assert (read.preferred_read_replica, values(read.records), read.high_watermark) == (-1, [b"a"], 1)


async def test_a_client_that_has_read_further_than_a_follower_stays_with_the_leader(zones: Zones) -> None:
    """Nothing that is committed lacks on an in-sync replica; only what is not yet may."""
    await zones.topic(1, 2)
    zones.trio.stop_following(2)
    await produce(zones.at[1], TOPIC, batch(b"a"), acks=1)
    assert zones.replica(1).isr == (1, 2)
    assert (await fetch(zones.at[1], TOPIC, rack="west")).preferred_read_replica == 2
    ahead = await fetch(zones.at[1], TOPIC, 1, rack="west")
    assert (ahead.error_code, ahead.preferred_read_replica, ahead.records) == (0, -1, b"")


async def test_errors_come_before_the_preference(zones: Zones) -> None:
    await zones.topic(1, 2)
    for change, code in (
        ({"offset": 9}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"leader_epoch": 9}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"leader_epoch": 0, "partition": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        for broker in (1, 2):
            answer = await fetch(zones.at[broker], TOPIC, rack="west", **change)
            assert (answer.error_code, answer.preferred_read_replica) == (code, -1), (broker, change)


# --- followers --------------------------------------------------------------------------------------------------------


async def test_a_follower_serves_what_is_committed_and_nothing_else(zones: Zones) -> None:
    await zones.topic(1, 2, 3)
    zones.trio.stop_following(3)
    await produce(zones.at[1], TOPIC, batch(b"a"), acks=1)
    await zones.trio.until(lambda: zones.replica(2).log_end_offset == 1)

    read = await fetch(zones.at[2], TOPIC, rack="west")
    assert (read.error_code, read.high_watermark, read.records) == (0, 0, b""), "broker 3 is in sync and has it not"
    at_its_end = await fetch(zones.at[2], TOPIC, 1, rack="west")
    assert (at_its_end.error_code, at_its_end.records) == (0, b"")
    assert (await fetch(zones.at[2], TOPIC, 2, rack="west")).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    await zones.trio.until(lambda: zones.replica(1).isr == (1, 2))
    await zones.committed(2, 1)
    assert values((await fetch(zones.at[2], TOPIC, rack="west")).records) == [b"a"]


async def test_only_clients_with_a_rack_are_served_by_followers(zones: Zones) -> None:
    await zones.topic(1, 2)
    await produce(zones.at[1], TOPIC, batch(b"a"), acks=-1)
    await zones.committed(2, 1)
    assert (await fetch(zones.at[2], TOPIC)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    older = await fetch(zones.at[2], TOPIC, version=10)
    assert older.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_broker_without_a_replica_refuses_whatever_rack_is_claimed(zones: Zones) -> None:
    topic_id = await zones.topic(1, 2)
    await produce(zones.at[1], TOPIC, batch(b"a"), acks=-1)
    for rack in ("north", "west"):
        refused = await fetch(zones.at[3], TOPIC, rack=rack, version=17, topic_id=topic_id)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refused.current_leader.leader_id == 1


async def test_a_client_may_read_from_a_follower_whose_rack_it_only_claims(zones: Zones) -> None:
    """It gets what any client gets there, and the leader sends it there as often as it asks."""
    await zones.topic(1, 2)
    await produce(zones.at[1], TOPIC, batch(b"a"), acks=-1)
    await zones.committed(2, 1)
    for _ in range(3):
        assert (await fetch(zones.at[1], TOPIC, rack="west")).preferred_read_replica == 2
        assert values((await fetch(zones.at[2], TOPIC, rack="east")).records) == [b"a"]
    assert len(zones.services(1).storage.high_watermark_pushes) == 1


async def test_a_client_that_ignores_the_preference_gets_no_records_and_pays_none(zones: Zones) -> None:
    await zones.topic(1, 2)
    await produce(zones.at[1], TOPIC, batch(b"a" * 1_000), acks=-1)
    for _ in range(100):
        assert (await fetch(zones.at[1], TOPIC, rack="west", max_wait_ms=LONG_MS)).records == b""
    assert zones.services(1).accounting.totals.consume_bytes == 0
    assert len(zones.services(1).storage.high_watermark_pushes) == 1


async def test_records_that_a_follower_sends_are_metered_and_limited_there(zones: Zones) -> None:
    await zones.topic(1, 2)
    records = batch(b"a" * 1_000)
    await produce(zones.at[1], TOPIC, records, acks=-1)
    await zones.committed(2, 1)
    await fetch(zones.at[2], TOPIC, rack="west")
    services = zones.services(2)
    await zones.trio.until(lambda: services.accounting.totals.consume_bytes == len(records))
    accounting = services.accounting.accountings.get_or_create(MINE)
    (usage,) = [counter for counter in accounting.usage.counters() if counter.key[3] == "consume"]
    assert usage.bytes == len(records)
    assert accounting.shares.consume.admitted_bytes >= len(records)
    assert zones.services(1).accounting.totals.consume_bytes == 0


async def test_read_committed_ends_at_the_open_transaction_of_a_follower_too(zones: Zones) -> None:
    await zones.topic(1, 2)
    leader = zones.replica(1)
    await produce(zones.at[1], TOPIC, batch(b"a"), acks=-1)
    write(leader, 7, 0, b"open")
    await zones.committed(2, 2)
    read = await fetch(zones.at[2], TOPIC, rack="west", isolation=1)
    assert (values(read.records), read.high_watermark, read.last_stable_offset) == ([b"a"], 2, 1)
    assert values((await fetch(zones.at[2], TOPIC, 1, rack="west")).records) == [b"open"]

    end(leader, 7, committed=False)
    await zones.committed(2, 3)
    read = await fetch(zones.at[2], TOPIC, 1, rack="west", isolation=1)
    assert read.last_stable_offset == 3
    assert [(listed.producer_id, listed.first_offset) for listed in read.aborted_transactions] == [(7, 1)]


# --- soon enough, and back --------------------------------------------------------------------------------------------


async def test_a_reader_that_waits_at_a_follower_has_records_as_soon_as_they_are_committed(zones: Zones) -> None:
    """Followers otherwise learn of the high watermark within the time that their fetches wait."""
    await zones.topic(1, 2, 3)
    assert (await fetch(zones.at[1], TOPIC, rack="west")).preferred_read_replica == 2
    took_s = []
    for number in range(9):
        request = fetch_request(TOPIC, number, rack="west", max_wait_ms=LONG_MS)
        waiting = asyncio.create_task(zones.at[2].call(ApiKey.FETCH, 12, request))
        waits = zones.replica(2).delayed_operations
        await zones.trio.until(lambda waits=waits: len(waits) == 1)
        await produce(zones.at[1], TOPIC, batch(b"%d" % number), acks=-1)
        began_s = time.monotonic()
        answer = await waiting
        took_s.append(time.monotonic() - began_s)
        assert values(answer.responses[0].partitions[0].records) == [b"%d" % number]
    assert median(took_s) < WAIT_MS / 1000 / 5, took_s


async def test_high_watermarks_are_pushed_only_while_clients_read_from_followers(zones: Zones) -> None:
    await zones.topic(1, 2)
    pushes = zones.services(1).storage.high_watermark_pushes
    await produce(zones.at[1], TOPIC, batch(b"a"), acks=-1)
    assert len(pushes) == 0
    await fetch(zones.at[1], TOPIC, rack="west")
    (push,) = zones.replica(1).delayed_operations
    assert push.until_ms > PUSH_DURATION_MS
    push.until_ms = 0  # as if nobody had been sent there for long
    await produce(zones.at[1], TOPIC, batch(b"b"), acks=-1)
    await zones.trio.until(lambda: len(pushes) == 0)
    assert not zones.replica(1).delayed_operations


async def test_a_follower_that_fell_out_of_sync_sends_its_readers_back(zones: Zones) -> None:
    await zones.topic(1, 2, 3)
    await produce(zones.at[1], TOPIC, batch(b"a"), acks=-1)
    await zones.committed(2, 1)
    request = fetch_request(TOPIC, 1, rack="west", max_wait_ms=LONG_MS)
    waiting = asyncio.create_task(zones.at[2].call(ApiKey.FETCH, 12, request))
    await zones.trio.until(lambda: len(zones.replica(2).delayed_operations) == 1)

    zones.trio.stop_following(2)
    await produce(zones.at[1], TOPIC, batch(b"b"), acks=1)

    answer = (await waiting).responses[0].partitions[0]
    assert (answer.error_code, answer.preferred_read_replica, answer.records) == (0, 1, b"")
    assert 2 not in zones.replica(2).isr
    back = await fetch(zones.at[1], TOPIC, 1, rack="west")
    assert (back.preferred_read_replica, values(back.records)) == (-1, [b"b"])


async def test_a_follower_that_does_not_reach_its_leader_sends_its_readers_back(zones: Zones) -> None:
    await zones.topic(1, 2)
    await produce(zones.at[1], TOPIC, batch(b"a"), acks=-1)
    await zones.committed(2, 1)
    fetcher = zones.trio.brokers[2].broker.replication.fetchers._fetcher_by_leader[1]
    fetcher.error = "no answer for 10000 ms"
    assert (await fetch(zones.at[2], TOPIC, rack="west")).preferred_read_replica == 1


# --- where nobody reads from followers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("racks", "overrides", "changes"),
    [
        (dict.fromkeys(IDS, "only"), {}, {}),
        (None, {}, {}),
        (ZONES, {"replica_selector_class": "org.apache.kafka.common.replica.LeaderSelector"}, {}),
        (ZONES, {}, {"bandwidth_policy": "static"}),
    ],
    ids=["one zone", "no zones", "LeaderSelector", "static bandwidth"],
)
async def test_without_zones_or_a_selector_clients_read_from_the_leader(
    tmp_path: Path, racks: dict[int, str] | None, overrides: dict[str, str], changes: dict[str, Any]
) -> None:
    async with running_trio(tmp_path, racks, **overrides) as trio:
        zones = await with_instance(trio, **changes)
        await zones.topic(1, 2)
        await produce(zones.at[1], TOPIC, batch(b"a"), acks=-1)
        rack = "west" if racks is ZONES else "only"
        answer = await fetch(zones.at[1], TOPIC, rack=rack)
        assert (answer.preferred_read_replica, values(answer.records)) == (-1, [b"a"])
        assert (await fetch(zones.at[2], TOPIC, rack=rack)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
