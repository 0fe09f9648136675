"""Static members return to their place in the group (GRP-18, GRP-19, GRP-20)."""

from __future__ import annotations

from collections.abc import Hashable

import pytest

from brokers.engine.coordinators.groups.formats import read_group_value
from brokers.engine.coordinators.groups.group import GroupState
from brokers.engine.coordinators.groups.machine import GroupMachine
from brokers.engine.coordinators.result import CoordinatorResult, Now
from tests.unit.brokers.engine.coordinators.groups.members import (
    REBALANCE_MS,
    SESSION_MS,
    Member,
    Shard,
    complete,
    error,
    given,
)

NOT_COORDINATOR, UNKNOWN, REBALANCING, FENCED = 16, 25, 27, 82


def group_of_static_leader(shard: Shard) -> tuple[Member, Member]:
    leader, follower = Member(shard, instance="pod-0"), Member(shard, instance="pod-1")
    complete(leader, follower)
    return leader, follower


def restarted(member: Member, **more: object) -> Member:
    """Return the member after a restart of its process: same instance id and protocols, no member id."""
    return Member(member.shard, instance=member.instance, protocols=member.protocols, **more)


def test_a_member_that_returns_to_a_stable_group_gets_a_new_id_its_old_assignment_and_disturbs_nobody() -> None:
    shard = Shard()
    leader, follower = group_of_static_leader(shard)
    again = restarted(follower)

    reply = again.take(again.join())

    assert reply.member_id not in ("", follower.id)
    assert (reply.generation, reply.leader, reply.members) == (2, leader.id, ())
    assert shard.state is GroupState.STABLE
    assert given(again.sync()) == follower.id.encode()
    assert leader.heartbeat() == 0


def test_the_id_before_is_fenced_wherever_the_name_is_said() -> None:
    shard = Shard()
    _, follower = group_of_static_leader(shard)
    again = restarted(follower)
    again.take(again.join())

    assert follower.heartbeat() == FENCED
    assert error(follower.join()) == FENCED
    assert error(follower.sync()) == FENCED
    (left,) = follower.leave().replies[0].members
    assert left.error == FENCED
    assert again.heartbeat() == 0


def test_a_returning_leader_gets_its_former_id_as_leader_so_that_it_assigns_nothing() -> None:
    shard = Shard()
    leader, _ = group_of_static_leader(shard)
    again = restarted(leader)

    reply = again.take(again.join())

    assert (reply.leader, reply.skip_assignment, reply.members) == (leader.id, False, ())
    assert shard.group().leader == again.id


def test_a_returning_leader_of_a_newer_version_is_asked_to_skip_the_assignment() -> None:
    shard = Shard()
    leader, _ = group_of_static_leader(shard)
    again = restarted(leader, can_skip_assignment=True)

    reply = again.take(again.join())

    assert (reply.leader, reply.skip_assignment) == (again.id, True)
    assert {member.group_instance_id for member in reply.members} == {"pod-0", "pod-1"}
    assert given(again.sync()) == leader.id.encode()


def test_a_returning_follower_of_a_newer_version_learns_the_leader() -> None:
    shard = Shard()
    leader, follower = group_of_static_leader(shard)
    again = restarted(follower, can_skip_assignment=True)

    reply = again.take(again.join())

    assert (reply.leader, reply.skip_assignment, reply.members) == (leader.id, False, ())


def test_the_change_of_id_is_written_before_it_is_answered() -> None:
    shard = Shard(at_once=False)
    member = Member(shard, instance="pod-0")
    member.take(member.join())
    member.sync({member.id: b"a"})
    shard.log.replicate()
    again = restarted(member)

    call = again.join()
    assert call.replies == []
    shard.log.replicate()

    again.take(call)
    ((_, _, value),) = shard.log.batches[-1].records
    record = read_group_value(value or b"")
    assert [(result.member_id, result.group_instance_id, result.assignment) for result in record.members] == [
        (again.id, "pod-0", b"a")
    ]
    assert record.leader == again.id


def test_a_change_that_cannot_be_written_down_is_taken_back() -> None:
    shard = Shard()
    leader, follower = group_of_static_leader(shard)
    again = restarted(follower, session_timeout_ms=SESSION_MS * 2)
    shard.log.refuses = 6

    (reply,) = again.join().replies

    assert (reply.error, reply.member_id) == (NOT_COORDINATOR, "")
    shard.log.refuses = 0
    assert (leader.heartbeat(), follower.heartbeat()) == (0, 0)
    assert shard.group().static_members == {"pod-0": leader.id, "pod-1": follower.id}
    assert shard.group().members[follower.id].session_timeout_ms == SESSION_MS
    shard.advance(SESSION_MS - 1_000)
    assert leader.heartbeat() == 0
    shard.advance(1_000)
    assert leader.heartbeat() == REBALANCING


