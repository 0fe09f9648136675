"""Three brokers in the test's event loop: responses to clients and followers when a partition has three replicas
(REP-7, REP-10, REP-12, REP-13, WIRE-27, WIRE-30, LOG-46).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from brokers.contract.process import CLUSTER_USER
from brokers.engine.partitions.delayed_operations import DelayedDeletion
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from brokers.engine.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from brokers.engine.storage.files import StorageFailed
from tests.testkit.records import batch, fetch, produce, values
from tests.unit.brokers.engine.handlers.trio import IDS, VERSION, Trio, follower_fetch, running_trio


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[Trio]:
    async with running_trio(tmp_path) as running:
        yield running


async def test_acks_all_is_answered_when_every_replica_in_sync_has_it(trio: Trio) -> None:
    await trio.topic(min_insync_replicas="3")
    client = trio.clients[trio.leader()]

    answer = await produce(client, "orders", batch(b"a"), acks=-1)

    assert (answer.error_code, answer.base_offset) == (0, 0)
    for id in IDS:
        assert trio.replica("orders", id).log_end_offset == 1
    assert values((await fetch(client, "orders")).records) == [b"a"]


async def test_only_the_leader_serves_clients(trio: Trio) -> None:
    await trio.topic()
    await produce(trio.clients[trio.leader()], "orders", batch(b"a"), acks=-1)

    for id in trio.followers():
        assert (await fetch(trio.clients[id], "orders")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        refused = await produce(trio.clients[id], "orders", batch(b"b"))
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_consumers_see_nothing_that_is_not_committed(trio: Trio) -> None:
    """Followers see it at once, and get the high watermark in a later response (REP-3)."""
    topic_id = await trio.topic()
    for id in trio.followers():
        trio.stop_following(id)
    client = trio.clients[trio.leader()]
    await produce(client, "orders", batch(b"a"), acks=1)

    seen = await fetch(client, "orders")
    assert (seen.error_code, seen.high_watermark, seen.records) == (0, 0, b"")
    first, second = trio.followers()
    answer = await trio.ask(client, topic_id, replica=first)
    line = answer.responses[0].partitions[0]
    assert (line.high_watermark, values(line.records)) == (0, [b"a"])
    for id in (first, second):
        await trio.ask(client, topic_id, 1, replica=id, last_fetched_epoch=0)
    assert (await fetch(client, "orders")).high_watermark == 1


async def test_too_few_replicas_in_sync_after_the_append_have_an_error_of_their_own(trio: Trio) -> None:
    """The record is stored, but on fewer replicas than required (REP-12, REP-22)."""
    await trio.topic(min_insync_replicas="3")
    for id in trio.followers()[1:]:
        trio.stop_following(id)

    answer = await produce(trio.clients[trio.leader()], "orders", batch(b"a"), acks=-1)

    # If no follower fetched in time, the client's timeout expires before the lagging follower is removed.
    late = (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)
    assert answer.error_code in late
    leader = trio.replica("orders", trio.leader())
    await trio.until(lambda: len(leader.isr) == 2)
    refused = await produce(trio.clients[trio.leader()], "orders", batch(b"b"), acks=-1)
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await fetch(trio.clients[trio.leader()], "orders")).high_watermark == 1


async def test_a_session_tells_only_what_moved(trio: Trio) -> None:
    """WIRE-30."""
    topic_id = await trio.topic()
    for id in trio.followers():
        trio.stop_following(id)
    client, replica = trio.clients[trio.leader()], trio.followers()[0]

    opened = await trio.ask(client, topic_id, replica=replica)
    assert opened.session_id != 0
    known = {"replica": replica, "session_id": opened.session_id}
    assert (await trio.ask(client, topic_id, lines=False, session_epoch=1, **known)).responses == []
    await produce(client, "orders", batch(b"a"), acks=1)
    sent = await trio.ask(client, topic_id, lines=False, session_epoch=2, **known)
    assert values(sent.responses[0].partitions[0].records) == [b"a"]
    assert (await trio.ask(client, topic_id, lines=False, session_epoch=3, **known)).responses == []
    wrong = await trio.ask(client, topic_id, lines=False, session_epoch=9, **known)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    known["session_id"] += 1
    unknown = await trio.ask(client, topic_id, lines=False, session_epoch=4, **known)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_follower_that_waits_is_answered_by_an_append(trio: Trio) -> None:
    """WIRE-27."""
    topic_id = await trio.topic()
    for id in trio.followers():
        trio.stop_following(id)
    leader, replica = trio.leader(), trio.followers()[0]
    follower = await trio.brokers[leader].internal_client(CLUSTER_USER)
    session_id = (await trio.ask(follower, topic_id, replica=replica)).session_id
    waiting = asyncio.create_task(
        trio.ask(follower, topic_id, lines=False, session_id=session_id, session_epoch=1, replica=replica,
            max_wait_ms=60_000)
    )  # fmt: skip
    await trio.until(lambda: trio.brokers[leader].broker.services.storage.followers[replica].epoch == 2)

    await produce(trio.clients[leader], "orders", batch(b"a"), acks=1)

    assert values((await waiting).responses[0].partitions[0].records) == [b"a"]


async def test_a_follower_that_sends_more_is_not_kept_waiting(trio: Trio) -> None:
    topic_id = await trio.topic()
    for id in trio.followers():
        trio.stop_following(id)
    leader, replica = trio.leader(), trio.followers()[0]
    follower = await trio.brokers[leader].internal_client(CLUSTER_USER)
    session_id = (await trio.ask(follower, topic_id, replica=replica)).session_id
    known = {"replica": replica, "session_id": session_id, "lines": False}
    await follower.send(ApiKey.FETCH, VERSION, follower_fetch(topic_id, session_epoch=1, max_wait_ms=60_000, **known))
    await trio.until(lambda: trio.brokers[leader].broker.services.storage.followers[replica].epoch == 2)

    await follower.send(ApiKey.FETCH, VERSION, follower_fetch(topic_id, session_epoch=2, **known))

    for _ in range(2):
        assert (await follower.receive(ApiKey.FETCH, VERSION)).error_code == 0


async def test_a_follower_whose_next_request_came_with_the_waiting_one_is_not_kept_waiting(trio: Trio) -> None:
    topic_id = await trio.topic()
    for id in trio.followers():
        trio.stop_following(id)
    leader, replica = trio.leader(), trio.followers()[0]
    follower = await trio.brokers[leader].internal_client(CLUSTER_USER)
    session_id = (await trio.ask(follower, topic_id, replica=replica)).session_id
    known = {"replica": replica, "session_id": session_id, "lines": False}
    waiting = follower.frame(
        ApiKey.FETCH, VERSION, follower_fetch(topic_id, session_epoch=1, max_wait_ms=60_000, **known)
    )
    following = follower.frame(ApiKey.FETCH, VERSION, follower_fetch(topic_id, session_epoch=2, **known))

    await follower.send_raw(waiting + following)

    for _ in range(2):
        assert (await follower.receive(ApiKey.FETCH, VERSION)).error_code == 0


async def test_only_the_cluster_itself_may_fetch_as_a_follower(trio: Trio) -> None:
    topic_id = await trio.topic()
    tenant = await trio.brokers[1].internal_client("ins-aaaaaaaa")

    answer = await trio.ask(tenant, topic_id, replica=2)

    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


async def test_a_follower_that_cannot_be_served_gets_the_reason(trio: Trio) -> None:
    """REP-10, LOG-32, WIRE-31."""
    topic_id = await trio.topic()
    cases: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"leader_epoch": 7}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"offset": 5}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"topic_id": b"?" * 16}, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    for change, error in cases:
        wanted = {"topic_id": topic_id, "replica": trio.followers()[0], **change}

        answer = await trio.ask(trio.clients[trio.leader()], **wanted)

        assert answer.responses[0].partitions[0].error_code == error, change


async def test_a_broker_without_a_replica_is_refused_as_a_follower(trio: Trio) -> None:
    """The metadata of one of the two is outdated; an unregistered broker is rejected as a whole (REP-10)."""
    topic_id = await trio.topic(replicas=2)
    leader = trio.leader()
    client = trio.clients[leader]
    (stranger,) = set(IDS) - set(trio.brokers[leader].broker.current.image.topics["orders"].partitions[0].replicas)
    cases = {0: ErrorCode.UNKNOWN_LEADER_EPOCH, -1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    for leader_epoch, error in cases.items():
        answer = await trio.ask(client, topic_id, replica=stranger, leader_epoch=leader_epoch)
        assert answer.responses[0].partitions[0].error_code == error
    unregistered = await trio.ask(client, topic_id, replica=9, replica_epoch=trio.epoch(stranger))
    assert unregistered.error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_a_follower_learns_where_its_log_diverges_from_the_leaders(trio: Trio) -> None:
    """REP-15."""
    topic_id = await trio.topic()
    client, replica = trio.clients[trio.leader()], trio.followers()[0]
    await produce(client, "orders", batch(b"a"), acks=-1)
    trio.stop_following(replica)

    answer = await trio.ask(client, topic_id, 4, replica=replica, last_fetched_epoch=0)

    line = answer.responses[0].partitions[0]
    assert (line.error_code, line.diverging_epoch.epoch, line.diverging_epoch.end_offset) == (0, 0, 1)


async def test_a_follower_that_went_back_learns_the_committed_offset(trio: Trio) -> None:
    """A follower ignores the rest of a response that makes it truncate (REP-7)."""
    topic_id = await trio.topic()
    client, replica = trio.clients[trio.leader()], trio.followers()[0]
    await produce(client, "orders", batch(b"a"), acks=-1)
    trio.stop_following(replica)
    sent_back = await trio.ask(client, topic_id, 4, replica=replica, last_fetched_epoch=0)

    known = {"session_id": sent_back.session_id, "session_epoch": 1}
    answer = await trio.ask(client, topic_id, 1, replica=replica, last_fetched_epoch=0, **known)

    assert [line.high_watermark for topic in answer.responses for line in topic.partitions] == [1]


async def test_deleted_records_are_gone_everywhere_before_it_is_said(trio: Trio) -> None:
    """LOG-46."""
    await trio.topic()
    client = trio.clients[trio.leader()]
    for value in (b"a", b"b", b"c"):
        await produce(client, "orders", batch(value), acks=-1)

    answer = await client.call(ApiKey.DELETE_RECORDS, 2, deletion(2, timeout_ms=10_000))

    line = answer.topics[0].partitions[0]
    assert (line.error_code, line.low_watermark) == (0, 2)
    assert [trio.replica("orders", id).log_start_offset for id in IDS] == [2, 2, 2]


async def test_a_deletion_that_a_follower_does_not_hear_of_runs_out_of_time(trio: Trio) -> None:
    await trio.topic()
    client = trio.clients[trio.leader()]
    await produce(client, "orders", batch(b"a"), acks=-1)
    trio.stop_following(trio.followers()[0])

    answer = await client.call(ApiKey.DELETE_RECORDS, 2, deletion(1, timeout_ms=50))

    line = answer.topics[0].partitions[0]
    assert (line.error_code, line.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)


async def test_a_disk_that_fails_while_followers_are_waited_for_is_reported(trio: Trio) -> None:
    """A former leader does not know what other replicas have (LOG-46; seed 20147 of the simulator)."""
    await trio.topic()
    client = trio.clients[trio.leader()]
    await produce(client, "orders", batch(b"a", b"b"), acks=-1)
    for id in trio.followers():
        trio.stop_following(id)
    leader = trio.replica("orders", trio.leader())

    asked = asyncio.create_task(client.call(ApiKey.DELETE_RECORDS, 2, deletion(1, 60_000)))
    await trio.until(lambda: any(isinstance(wait, DelayedDeletion) for wait in leader.delayed_operations))
    leader.on_storage_failure(StorageFailed(leader.log.root, OSError(5, "Input/output error")))
    line = (await asked).topics[0].partitions[0]

    assert (line.error_code, line.low_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


def deletion(offset: int, timeout_ms: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="orders", partitions=[partition])], timeout_ms=timeout_ms
    )


async def test_followers_see_the_logs_end_and_consumers_the_committed_one(trio: Trio) -> None:
    """REP-9, LOG-25."""
    await trio.topic()
    for id in trio.followers():
        trio.stop_following(id)
    client = trio.clients[trio.leader()]
    await produce(client, "orders", batch(b"a"), acks=1)

    async def latest(replica: int) -> int:
        line = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=-1)
        topics = [ListOffsetsTopic(name="orders", partitions=[line])]
        request = ListOffsetsRequest(replica_id=replica, isolation_level=0, topics=topics)
        answer = await client.call(ApiKey.LIST_OFFSETS, 7, request)
        return int(answer.topics[0].partitions[0].offset)

    assert await latest(trio.followers()[0]) == 1
    assert await latest(-1) == 0


async def test_a_leader_on_a_failed_disk_gives_the_lead_away(trio: Trio) -> None:
    """The other replicas have everything that was acknowledged (LOG-3)."""
    await trio.topic()
    first = trio.leader()
    assert (await produce(trio.clients[first], "orders", batch(b"a"), acks=-1)).error_code == 0
    leader = trio.replica("orders", first)

    leader.report_disk_failure(OSError(5, "Input/output error"))

    await trio.until(lambda: trio.leader() != first)
    await trio.until(lambda: trio.replica("orders", trio.leader()).is_leader)
    answer = await produce(trio.clients[trio.leader()], "orders", batch(b"b"), acks=-1)
    assert (answer.error_code, answer.base_offset) == (0, 1)


async def test_a_throttled_replica_is_copied_slowly_until_it_is_in_sync(trio: Trio) -> None:
    """The follower gets empty responses, and more when the throttle allows it (QUO-60 to QUO-62)."""
    topic_id = await trio.topic(leader_replication_throttled_replicas="*")
    leader, replica = trio.leader(), trio.followers()[0]
    services = trio.brokers[leader].broker.services
    services.storage.replication_throttle.limit_bytes_per_s = 100
    trio.stop_following(replica)
    client = trio.clients[leader]
    for _ in range(3):
        await produce(client, "orders", batch(b"v" * 200), acks=1)
    await trio.until(lambda: replica not in trio.replica("orders", leader).isr)

    opened = await trio.ask(client, topic_id, replica=replica)
    again = await trio.ask(
        client, topic_id, 1, replica=replica, last_fetched_epoch=0, session_id=opened.session_id, session_epoch=1
    )

    assert len(values(opened.responses[0].partitions[0].records)) == 1, "a batch at a time"
    await produce(client, "orders", batch(b"more"), acks=1)
    held_back = await trio.ask(
        client, topic_id, lines=False, replica=replica, session_id=opened.session_id, session_epoch=2
    )
    assert again.error_code == held_back.error_code == 0
    assert [line.records for topic in held_back.responses for line in topic.partitions if line.records] == []


async def test_nothing_is_committed_while_too_few_are_in_sync_if_operators_want_it_so(tmp_path: Path) -> None:
    """DEC-11: as in Kafka from 3.7 on."""
    async with running_trio(tmp_path, hw_advance_under_min_isr="false") as trio:
        await trio.topic(min_insync_replicas="3")
        leader = trio.leader()
        late = trio.followers()[1]
        await produce(trio.clients[leader], "orders", batch(b"a"), acks=-1)
        trio.stop_following(late)
        await trio.until(lambda: len(trio.replica("orders", leader).isr) == 3)
        await produce(trio.clients[leader], "orders", batch(b"b"), acks=1)
        await trio.until(lambda: len(trio.replica("orders", leader).isr) == 2)
        await produce(trio.clients[leader], "orders", batch(b"c"), acks=1)
        other = trio.followers()[0]
        await trio.until(lambda: trio.replica("orders", other).log_end_offset == 3)
        assert (await fetch(trio.clients[leader], "orders")).high_watermark == 1

        for broker in trio.brokers.values():
            broker.broker.table.set_keeps_min_isr(False)
        await trio.until(lambda: trio.replica("orders", leader).high_watermark == 3)
        assert values((await fetch(trio.clients[leader], "orders")).records) == [b"a", b"b", b"c"]
