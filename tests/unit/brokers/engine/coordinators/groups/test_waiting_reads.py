"""OffsetFetch and DescribeGroups wait for the pending records of their own group, and for no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from brokers.engine.coordinators.groups.offsets import Commit
from brokers.engine.coordinators.groups.replies import DescribeReply
from brokers.engine.protocol.errors import ErrorCode
from tests.unit.brokers.engine.coordinators.fakes import Call
from tests.unit.brokers.engine.coordinators.groups.committing import (
    TOPIC,
    commit,
    commit_in_transaction,
    fetch,
    offset_of,
    put,
)
from tests.unit.brokers.engine.coordinators.groups.members import COMMIT_MS, GROUP, Member, Shard, complete

BUSY = "ins-bbbbbbbb.busy"
WANTED = [(TOPIC, [0])]


@pytest.fixture
def shard() -> Shard:
    """Return a shard where offset 5 of GROUP is committed; later appends stay uncommitted until the test replicates."""
    made = Shard()
    put(made, 0, 5)
    made.log.stops_committing()
    return made


def describe(shard: Shard, group: str = GROUP) -> Call:
    return shard.ask(lambda machine, now, _: machine.describe(group), group)


def sent(call: Call) -> int:
    (reply,) = call.replies
    ((_, (line,)),) = reply
    offset: int = line.offset
    return offset


def test_offsets_are_returned_while_another_group_commits(shard: Shard) -> None:
    assert commit(shard, Commit(TOPIC, 0, 1), group=BUSY).replies == []
    assert offset_of(shard) == 5


def test_offsets_are_not_returned_before_they_are_committed(shard: Shard) -> None:
    commit(shard, Commit(TOPIC, 0, 6))
    fetch_call = fetch(shard, WANTED)
    assert fetch_call.replies == []
    shard.log.replicate()
    assert sent(fetch_call) == 6


def test_an_unknown_group_is_answered_at_once(shard: Shard) -> None:
    commit(shard, Commit(TOPIC, 0, 1), group=BUSY)
    assert offset_of(shard, group="ins-aaaaaaaa.unknown") == -1


def test_offsets_that_were_deleted_are_gone_when_everybody_knows(shard: Shard) -> None:
    deleting = shard.ask(lambda machine, now, ticket: machine.removals.delete_group(now, GROUP, ticket))
    fetch_call, described = fetch(shard, WANTED), describe(shard)
    assert (deleting.replies, fetch_call.replies, described.replies) == ([], [], [])
    shard.log.replicate()
    assert deleting.replies == [0]
    assert sent(fetch_call) == -1
    assert described.replies == [DescribeReply(0, "Dead")]


def test_a_group_begun_again_does_not_tell_early_that_its_offsets_are_deleted(shard: Shard) -> None:
    shard.ask(lambda machine, now, ticket: machine.removals.delete_group(now, GROUP, ticket))
    Member(shard).join()
    fetch_call = fetch(shard, WANTED)
    assert fetch_call.replies == []
    shard.log.replicate()
    assert sent(fetch_call) == -1


def test_an_offset_of_a_transaction_is_returned_when_its_marker_is_committed(shard: Shard) -> None:
    commit_in_transaction(shard, Commit(TOPIC, 0, 9))
    shard.log.replicate()
    marker = shard.log.mark(7, True)
    shard.runtime.on_marker_appended(0, 7, True, marker)
    fetch_call = fetch(shard, WANTED)
    assert fetch_call.replies == []
    shard.log.replicate()
    assert sent(fetch_call) == 9


def test_a_read_that_waits_too_long_is_answered_with_coordinator_load_in_progress(shard: Shard) -> None:
    """Consumers treat a time-out of OffsetFetch or SyncGroup as fatal."""
    commit(shard, Commit(TOPIC, 0, 6))
    fetch_call = fetch(shard, WANTED)
    shard.advance(COMMIT_MS)
    assert fetch_call.replies == [("failed", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]


def test_an_offset_loaded_beyond_the_high_watermark_is_returned_when_it_is_committed(shard: Shard) -> None:
    commit(shard, Commit(TOPIC, 0, 6))
    put_elsewhere = commit(shard, Commit(TOPIC, 0, 1), group=BUSY)
    shard.reload()
    fetch_call = fetch(shard, WANTED)
    assert fetch_call.replies == []
    shard.log.replicate()
    assert sent(fetch_call) == 6
    assert put_elsewhere.replies == [("failed", 16)], "it waited for the coordinator before"


def test_members_are_described_while_the_group_commits() -> None:
    shard = Shard()
    member = Member(shard)
    complete(member)
    shard.log.stops_committing()
    commit(shard, Commit(TOPIC, 0, 6), member=member)
    (reply,) = describe(shard).replies
    assert reply.state == "Stable"


def test_an_assignment_is_repeated_while_offsets_are_committed() -> None:
    shard = Shard()
    member = Member(shard)
    complete(member)
    shard.log.stops_committing()
    commit(shard, Commit(TOPIC, 0, 6), member=member)
    (reply,) = member.sync().replies
    assert reply.error == 0


FORMER: Final[dict[str, Any]] = {"generation": 1, "member_id": "former", "instance": "one"}
# Requests whose error is fatal to a client, with that error: from a static member with a stale or wrong member id, or
# from another client.
REFUSED_FOR_GOOD: Final[dict[str, tuple[Callable[[Shard, Member], Call], ErrorCode]]] = {
    "heartbeat": (
        lambda shard, member: shard.ask(
            lambda machine, now, _: machine.heartbeat(now, GROUP, 1, "former", member.instance)
        ),
        ErrorCode.FENCED_INSTANCE_ID,
    ),
    "sync": (lambda _, member: member.sync(member_id="former"), ErrorCode.FENCED_INSTANCE_ID),
    "join": (lambda _, member: member.join(member_id="former"), ErrorCode.FENCED_INSTANCE_ID),
    "commit": (
        lambda shard, member: commit(shard, Commit(TOPIC, 0, 1), **FORMER),
        ErrorCode.FENCED_INSTANCE_ID,
    ),
    "commit in a transaction": (
        lambda shard, member: commit_in_transaction(shard, Commit(TOPIC, 0, 1), **FORMER),
        ErrorCode.FENCED_INSTANCE_ID,
    ),
    "another protocol": (
        lambda shard, _: Member(shard, protocols=[("other", b"")]).join(),
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    "no seat": (lambda shard, _: Member(shard).join(), ErrorCode.GROUP_MAX_SIZE_REACHED),
}


@pytest.mark.parametrize("request_", REFUSED_FOR_GOOD)
def test_a_fatal_error_comes_only_from_a_confirmed_coordinator(request_: str) -> None:
    """A deposed coordinator may not know the present members (decision 76)."""
    ask, expected = REFUSED_FOR_GOOD[request_]
    shard = Shard(members_max=1 if request_ == "no seat" else 9)
    member = Member(shard, instance="one")
    complete(member)
    shard.log.is_sole_in_sync_replica = False

    confirmed, deposed = ask(shard, member), ask(shard, member)
    assert confirmed.replies == deposed.replies == []
    first, second = shard.log.asking
    first.completed(0)
    second.completed(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    (reply,) = confirmed.replies
    code = reply[0] if isinstance(reply, list) else getattr(reply, "error", reply)
    assert code == expected
    assert deposed.replies == [("failed", ErrorCode.NOT_COORDINATOR)]


def test_an_error_that_makes_a_member_rejoin_is_answered_at_once() -> None:
    shard = Shard()
    member = Member(shard)
    complete(member)
    shard.log.is_sole_in_sync_replica = False

    assert member.heartbeat() == 0
    assert member.heartbeat(generation=9) == ErrorCode.ILLEGAL_GENERATION
    assert member.heartbeat(member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
