"""SyncGroup: assignments go out exactly as the leader gave them, once they are committed (GRP-12)."""

from __future__ import annotations

import pytest

from brokers.engine.coordinators.groups.formats import read_group_value
from brokers.engine.coordinators.groups.group import GroupState
from brokers.engine.coordinators.limits import GROUP_RECORD_BYTES_MAX
from tests.unit.brokers.engine.coordinators.fakes import Call
from tests.unit.brokers.engine.coordinators.groups.members import (
    COMMIT_MS,
    REBALANCE_MS,
    SESSION_MS,
    Member,
    Shard,
    complete,
    error,
    given,
)

STALE, INCONSISTENT, UNKNOWN, REBALANCING = 22, 23, 25, 27


def two_in_generation_2(shard: Shard) -> tuple[Member, Member]:
    """Return leader and follower of generation 2, joined and not synced."""
    leader, follower = Member(shard, session_timeout_ms=REBALANCE_MS * 3), Member(shard)
    complete(leader)
    join_reply = follower.join()
    leader.take(leader.join())
    follower.take(join_reply)
    return leader, follower


def test_followers_wait_for_the_leader_and_everybody_gets_what_it_gave() -> None:
    shard = Shard()
    leader, follower = two_in_generation_2(shard)
    waiting = follower.sync()
    assert waiting.replies == []

    own = leader.sync({leader.id: b"a", follower.id: b"b", "client-stranger": b"c"})

    assert (given(own), given(waiting)) == (b"a", b"b")
    assert shard.state is GroupState.STABLE


def test_a_member_that_syncs_after_the_leader_gets_its_own_assignment_as_well() -> None:
    shard = Shard()
    leader, follower = two_in_generation_2(shard)
    leader.sync({leader.id: b"a", follower.id: b"b"})

    (reply,) = follower.sync().replies

    assert (reply.assignment, reply.protocol_type, reply.protocol) == (b"b", "consumer", "range")


def test_a_member_the_leader_left_out_has_an_empty_assignment() -> None:
    shard = Shard()
    leader, follower = two_in_generation_2(shard)
    leader.sync({leader.id: b"a"})

    assert given(follower.sync()) == b""


def test_nobody_has_an_assignment_before_it_is_committed() -> None:
    shard = Shard(at_once=False)
    leader, follower = Member(shard), Member(shard)
    leader.take(leader.join())
    own = leader.sync({leader.id: b"a"})
    assert own.replies == []
    shard.log.replicate()
    assert given(own) == b"a"

    join_reply = follower.join()
    leader.take(leader.join())
    follower.take(join_reply)
    before, own = follower.sync(), leader.sync({leader.id: b"1", follower.id: b"2"})
    after = follower.sync()
    assert before.replies == own.replies == after.replies == []

    shard.log.replicate()

    assert [given(call) for call in (own, before, after)] == [b"1", b"2", b"2"]


def test_the_record_is_what_kafka_would_write() -> None:
    shard = Shard()
    leader, follower = two_in_generation_2(shard)
    leader.sync({leader.id: b"a", follower.id: b"b"})

    ((_, _, value),) = shard.log.batches[-1].records
    record = read_group_value(value or b"")

    assert (record.protocol_type, record.generation, record.protocol, record.leader) == (
        "consumer",
        2,
        "range",
        leader.id,
    )
    assert [(member.member_id, member.subscription, member.assignment) for member in record.members] == [
        (leader.id, b"r", b"a"),
        (follower.id, b"r", b"b"),
    ]


def test_an_assignment_that_cannot_be_written_down_goes_to_nobody_and_all_start_again() -> None:
    shard = Shard()
    leader, follower = two_in_generation_2(shard)
    waiting = follower.sync()
    shard.log.refuses = 19

    own = leader.sync({leader.id: b"a", follower.id: b"b"})

    assert [error(call) for call in (own, waiting)] == [15, 15]
    assert shard.state is GroupState.PREPARING
    assert follower.heartbeat() == REBALANCING


@pytest.mark.parametrize(("refused", "sent"), [(3, 15), (19, 15), (20, 15), (6, 16), (56, 16), (7, 27), (10, -1)])
def test_an_error_of_the_log_is_answered_with_kafkas_code(refused: int, sent: int) -> None:
    shard = Shard()
    leader, _ = two_in_generation_2(shard)
    shard.log.refuses = refused

    assert error(leader.sync({})) == sent


def test_a_commit_that_takes_too_long_sends_the_leader_back_to_join() -> None:
    shard = Shard(at_once=False)
    leader = Member(shard)
    leader.take(leader.join())
    call = leader.sync({leader.id: b"a"})

    shard.advance(COMMIT_MS)

    assert error(call) == REBALANCING


