"""The join phase: who is awaited and how long, and how it ends with a generation (GRP-9, GRP-10, GRP-11)."""

from __future__ import annotations

from typing import Final

from brokers.engine.coordinators.groups.formats import GroupRecord
from brokers.engine.coordinators.groups.group import Group, State
from brokers.engine.coordinators.groups.member import Member
from brokers.engine.coordinators.groups.replies import (
    NO_MEMBER,
    JoinedMember,
    JoinReply,
    join_refused,
    sync_refused,
)
from brokers.engine.coordinators.groups.result_builder import JOIN, SYNC, ResultBuilder
from brokers.engine.coordinators.settings import GroupSettings
from brokers.engine.protocol.errors import ErrorCode

# How often a join phase is put off at most: a static member may say that it needs no time at all, and not come.
PUT_OFF_MS_MIN: Final = 1_000
_MAY_PREPARE: Final = (State.STABLE, State.COMPLETING, State.EMPTY)


def prepare(builder: ResultBuilder, settings: GroupSettings, group: Group) -> None:
    """Begins a join phase, unless one is on."""
    if group.state not in _MAY_PREPARE:
        return
    if group.state is State.COMPLETING:
        fail_syncs(builder, group, ErrorCode.REBALANCE_IN_PROGRESS)
    if group.unsynced:
        group.unsynced.clear()
        builder.disarm(SYNC, group)
    group.assembling = group.state is State.EMPTY
    group.newcomer = False
    group.enter(State.PREPARING, builder.now.wall_ms)
    timeout_ms = group.rebalance_timeout_ms
    if group.assembling:
        group.delay_ms = settings.initial_rebalance_delay_ms
        group.remaining_ms = max(timeout_ms - group.delay_ms, 0)
        if not group.delay_ms:
            complete(builder, group)
            return
        timeout_ms = group.delay_ms
    builder.arm(JOIN, group, timeout_ms)


def try_to_complete(builder: ResultBuilder, group: Group) -> None:
    """Ends the join phase if nobody is awaited. The first members of a group wait for others in any case."""
    if group.state is State.PREPARING and not group.assembling and group.everybody_joined:
        complete(builder, group)


def on_join_deadline(builder: ResultBuilder, settings: GroupSettings, group: Group) -> None:
    if group.state is not State.PREPARING:
        return
    if group.assembling and group.newcomer and group.remaining_ms:
        group.newcomer = False
        delay_ms = min(settings.initial_rebalance_delay_ms, group.remaining_ms)
        group.remaining_ms = max(group.remaining_ms - group.delay_ms, 0)
        group.delay_ms = delay_ms
        builder.arm(JOIN, group, delay_ms)
        return
    complete(builder, group)


def complete(builder: ResultBuilder, group: Group) -> None:
    """Ends the join phase with those who are there; puts it off if that is nobody but static members."""
    for member in tuple(group.members.values()):
        if member.join_ticket is None and member.group_instance_id is None:
            remove(builder, group, member)
    group.assembling = False
    if not group.members:
        builder.disarm(JOIN, group)
        record = GroupRecord(group.protocol_type or "", group.generation + 1, None, None, builder.now.wall_ms, ())
        builder.empty(group, record)
        return
    if not _resolve_leader(group):
        builder.arm(JOIN, group, max(group.rebalance_timeout_ms, PUT_OFF_MS_MIN))
        return
    builder.disarm(JOIN, group)
    group.generation += 1
    group.protocol = group.choice()
    group.begin_reading()
    group.enter(State.COMPLETING, builder.now.wall_ms)
    for member in group.members.values():
        builder.answer(group.awaits_join(member, None), joined(group, member))
        builder.expect(group, member, member.session_timeout_ms)
        member.is_fresh = False
        group.unsynced.add(member.member_id)
    builder.arm(SYNC, group, group.rebalance_timeout_ms)


def _resolve_leader(group: Group) -> bool:
    """The leader stays if it joined again, else anybody who did leads (GRP-10)."""
    if group.leader is not None and group.members[group.leader].join_ticket is not None:
        return True
    for member in group.members.values():
        if member.join_ticket is not None:
            group.leader = member.member_id
            return True
    return False


def joined(group: Group, member: Member, *, leader: str | None = None, skip_assignment: bool = False) -> JoinReply:
    """What this generation looks like to a member. `leader`: somebody else than the group's is named."""
    named = group.leader if leader is None else leader
    protocol = group.protocol
    members: tuple[JoinedMember, ...] = ()
    if leader is None and member.member_id == group.leader and protocol is not None:
        members = tuple(
            JoinedMember(result.member_id, result.group_instance_id, result.metadata(protocol))
            for result in group.members.values()
        )
    return JoinReply(
        0,
        member.member_id,
        group.generation,
        group.protocol_type,
        protocol,
        named or "",
        skip_assignment,
        members,
    )


def fail_syncs(builder: ResultBuilder, group: Group, code: ErrorCode | int) -> None:
    """Whoever waits for its assignment does not get it, and has none."""
    for member in group.members.values():
        member.assignment = b""
        if member.sync_ticket is not None:
            builder.answer(member.sync_ticket, sync_refused(code))
            member.sync_ticket = None
            builder.expect(group, member, member.session_timeout_ms)


def remove(builder: ResultBuilder, group: Group, member: Member) -> None:
    """Takes a member out. What it waits for is answered so that it starts again if it lives."""
    group.remove(member.member_id)
    builder.forget(group, member.member_id)
    builder.answer(member.join_ticket, join_refused(NO_MEMBER, ErrorCode.UNKNOWN_MEMBER_ID))
    builder.answer(member.sync_ticket, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
    member.join_ticket = member.sync_ticket = None


def remove_and_rebalance(builder: ResultBuilder, settings: GroupSettings, group: Group, member: Member) -> None:
    """GRP-14, GRP-15. The caller tries to complete the join phase when it is done with all of them."""
    remove(builder, group, member)
    if group.state in (State.STABLE, State.COMPLETING):
        prepare(builder, settings, group)
