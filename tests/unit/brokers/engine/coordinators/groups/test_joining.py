"""JoinGroup: member ids, refusals, and joins that make a group rebalance (GRP-5…8)."""

from __future__ import annotations

from uuid import UUID

import pytest

from brokers.engine.coordinators.groups.group import GroupState
from brokers.engine.coordinators.groups.joining import NEW_MEMBER_JOIN_TIMEOUT_MS
from tests.unit.brokers.engine.coordinators.groups.members import SESSION_MS, Member, Shard, complete, error

ID_REQUIRED, UNKNOWN, INCONSISTENT, BAD_SESSION, REBALANCING = 79, 25, 23, 26, 27


def test_a_first_member_makes_the_group_and_leads_generation_1() -> None:
    shard = Shard()
    member = Member(shard, protocols=(("range", b"r"), ("sticky", b"s")))

    reply = member.take(member.join())

    assert (reply.generation, reply.protocol_type, reply.protocol) == (1, "consumer", "range")
    assert reply.leader == reply.member_id
    assert [(result.member_id, result.metadata) for result in reply.members] == [(member.id, b"r")]
    assert shard.state is GroupState.COMPLETING


def test_a_member_id_is_the_client_id_and_something_unique() -> None:
    member = Member(Shard(), client="billing")
    member.take(member.join())

    assert member.id.startswith("billing-")
    UUID(member.id.removeprefix("billing-"))


def test_a_static_members_id_begins_with_its_instance_id() -> None:
    member = Member(Shard(), client="billing", instance="pod-1")
    member.take(member.join())

    assert member.id.startswith("pod-1-")


def test_a_client_that_knows_about_it_is_sent_away_with_an_id_first() -> None:
    shard = Shard()
    member = Member(shard, needs_member_id=True)

    (reply,) = member.join().replies
    assert (reply.error, reply.generation) == (ID_REQUIRED, -1)
    assert shard.group().members == {}

    member.id = reply.member_id
    assert member.take(member.join()).member_id == reply.member_id


def test_an_id_that_is_not_used_within_a_session_is_forgotten() -> None:
    shard = Shard()
    member = Member(shard, needs_member_id=True)
    (reply,) = member.join().replies
    member.id = reply.member_id

    shard.advance(SESSION_MS)

    assert error(member.join()) == UNKNOWN


def test_an_id_that_was_given_out_is_no_member_yet() -> None:
    member = Member(Shard(), needs_member_id=True)
    (reply,) = member.join().replies
    member.id = reply.member_id

    assert member.heartbeat(0) == UNKNOWN
    assert error(member.sync()) == UNKNOWN


def test_a_member_that_was_given_an_id_is_waited_for() -> None:
    shard = Shard()
    first, second = Member(shard), Member(shard, needs_member_id=True)
    complete(first)
    (reply,) = second.join().replies
    second.id = reply.member_id

    rejoined = first.join()
    assert rejoined.replies == []

    join_reply = second.join()
    assert first.take(rejoined).generation == second.take(join_reply).generation == 2


def test_an_id_that_nobody_has_is_unknown_in_an_unknown_group_and_in_a_known_one() -> None:
    shard = Shard()
    stranger = Member(shard)
    stranger.id = "client-x"

    assert error(stranger.join()) == UNKNOWN
    assert shard.machine.groups.get(stranger.group) is None

    complete(Member(shard))
    assert error(stranger.join()) == UNKNOWN


@pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 1_800_001])
def test_a_session_that_is_too_short_or_too_long_is_refused(session_ms: int) -> None:
    assert error(Member(Shard()).join(session_timeout_ms=session_ms)) == BAD_SESSION


@pytest.mark.parametrize(
    "changes",
    [{"protocols": ()}, {"protocol_type": ""}],
    ids=["no protocol", "no type"],
)
def test_a_first_member_must_offer_something(changes: dict[str, object]) -> None:
    assert error(Member(Shard()).join(**changes)) == INCONSISTENT