def test_a_member_that_returns_with_another_protocol_makes_the_group_rebalance() -> None:
    shard = Shard()
    both = (("range", b"r"), ("sticky", b"s"))
    leader, follower = Member(shard, instance="a", protocols=both), Member(shard, instance="b", protocols=both)
    complete(leader, follower)
    again = restarted(follower)

    call = again.join(protocols=(("sticky", b"s"),))

    assert call.replies == []
    assert leader.heartbeat() == REBALANCING
    leader.take(leader.join())
    assert again.take(call).protocol == "sticky"


def test_a_return_between_join_and_sync_starts_another_generation_and_fences_the_former_self() -> None:
    shard = Shard()
    leader, follower = Member(shard, instance="pod-0"), Member(shard, instance="pod-1")
    complete(leader)
    join_reply = follower.join()
    leader.take(leader.join())
    follower.take(join_reply)
    waiting = follower.sync()
    again = restarted(follower)

    call = again.join()

    assert error(waiting) == FENCED
    assert leader.heartbeat() == REBALANCING
    leader.take(leader.join())
    assert again.take(call).generation == 3


def test_a_return_while_others_are_awaited_fences_the_former_self() -> None:
    shard = Shard()
    leader, follower = group_of_static_leader(shard)
    waiting = follower.join(protocols=(("range", b"changed"),))
    again = restarted(follower)

    call = again.join()

    assert error(waiting) == FENCED
    leader.take(leader.join())
    assert again.take(call).generation == 3


def test_a_name_that_nobody_has_is_unknown_with_any_id() -> None:
    shard = Shard()
    leader, _ = group_of_static_leader(shard)

    assert error(leader.join(group_instance_id="pod-7")) == UNKNOWN
    assert leader.heartbeat(group_instance_id="pod-7") == UNKNOWN


def test_a_static_member_that_is_gone_for_a_session_loses_its_place() -> None:
    shard = Shard()
    leader, _ = group_of_static_leader(shard)
    shard.advance(SESSION_MS - 1_000)
    leader.heartbeat()

    shard.advance(1_000)

    assert leader.heartbeat() == REBALANCING
    assert shard.group().static_members == {"pod-0": leader.id}


def test_coming_back_begins_a_session_and_the_one_before_does_not_end_it() -> None:
    shard = Shard()
    leader, follower = group_of_static_leader(shard)
    shard.advance(SESSION_MS - 1_000)
    leader.heartbeat()
    again = restarted(follower)
    again.take(again.join())

    shard.advance(SESSION_MS - 1_000)
    assert leader.heartbeat() == 0
    assert again.heartbeat() == 0

    shard.advance(SESSION_MS - 1_000)
    assert leader.heartbeat() == 0
    shard.advance(1_000)
    assert again.heartbeat() == UNKNOWN


@pytest.mark.parametrize("can_skip_assignment", [False, True])
def test_an_id_that_was_given_out_belongs_to_nobody_with_a_name(can_skip_assignment: bool) -> None:
    shard = Shard()
    pending = Member(shard, needs_member_id=True)
    (reply,) = pending.join().replies
    pending.id = reply.member_id

    assert (
        error(pending.join(group_instance_id="pod", needs_member_id=False, can_skip_assignment=can_skip_assignment))
        == UNKNOWN
    )


def test_static_members_that_miss_a_rebalance_stay_until_they_do_not_sync() -> None:
    shard = Shard()
    leader, follower = Member(shard), Member(shard, instance="pod-1", session_timeout_ms=REBALANCE_MS * 5)
    complete(leader, follower)
    call = leader.join(protocols=(("range", b"changed"),))
    shard.advance(REBALANCE_MS)
    leader.take(call)
    assert set(shard.group().members) == {leader.id, follower.id}
    leader.sync({leader.id: b"a", follower.id: b"b"})

    again = restarted(follower)
    again.take(again.join())

    assert given(again.sync()) == b"b"


def test_a_member_that_needs_no_time_and_does_not_come_keeps_nobody_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """While only static members are missing, the join phase is extended, and not retried in a busy loop."""
    shard = Shard()
    staying = Member(shard, instance="pod-0", rebalance_timeout_ms=0, session_timeout_ms=60_000)
    complete(staying)
    other = Member(shard, rebalance_timeout_ms=0)
    other.join()
    described = shard.ask(lambda machine, now, _: machine.describe(staying.group)).replies[0]
    (other.id,) = [member.member_id for member in described.members if member.group_instance_id is None]
    other.leave()
    assert shard.state is GroupState.PREPARING
    rung: list[object] = []
    on_timer = GroupMachine.on_timer

    def counted(machine: GroupMachine, key: Hashable, now: Now) -> CoordinatorResult:
        rung.append(key)
        return on_timer(machine, key, now)

    monkeypatch.setattr(GroupMachine, "on_timer", counted)
    shard.advance(10_000)
    assert shard.state is GroupState.PREPARING
    assert len(rung) < 20
