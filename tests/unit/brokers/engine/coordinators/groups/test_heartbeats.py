"""Heartbeats keep a member in its group; a member without them is removed (GRP-13, GRP-14)."""

from __future__ import annotations

from brokers.engine.coordinators.groups.group import GroupState
from tests.unit.brokers.engine.coordinators.groups.members import SESSION_MS, Member, Shard, complete

STALE, UNKNOWN, REBALANCING, FENCED = 22, 25, 27, 82


def test_a_member_that_sends_heartbeats_within_its_session_stays() -> None:
    shard = Shard()
    member = Member(shard)
    complete(member)

    for _ in range(10):
        shard.advance(SESSION_MS - 100)
        assert member.heartbeat() == 0


def test_a_member_without_heartbeats_is_removed_and_the_others_rebalance() -> None:
    shard = Shard()
    first, second = Member(shard), Member(shard)
    complete(first, second)
    shard.advance(SESSION_MS - 1_000)
    first.heartbeat()

    shard.advance(1_000)

    assert (first.heartbeat(), second.heartbeat()) == (REBALANCING, UNKNOWN)


def test_a_member_whose_last_sign_was_long_after_its_timer_was_set_goes_a_session_after_that() -> None:
    shard = Shard()
    first, second = Member(shard), Member(shard, session_timeout_ms=SESSION_MS * 10)
    complete(first, second)
    shard.advance(SESSION_MS - 100)
    assert first.heartbeat() == 0

    shard.advance(SESSION_MS - 100)
    assert second.heartbeat() == 0
    shard.advance(200)

    assert second.heartbeat() == REBALANCING


def test_the_last_members_expiry_empties_the_group() -> None:
    shard = Shard()
    complete(Member(shard))

    shard.advance(SESSION_MS)

    assert (shard.state, shard.group().generation) == (GroupState.EMPTY, 2)


def test_between_join_and_sync_a_heartbeat_is_fine() -> None:
    member = Member(Shard())
    member.take(member.join())

    assert member.heartbeat() == 0


def test_a_heartbeat_tells_who_is_out_of_date() -> None:
    shard = Shard()
    static = Member(shard, instance="pod")
    complete(static)

    assert static.heartbeat(0) == static.heartbeat(2) == STALE
    assert static.heartbeat(member_id="pod-x") == FENCED
    assert static.heartbeat(group_instance_id="other") == UNKNOWN
    assert static.heartbeat(member_id="client-x", group_instance_id=None) == UNKNOWN
    assert static.heartbeat(member_id="client-x", group_instance_id=None, generation=7) == UNKNOWN
    assert Member(shard, group="ins-aaaaaaaa.other").heartbeat() == UNKNOWN


def test_a_shorter_session_counts_from_the_next_sign_of_life() -> None:
    shard = Shard()
    member = Member(shard, session_timeout_ms=SESSION_MS * 10)
    complete(member)
    member.take(member.join(session_timeout_ms=SESSION_MS))
    member.sync({member.id: b""})

    shard.advance(SESSION_MS)

    assert member.heartbeat() == UNKNOWN


def test_usual_heartbeats_make_no_outcome_of_their_own() -> None:
    shard = Shard()
    member = Member(shard)
    complete(member)
    now = shard.loop.now()

    first, second = (shard.machine.heartbeat(now, member.group, 1, member.id) for _ in range(2))

    assert first is second