@pytest.mark.parametrize(
    "changes",
    [{"protocols": (("sticky", b""),)}, {"protocol_type": "connect"}],
    ids=["another protocol", "another type"],
)
def test_a_member_that_shares_no_protocol_with_the_group_is_refused(changes: dict[str, object]) -> None:
    shard = Shard()
    complete(Member(shard))

    assert error(Member(shard).join(**changes)) == INCONSISTENT
    assert len(shard.group().members) == 1


def test_the_protocol_is_what_all_support_and_most_like_best() -> None:
    shard = Shard()
    first = Member(shard, protocols=(("sticky", b"1"), ("range", b"2")))
    second = Member(shard, protocols=(("range", b"3"), ("sticky", b"4"), ("cooperative", b"")))
    third = Member(shard, protocols=(("cooperative", b""), ("range", b"5"), ("sticky", b"6")))

    complete(first, second, third)

    assert shard.group().protocol == "range"


def test_a_follower_that_joins_again_unchanged_gets_the_generation_it_is_in() -> None:
    shard = Shard()
    leader, follower = Member(shard), Member(shard)
    complete(leader, follower)

    reply = follower.take(follower.join())

    assert (reply.generation, reply.members) == (2, ())
    assert shard.state is GroupState.STABLE


def test_a_leader_that_joins_again_makes_the_group_rebalance() -> None:
    shard = Shard()
    leader, follower = Member(shard), Member(shard)
    complete(leader, follower)

    call = leader.join()

    assert call.replies == []
    assert follower.heartbeat() == REBALANCING


def test_a_member_that_changed_makes_the_group_rebalance() -> None:
    shard = Shard()
    leader, follower = Member(shard), Member(shard)
    complete(leader, follower)

    follower.join(protocols=(("range", b"more"),))

    assert leader.heartbeat() == REBALANCING


def test_an_unchanged_member_gets_the_same_answer_between_join_and_sync() -> None:
    shard = Shard()
    leader = Member(shard)
    first = leader.take(leader.join())

    again = leader.take(leader.join())

    assert again == first


def test_between_join_and_sync_a_change_sends_those_back_who_wait_for_assignments() -> None:
    shard = Shard()
    leader, follower = Member(shard), Member(shard)
    complete(leader)
    join_reply = follower.join()
    leader.take(leader.join())
    follower.take(join_reply)
    waiting = follower.sync()

    leader.join(protocols=(("range", b"more"),))

    assert error(waiting) == REBALANCING


def test_a_call_that_is_repeated_while_it_waits_is_answered_once_for_each() -> None:
    shard = Shard()
    leader, follower = Member(shard), Member(shard)
    complete(leader, follower)
    leader.join()
    assert follower.heartbeat() == REBALANCING
    first = leader.join()
    assert first.replies == []

    second = leader.join()
    assert error(first) == REBALANCING

    join_reply = follower.join()
    assert leader.take(second).generation == follower.take(join_reply).generation


def test_a_newcomer_that_was_never_answered_is_given_up_in_the_end() -> None:
    shard = Shard()
    complete(Member(shard, rebalance_timeout_ms=NEW_MEMBER_JOIN_TIMEOUT_MS * 2))
    newcomer = Member(shard).join()

    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // SESSION_MS + 1):
        _heartbeat_all_but_newcomers(shard)
        shard.advance(SESSION_MS // 2)
        _heartbeat_all_but_newcomers(shard)
        shard.advance(SESSION_MS // 2)

    assert error(newcomer) == UNKNOWN


def _heartbeat_all_but_newcomers(shard: Shard) -> None:
    group = shard.group()
    for member in group.members.values():
        if not member.is_new:
            shard.ask(
                lambda machine, now, _, id=member.member_id: machine.heartbeat(now, group.id, group.generation, id)
            )
