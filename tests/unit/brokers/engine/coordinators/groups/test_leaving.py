"""LeaveGroup, of single members and in batches (GRP-15, GRP-20)."""

from __future__ import annotations

from brokers.engine.coordinators.groups.group import GroupState
from brokers.engine.coordinators.groups.replies import Leaver
from tests.unit.brokers.engine.coordinators.groups.members import Member, Shard, complete, error, leave

UNKNOWN, REBALANCING, FENCED = 25, 27, 82


def codes(shard: Shard, *leavers: Leaver) -> list[int]:
    (reply,) = leave(shard, *leavers).replies
    assert reply.error == 0
    assert [(left.member_id, left.group_instance_id) for left in reply.members] == [tuple(leaver) for leaver in leavers]
    return [left.error for left in reply.members]


def test_when_a_member_leaves_the_others_rebalance() -> None:
    shard = Shard()
    first, second = Member(shard), Member(shard)
    complete(first, second)

    assert codes(shard, Leaver(second.id)) == [0]

    assert first.heartbeat() == REBALANCING
    assert first.take(first.join()).generation == 3


def test_each_member_of_a_batch_has_its_own_error_code() -> None:
    shard = Shard()
    dynamic, static = Member(shard), Member(shard, instance="pod")
    complete(dynamic, static)

    sent = codes(
        shard,
        Leaver("client-x"),
        Leaver("", "nobody"),
        Leaver(""),
        Leaver("pod-x", "pod"),
        Leaver(static.id, "other"),
        Leaver(dynamic.id),
        Leaver(dynamic.id),
        Leaver("", "pod"),
        Leaver("", "pod"),
    )

    assert sent == [UNKNOWN, UNKNOWN, UNKNOWN, FENCED, UNKNOWN, 0, UNKNOWN, 0, UNKNOWN]
    assert shard.state is GroupState.EMPTY


def test_a_batch_is_one_rebalance_and_at_most_one_record() -> None:
    shard = Shard()
    members = [Member(shard) for _ in range(4)]
    complete(*members)
    generation, written = shard.group().generation, len(shard.log.batches)

    assert codes(shard, *(Leaver(member.id) for member in members)) == [0] * 4

    assert (shard.state, shard.group().generation) == (GroupState.EMPTY, generation + 1)
    assert len(shard.log.batches) == written + 1


def test_a_member_that_was_given_an_id_can_give_it_back() -> None:
    shard = Shard()
    first, second = Member(shard), Member(shard, needs_member_id=True)
    complete(first)
    (reply,) = second.join().replies
    again = first.join()

    assert codes(shard, Leaver(reply.member_id)) == [0]

    # The group waits for no other member.
    assert first.take(again).generation == 2


def test_a_static_member_may_leave_by_its_id_alone() -> None:
    shard = Shard()
    static = Member(shard, instance="pod")
    complete(static)

    assert codes(shard, Leaver(static.id)) == [0]
    assert shard.group().static_members == {}


def test_the_call_of_a_member_that_leaves_is_answered() -> None:
    shard = Shard()
    first, second = Member(shard), Member(shard)
    complete(first, second)
    waiting = first.join()

    codes(shard, Leaver(first.id))

    assert error(waiting) == UNKNOWN


def test_when_everybody_else_has_joined_again_the_last_ones_departure_ends_the_rebalance() -> None:
    shard = Shard()
    first, second = Member(shard), Member(shard)
    complete(first, second)
    waiting = first.join()

    codes(shard, Leaver(second.id))

    assert first.take(waiting).generation == 3


def test_leaving_an_unknown_group_is_refused() -> None:
    assert codes(Shard(), Leaver("client-x"), Leaver("", "pod")) == [UNKNOWN, UNKNOWN]
