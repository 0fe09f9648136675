"""Everything that a tenant can make grow has a limit (GRP-7)."""

from __future__ import annotations

import pytest

from brokers.contract import coordinator_limits
from brokers.contract.coordinator_limits import GROUPS_PER_INSTANCE_MAX
from brokers.engine.coordinators import limits
from brokers.engine.coordinators.groups import joining
from brokers.engine.coordinators.groups.group import GroupState
from brokers.engine.coordinators.groups.machine import GroupMachine, LedGroupShards
from brokers.engine.coordinators.groups.registry import GroupRegistry
from brokers.engine.coordinators.limits import (
    MEMBER_ID_BYTES_MAX,
    MEMBER_METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    PROTOCOLS_MAX,
)
from brokers.engine.coordinators.settings import GroupSettings
from tests.unit.brokers.engine.coordinators.groups.members import SESSION_MS, Member, Shard, complete, error

UNKNOWN, INVALID, POLICY, FULL = 25, 42, 44, 81


def test_a_full_group_lets_nobody_else_in() -> None:
    shard = Shard(members_max=2)
    complete(Member(shard), Member(shard))

    assert error(Member(shard).join()) == FULL
    assert error(Member(shard, needs_member_id=True).join()) == FULL
    assert len(shard.group().members) == 2


def test_a_static_member_comes_back_to_its_seat_in_a_full_group() -> None:
    shard = Shard(members_max=2)
    complete(Member(shard, instance="pod-0"), Member(shard, instance="pod-1"))
    again = Member(shard, instance="pod-1")

    again.take(again.join())

    assert again.heartbeat() == 0
    assert error(Member(shard, instance="pod-2").join()) == FULL


def test_the_last_to_join_a_full_group_is_refused() -> None:
    shard = Shard(members_max=2)
    leader, follower = Member(shard), Member(shard)
    complete(leader, follower)
    first = leader.join()
    newcomer = Member(shard)
    taken = newcomer.join()

    assert error(follower.join()) == FULL
    assert leader.take(first).generation == newcomer.take(taken).generation == 3


def test_ids_that_were_given_out_are_seats() -> None:
    shard = Shard(members_max=2)
    replies = [Member(shard, needs_member_id=True).join().replies[0] for _ in range(3)]

    assert [reply.error for reply in replies] == [79, 79, FULL]


def test_a_group_that_is_larger_than_is_allowed_by_now_gets_smaller() -> None:
    shard = Shard()
    members = [Member(shard) for _ in range(3)]
    complete(*members)
    smaller = Shard(members_max=2, log=shard.log)
    assert smaller.state is GroupState.PREPARING
    for member in members:
        member.shard = smaller

    calls = [member.join() for member in members]

    assert [reply.error for call in calls for reply in call.replies] == [0, 0, FULL]
    assert len(smaller.group().members) == 2


def test_groups_per_instance_are_limited_and_other_instances_have_theirs() -> None:
    shard = Shard()
    for number in range(GROUPS_PER_INSTANCE_MAX):
        shard.machine.groups.get_or_create(f"ins-aaaaaaaa.{number}", 0)

    assert error(Member(shard, group="ins-aaaaaaaa.more").join()) == POLICY
    assert error(Member(shard, group="ins-bbbbbbbb.more").join()) == 0
    assert error(Member(shard, group="ins-aaaaaaaa.7").join()) == 0


def test_groups_that_are_gone_make_room_and_leave_nothing_behind() -> None:
    groups = GroupRegistry(GroupSettings)
    for number in range(GROUPS_PER_INSTANCE_MAX):
        groups.get_or_create(f"ins-aaaaaaaa.{number}", 0)
    assert not groups.may_add_group("ins-aaaaaaaa.x")

    groups.drop("ins-aaaaaaaa.7")
    groups.drop("ins-aaaaaaaa.never-was")

    assert groups.may_add_group("ins-aaaaaaaa.x")
    assert len(groups) == len(groups.groups_of_instance("ins-aaaaaaaa")) == GROUPS_PER_INSTANCE_MAX - 1


def test_the_limits_of_an_instance_count_over_all_shards_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_limits, "GROUPS_PER_INSTANCE_MAX", 4)
    led = LedGroupShards(lambda: 4)
    first, second = (GroupMachine(GroupSettings, led=led) for _ in range(2))
    first.groups.get_or_create("ins-aaaaaaaa.a", 0)
    assert second.groups.may_add_group("ins-aaaaaaaa.b")
    second.groups.get_or_create("ins-aaaaaaaa.b", 0)

    # This broker leads half of the partitions, so that it grants half of the limit.
    assert not first.groups.may_add_group("ins-aaaaaaaa.c")
    assert first.groups.may_add_group("ins-bbbbbbbb.c")
    third = GroupMachine(GroupSettings, led=led)
    assert first.groups.may_add_group("ins-aaaaaaaa.c")
    third.unload()
    second.unload()
    assert not first.groups.may_add_group("ins-aaaaaaaa.c")


def test_the_instances_of_a_tenant_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_limits, "MEMBER_BYTES_PER_INSTANCE_MAX", 10_000)
    monkeypatch.setattr(coordinator_limits, "MEMBER_BYTES_FLOOR", 1)
    instances = [f"ins-aaaaaaa{number}" for number in range(8)]
    led = LedGroupShards(siblings=lambda instance_id: instances if instance_id in instances else [instance_id])
    shard = Shard(led=led)
    protocols = (("range", bytes(7_000)),)

    for instance_id in instances[:4]:
        complete(Member(shard, group=f"{instance_id}.g", protocols=protocols))

    assert {
        error(Member(shard, group=f"{instance_id}.g", protocols=protocols).join()) for instance_id in instances[4:]
    } == {FULL}
    complete(Member(shard, group="ins-bbbbbbbb.g", protocols=protocols))


