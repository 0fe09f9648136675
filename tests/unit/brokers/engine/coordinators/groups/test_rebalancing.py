"""The join phase: its start, its duration and the members at its end (GRP-8 to GRP-11, GRP-17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from brokers.engine.coordinators.groups.formats import read_group_value
from brokers.engine.coordinators.groups.group import GroupState
from tests.unit.brokers.engine.coordinators.groups.members import (
    REBALANCE_MS,
    SESSION_MS,
    Member,
    Shard,
    complete,
    error,
)

DELAY_MS = 3_000
UNKNOWN, REBALANCING = 25, 27


def test_a_new_group_waits_for_others_before_its_first_generation() -> None:
    shard = Shard(initial_rebalance_delay_ms=DELAY_MS)
    first, second = Member(shard), Member(shard)
    first_join = first.join()
    shard.loop.advance(DELAY_MS - 100)
    second_join = second.join()
    assert first_join.replies == []

    shard.advance(100)
    # A member joined meanwhile, which extends the phase.
    assert first_join.replies == []

    shard.advance(DELAY_MS)
    assert first.take(first_join).generation == second.take(second_join).generation == 1


def test_a_new_group_that_nobody_else_joins_begins_after_the_delay() -> None:
    shard = Shard(initial_rebalance_delay_ms=DELAY_MS)
    member = Member(shard)
    call = member.join()

    shard.loop.advance(DELAY_MS - 1)
    assert call.replies == []
    shard.advance(1)

    assert member.take(call).generation == 1


def test_newcomers_put_a_first_generation_off_until_the_rebalance_timeout_at_most() -> None:
    shard = Shard(initial_rebalance_delay_ms=DELAY_MS)
    calls = [Member(shard, rebalance_timeout_ms=4 * DELAY_MS).join()]
    for _ in range(5):
        shard.advance(DELAY_MS - 200)
        calls.append(Member(shard, rebalance_timeout_ms=4 * DELAY_MS).join())

    assert shard.loop.now_ms < 5 * DELAY_MS
    assert {reply.generation for call in calls for reply in call.replies} == {1}


def test_a_rebalance_ends_when_everybody_has_joined_again() -> None:
    shard = Shard(initial_rebalance_delay_ms=0)
    first, second, third = Member(shard), Member(shard), Member(shard)
    complete(first, second)
    newcomer = third.join()
    again = first.join()
    assert newcomer.replies == again.replies == []

    last = second.join()

    generations = {member.take(call).generation for member, call in ((first, again), (second, last), (third, newcomer))}
    assert generations == {3}
    assert [member.leads for member in (first, second, third)] == [True, False, False]


def test_only_the_leader_learns_the_members() -> None:
    shard = Shard()
    first, second = Member(shard), Member(shard, protocols=(("range", b"two"),))
    complete(first)
    call = second.join()
    to_leader = first.take(first.join())
    to_follower = second.take(call)

    assert {member.member_id: member.metadata for member in to_leader.members} == {first.id: b"r", second.id: b"two"}
    assert to_follower.members == ()
    assert to_follower.leader == first.id


def test_a_member_that_does_not_rejoin_in_time_is_removed_and_another_one_leads() -> None:
    shard = Shard()
    first, second = Member(shard, session_timeout_ms=REBALANCE_MS * 2), Member(shard)
    complete(first, second)
    call = second.join(protocols=(("range", b"changed"),))

    shard.advance(REBALANCE_MS)

    assert second.take(call).generation == 3
    assert second.leads
    assert first.heartbeat() == UNKNOWN
    assert list(shard.group().members) == [second.id]


def test_the_longest_rebalance_timeout_counts() -> None:
    shard = Shard()
    first = Member(shard, session_timeout_ms=REBALANCE_MS * 9, rebalance_timeout_ms=REBALANCE_MS * 3)
    second = Member(shard)
    complete(first, second)
    call = second.join(protocols=(("range", b"changed"),))

    shard.advance(REBALANCE_MS * 3 - 1_000)
    assert call.replies == []

    shard.advance(1_000)
    assert second.take(call).generation == 3


def test_static_members_stay_when_they_are_late_but_the_rebalance_is_put_off_while_nobody_joins() -> None:
    shard = Shard()
    static = Member(shard, instance="pod", session_timeout_ms=REBALANCE_MS * 5)
    dynamic = Member(shard, session_timeout_ms=REBALANCE_MS * 5)
    complete(static, dynamic)
    dynamic.join(protocols=(("range", b"changed"),))
    dynamic.leave()

    shard.advance(REBALANCE_MS)
    assert shard.state is GroupState.PREPARING
    assert list(shard.group().members) == [static.id]

    assert static.take(static.join()).generation == 3


def test_a_rebalance_that_was_put_off_ends_a_rebalance_timeout_later_with_who_came_meanwhile() -> None:
    shard = Shard()
    first, second = (Member(shard, instance=name, session_timeout_ms=REBALANCE_MS * 9) for name in ("a", "b"))
    dynamic = Member(shard, session_timeout_ms=REBALANCE_MS * 9)
    complete(first, second, dynamic)
    dynamic.join(protocols=(("range", b"changed"),))
    dynamic.leave()
    shard.advance(REBALANCE_MS)
    call = second.join()
    assert call.replies == []

    shard.advance(REBALANCE_MS)

    assert second.take(call).leader == second.id
    assert set(shard.group().members) == {first.id, second.id}


def test_a_group_that_everybody_left_is_empty_in_another_generation_and_that_is_written_down() -> None:
    shard = Shard()
    member = Member(shard)
    complete(member)

    member.leave()

    assert (shard.state, shard.group().generation, shard.group().protocol) == (GroupState.EMPTY, 2, None)
    ((_, _, value),) = shard.log.batches[-1].records
    record = read_group_value(value or b"")
    assert (record.generation, record.members, record.protocol_type, record.leader) == (2, (), "consumer", None)
    assert member.heartbeat() == UNKNOWN


def test_an_empty_group_can_be_joined_by_members_of_another_kind() -> None:
    shard = Shard()
    member = Member(shard)
    complete(member)
    member.leave()

    reply = Member(shard).take(Member(shard).join(protocol_type="connect", protocols=(("eager", b""),)))

    assert (reply.generation, reply.protocol_type, reply.protocol) == (3, "connect", "eager")


def test_a_group_is_empty_even_if_that_cannot_be_written_down() -> None:
    shard = Shard()
    member = Member(shard)
    complete(member)
    shard.log.refuses = 19

    (reply,) = member.leave().replies

    assert (reply.error, [left.error for left in reply.members]) == (0, [0])
    assert (shard.state, shard.group().generation) == (GroupState.EMPTY, 2)


def test_a_member_that_joins_and_leaves_during_the_initial_delay_does_not_end_the_wait() -> None:
    shard = Shard(initial_rebalance_delay_ms=DELAY_MS)
    first, second = Member(shard, needs_member_id=True), Member(shard)
    (reply,) = first.join().replies
    first.id = reply.member_id
    join_reply = first.join()
    waiting = second.join()
    first.leave()

    assert error(join_reply) == UNKNOWN
    assert waiting.replies == []

    shard.advance(DELAY_MS)
    shard.advance(DELAY_MS)
    assert second.take(waiting).generation == 1


def test_a_join_phase_that_everybody_deserts_ends_empty() -> None:
    shard = Shard(initial_rebalance_delay_ms=DELAY_MS)
    member = Member(shard, needs_member_id=True)
    (reply,) = member.join().replies
    member.id = reply.member_id
    member.join()
    member.leave()
    assert shard.state is GroupState.PREPARING

    shard.advance(DELAY_MS)

    assert (shard.state, shard.group().generation) == (GroupState.EMPTY, 1)


def test_heartbeats_tell_members_of_a_rebalance_and_keep_them_in() -> None:
    shard = Shard()
    first, second = Member(shard), Member(shard)
    complete(first, second)
    first.join()

    for _ in range(5):
        shard.advance(SESSION_MS - 1_000)
        assert second.heartbeat() == REBALANCING

    assert len(shard.group().members) == 2


# Events in a stable group of two members, of which the first leads.
REBALANCES: Final[dict[str, Callable[[Shard, Member, Member], object]]] = {
    "somebody joins": lambda shard, leader, follower: Member(shard).join(),
    "a follower leaves": lambda shard, leader, follower: follower.leave(),
    "the leader joins again": lambda shard, leader, follower: leader.join(),
    "the leader has other topics": lambda shard, leader, follower: leader.join(protocols=[("range", b"other")]),
    "a follower has other topics": lambda shard, leader, follower: follower.join(protocols=[("range", b"other")]),
    "a follower offers more": lambda shard, leader, follower: follower.join(
        protocols=[("range", b"r"), ("sticky", b"s")]
    ),
}
CALM: Final[dict[str, Callable[[Shard, Member, Member], object]]] = {
    "a follower joins again as it was": lambda shard, leader, follower: follower.join(),
    "a member has no protocol in common": lambda shard, leader, follower: Member(shard, protocols=[("x", b"")]).join(),
    "a member with an id nobody gave": lambda shard, leader, follower: Member(shard).join(member_id="nobody"),
    "a heartbeat": lambda shard, leader, follower: follower.heartbeat(),
    "a member asks for its assignment again": lambda shard, leader, follower: follower.sync(),
    "somebody leaves who is not in": lambda shard, leader, follower: Member(shard).leave(),
}


@pytest.mark.parametrize("what", [*REBALANCES, *CALM])
def test_a_group_rebalances_when_its_members_change_and_not_otherwise(what: str) -> None:
    """GRP-8, GRP-17."""
    shard = Shard()
    leader, follower = Member(shard), Member(shard)
    complete(leader, follower)
    assert leader.leads

    {**REBALANCES, **CALM}[what](shard, leader, follower)

    rebalances = what in REBALANCES
    assert shard.state is (GroupState.PREPARING if rebalances else GroupState.STABLE)
    if what != "the leader joins again" and what != "the leader has other topics":
        assert leader.heartbeat() == (REBALANCING if rebalances else 0)


def test_a_member_that_is_not_heard_from_makes_the_group_rebalance() -> None:
    """GRP-14, GRP-17."""
    shard = Shard()
    first, second = Member(shard), Member(shard)
    complete(first, second)
    shard.advance(SESSION_MS // 2)
    assert first.heartbeat() == 0

    shard.advance(SESSION_MS // 2)

    assert shard.state is GroupState.PREPARING
    assert first.heartbeat() == REBALANCING
    assert second.heartbeat() == UNKNOWN