def test_an_assignment_that_is_too_long_for_a_record_is_refused() -> None:
    shard = Shard()
    leader, _ = two_in_generation_2(shard)
    written = len(shard.log.batches)

    assert error(leader.sync({leader.id: bytes(GROUP_RECORD_BYTES_MAX)})) == -1
    assert len(shard.log.batches) == written
    assert shard.state is GroupState.PREPARING


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"member_id": "client-x"}, UNKNOWN),
        ({"member_id": ""}, UNKNOWN),
        ({"generation": 1}, STALE),
        ({"generation": 3}, STALE),
        ({"protocol_type": "connect"}, INCONSISTENT),
        ({"protocol": "sticky"}, INCONSISTENT),
        ({"group_id": "ins-aaaaaaaa.other"}, UNKNOWN),
    ],
)
def test_a_member_of_another_generation_gets_nothing(changes: dict[str, object], code: int) -> None:
    shard = Shard()
    _, follower = two_in_generation_2(shard)

    assert error(follower.sync(**changes)) == code


def test_during_a_join_phase_there_is_nothing_to_sync() -> None:
    shard = Shard()
    first, second = Member(shard), Member(shard)
    complete(first, second)
    first.join()

    assert error(second.sync()) == REBALANCING


def test_a_member_that_does_not_sync_within_the_rebalance_timeout_is_removed() -> None:
    shard = Shard()
    leader, follower = Member(shard), Member(shard, session_timeout_ms=REBALANCE_MS * 3)
    complete(leader)
    join_reply = follower.join()
    leader.take(leader.join())
    follower.take(join_reply)
    leader.sync({leader.id: b"a", follower.id: b"b"})
    _heartbeat_until(shard, leader, REBALANCE_MS)

    assert leader.heartbeat() == REBALANCING
    assert follower.heartbeat() == UNKNOWN


def test_a_leader_that_never_syncs_is_out_and_those_who_waited_start_again() -> None:
    shard = Shard()
    leader, follower = two_in_generation_2(shard)
    waiting = follower.sync()

    shard.advance(REBALANCE_MS)

    assert error(waiting) == REBALANCING
    assert list(shard.group().members) == [follower.id]
    assert shard.group().leader == follower.id
    assert leader.heartbeat() == UNKNOWN


def test_a_member_that_waits_for_its_assignment_does_not_lose_its_session() -> None:
    shard = Shard()
    leader, follower = two_in_generation_2(shard)
    waiting = follower.sync()
    shard.advance(SESSION_MS * 3)

    leader.sync({follower.id: b"b"})

    assert given(waiting) == b"b"
    shard.advance(SESSION_MS - 1_000)
    assert leader.heartbeat() == 0
    shard.advance(1_000)
    # Its session starts again with the answer.
    assert follower.heartbeat() == UNKNOWN


def test_a_sync_that_is_repeated_while_it_waits_is_answered_once_for_each() -> None:
    shard = Shard()
    leader, follower = two_in_generation_2(shard)
    first = follower.sync()
    second = follower.sync()
    assert error(first) == REBALANCING

    leader.sync({follower.id: b"b"})

    assert given(second) == b"b"


def test_a_member_that_leaves_while_it_waits_for_its_assignment_is_answered() -> None:
    shard = Shard()
    _, follower = two_in_generation_2(shard)
    waiting: Call = follower.sync()

    follower.leave()

    assert error(waiting) == UNKNOWN


def _heartbeat_until(shard: Shard, member: Member, for_ms: int) -> None:
    until_ms = shard.loop.now_ms + for_ms
    while shard.loop.now_ms < until_ms:
        member.heartbeat()
        shard.advance(SESSION_MS // 2)


def test_an_assignment_is_the_members_own_affair() -> None:
    """GRP-16: the broker does not judge assignments, not even one partition given twice; a client that is no member
    gets nothing.
    """
    shard = Shard()
    first, second = Member(shard), Member(shard)
    complete(first, second)
    calls = {first: first.join(), second: second.join()}
    for member, call in calls.items():
        member.take(call)
    garbage = bytes(range(256))

    waiting = second.sync()
    leading = first.sync({first.id: garbage, second.id: garbage, "nobody": b"x"})

    assert given(leading) == given(waiting) == garbage
    shard.reload()
    assert [given(member.sync()) for member in (first, second)] == [garbage, garbage]
    assert set(shard.group().members) == {first.id, second.id}