def test_members_per_instance_are_limited_over_all_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_limits, "MEMBERS_PER_INSTANCE_MAX", 2)
    monkeypatch.setattr(coordinator_limits, "MEMBERS_FLOOR", 1)
    shard = Shard()
    member = Member(shard, group="ins-aaaaaaaa.a")
    complete(member)
    assert error(Member(shard, group="ins-aaaaaaaa.b", needs_member_id=True).join()) == 79

    assert error(Member(shard, group="ins-aaaaaaaa.c").join()) == FULL
    assert error(Member(shard, group="ins-aaaaaaaa.c", needs_member_id=True).join()) == FULL
    complete(Member(shard, group="ins-bbbbbbbb.theirs"))
    complete(member)
    shard.advance(SESSION_MS)  # no member joined with the id that was given out
    complete(Member(shard, group="ins-aaaaaaaa.c"))


@pytest.mark.parametrize(
    "changes",
    [
        {"client_id": "x" * (NAME_BYTES_MAX + 1)},
        {"group_instance_id": "x" * (NAME_BYTES_MAX + 1)},
        {"member_id": "ü" * (MEMBER_ID_BYTES_MAX // 2 + 1)},
        {"protocol_type": "x" * (NAME_BYTES_MAX + 1)},
        {"protocols": (("x" * (NAME_BYTES_MAX + 1), b""),)},
        {"protocols": tuple((str(number), b"") for number in range(PROTOCOLS_MAX + 1))},
        {"protocols": (("range", bytes(MEMBER_METADATA_BYTES_MAX)),)},
        {"protocols": (("range", b"a"), ("range", b"b"))},
    ],
    ids=["client", "instance", "member", "type", "name", "many", "metadata", "twice"],
)
def test_metadata_of_one_member_is_limited(changes: dict[str, object]) -> None:
    shard = Shard()

    assert error(Member(shard).join(**changes)) == INVALID
    assert len(shard.machine.groups) == 0


def test_metadata_of_all_members_of_a_group_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "GROUP_METADATA_BYTES_MAX", 2_000)
    shard = Shard()
    member = Member(shard, protocols=(("range", bytes(1_000)),))
    complete(member)

    assert error(Member(shard, protocols=(("range", bytes(1_000)),)).join()) == FULL
    # A member may replace its own protocols.
    assert member.join(protocols=(("range", bytes(1_900)),)).replies[0].error == 0
    assert error(member.join(protocols=(("range", bytes(2_000)),))) == FULL


def test_a_static_member_that_comes_back_says_it_instead_of_what_it_said_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joining, "GROUP_METADATA_BYTES_MAX", 2_000)
    shard = Shard()
    protocols = (("range", bytes(1_500)),)
    complete(Member(shard, instance="pod", protocols=protocols))
    again = Member(shard, instance="pod", protocols=protocols)

    assert again.take(again.join()).error == 0


def test_metadata_of_all_groups_of_an_instance_is_limited_and_other_instances_are_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator_limits, "MEMBER_BYTES_PER_INSTANCE_MAX", 10_000)
    monkeypatch.setattr(coordinator_limits, "MEMBER_BYTES_FLOOR", 1)
    shard = Shard()
    protocols = (("range", bytes(3_000)),)
    member = Member(shard, protocols=protocols)
    complete(member)

    assert error(Member(shard, protocols=protocols, group="ins-aaaaaaaa.another").join()) == FULL
    assert error(Member(shard, protocols=protocols, group="ins-aaaaaaaa.another", needs_member_id=True).join()) == FULL
    complete(Member(shard, protocols=protocols, group="ins-bbbbbbbb.theirs"))
    # Present members may go on.
    complete(member)
    member.leave()
    complete(Member(shard, protocols=protocols, group="ins-aaaaaaaa.another"))


def test_assignments_of_an_instances_members_are_counted_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_limits, "MEMBER_BYTES_PER_INSTANCE_MAX", 10_000)
    monkeypatch.setattr(coordinator_limits, "MEMBER_BYTES_FLOOR", 1)
    shard = Shard()
    for group, size, code in (("a", 4_000, 0), ("b", 4_000, -1), ("b", 1_000, 0)):
        member = Member(shard, group=f"ins-aaaaaaaa.{group}")
        member.take(member.join())
        assert error(member.sync({member.id: bytes(size)})) == code
        if code:
            member.leave()


def test_names_that_are_just_short_enough_make_a_record() -> None:
    shard = Shard()
    member = Member(shard, client="x" * NAME_BYTES_MAX, group="ins-aaaaaaaa." + "g" * (limits.GROUP_ID_BYTES_MAX - 13))

    member.take(member.join())

    assert error(member.sync({member.id: b""})) == 0


def test_a_member_with_the_longest_name_comes_back_by_the_id_that_it_was_given() -> None:
    shard = Shard()
    member = Member(shard, client="x" * NAME_BYTES_MAX)
    complete(member)

    assert error(member.join()) == 0


def test_counters_shrink_when_their_members_leave() -> None:
    shard = Shard()
    first, second = Member(shard), Member(shard, protocols=(("range", b"longer"), ("sticky", b"")))
    complete(first, second)
    second.leave()
    first.take(first.join())
    first.sync({first.id: b""})
    assert dict(shard.group().supported_protocols) == {"range": 1}
    assert shard.group().metadata_bytes == len("range") + 1

    shard.advance(SESSION_MS)

    group = shard.group()
    assert (dict(group.supported_protocols), group.metadata_bytes, group.awaiting_join_count) == ({}, 0, 0)
