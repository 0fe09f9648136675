"""Join phase of a group rebalance: its beginning, its deadlines, and the generation in which it results (GRP-9…11)."""

from __future__ import annotations

from typing import Final

from brokers.engine.coordinators.groups.formats import GroupRecord
from brokers.engine.coordinators.groups.group import Group, GroupState
from brokers.engine.coordinators.groups.member import Member
from brokers.engine.coordinators.groups.replies import (
    NO_MEMBER,
    JoinedMember,
    JoinReply,
    join_refusal,
    sync_refusal,
)
from brokers.engine.coordinators.groups.result_builder import JOIN, SYNC, ResultBuilder
from brokers.engine.coordinators.settings import GroupSettings
from brokers.engine.protocol.errors import ErrorCode

# Minimum delay before a join phase is retried: the rebalance timeout of static members that do not join may be 0.
JOIN_RETRY_MS_MIN: Final = 1_000
_MAY_PREPARE: Final = (GroupState.STABLE, GroupState.COMPLETING, GroupState.EMPTY)


def begin_join_phase(builder: ResultBuilder, settings: GroupSettings, group: Group) -> None:
    """Begins a join phase, unless one is in progress."""
    if group.state not in _MAY_PREPARE:
        return
    if group.state is GroupState.COMPLETING:
        fail_waiting_syncs(builder, group, ErrorCode.REBALANCE_IN_PROGRESS)
    if group.pending_sync_member_ids:
        group.pending_sync_member_ids.clear()
        builder.cancel_group_timer(SYNC, group)
    group.in_initial_delay = group.state is GroupState.EMPTY
    group.has_new_member = False
    group.enter(GroupState.PREPARING, builder.now.wall_ms)
    timeout_ms = group.rebalance_timeout_ms
    if group.in_initial_delay:
        group.delay_ms = settings.initial_rebalance_delay_ms
        group.delay_remaining_ms = max(timeout_ms - group.delay_ms, 0)
        if not group.delay_ms:
            complete_join_phase(builder, group)
            return
        timeout_ms = group.delay_ms
    builder.arm_group_timer(JOIN, group, timeout_ms)


def try_to_complete_join(builder: ResultBuilder, group: Group) -> None:
    """Ends the join phase if all members have joined, except during the initial rebalance delay."""
    if group.state is GroupState.PREPARING and not group.in_initial_delay and group.has_all_members_joined:
        complete_join_phase(builder, group)


def on_join_deadline(builder: ResultBuilder, settings: GroupSettings, group: Group) -> None:
    """Ends the join phase, or extends the initial rebalance delay if a member joined during it."""
    if group.state is not GroupState.PREPARING:
        return
    if group.in_initial_delay and group.has_new_member and group.delay_remaining_ms:
        group.has_new_member = False
        delay_ms = min(settings.initial_rebalance_delay_ms, group.delay_remaining_ms)
        group.delay_remaining_ms = max(group.delay_remaining_ms - group.delay_ms, 0)
        group.delay_ms = delay_ms
        builder.arm_group_timer(JOIN, group, delay_ms)
        return
    complete_join_phase(builder, group)


def complete_join_phase(builder: ResultBuilder, group: Group) -> None:
    """Ends the join phase with the members that have joined.

    Dynamic members that have not joined are removed. If only static members are left and none has joined, the join
    phase is extended.
    """
    for member in tuple(group.members.values()):
        if member.join_ticket is None and member.group_instance_id is None:
            remove_member(builder, group, member)
    group.in_initial_delay = False
    if not group.members:
        builder.cancel_group_timer(JOIN, group)
        record = GroupRecord(group.protocol_type or "", group.generation + 1, None, None, builder.now.wall_ms, ())
        builder.add_empty_group_record(group, record)
        return
    if not _resolve_leader(group):
        builder.arm_group_timer(JOIN, group, max(group.rebalance_timeout_ms, JOIN_RETRY_MS_MIN))
        return
    builder.cancel_group_timer(JOIN, group)
    group.generation += 1
    group.protocol = group.select_protocol()
    group.update_subscriptions()
    group.enter(GroupState.COMPLETING, builder.now.wall_ms)
    for member in group.members.values():
        builder.add_reply(group.set_join_ticket(member, None), join_reply(group, member))
        builder.set_session_deadline(group, member, member.session_timeout_ms)
        member.is_new = False
        group.pending_sync_member_ids.add(member.member_id)
    builder.arm_group_timer(SYNC, group, group.rebalance_timeout_ms)


def _resolve_leader(group: Group) -> bool:
    """Chooses the leader: the current one if it has joined, else the first member that has (GRP-10).

    Returns False if no member has joined.
    """
    if group.leader is not None and group.members[group.leader].join_ticket is not None:
        return True
    for member in group.members.values():
        if member.join_ticket is not None:
            group.leader = member.member_id
            return True
    return False


def join_reply(group: Group, member: Member, *, leader: str | None = None, skip_assignment: bool = False) -> JoinReply:
    """Returns the JoinGroup reply for a member of this generation. `leader` is named instead of the group's leader."""
    leader_id = group.leader if leader is None else leader
    protocol = group.protocol
    members: tuple[JoinedMember, ...] = ()
    if leader is None and member.member_id == group.leader and protocol is not None:
        members = tuple(
            JoinedMember(peer.member_id, peer.group_instance_id, peer.metadata(protocol))
            for peer in group.members.values()
        )
    return JoinReply(
        0,
        member.member_id,
        group.generation,
        group.protocol_type,
        protocol,
        leader_id or "",
        skip_assignment,
        members,
    )


def fail_waiting_syncs(builder: ResultBuilder, group: Group, code: ErrorCode | int) -> None:
    """Clears all assignments and answers the waiting SyncGroup calls with an error code."""
    for member in group.members.values():
        member.assignment = b""
        if member.sync_ticket is not None:
            builder.add_reply(member.sync_ticket, sync_refusal(code))
            member.sync_ticket = None
            builder.set_session_deadline(group, member, member.session_timeout_ms)


def remove_member(builder: ResultBuilder, group: Group, member: Member) -> None:
    """Removes a member and answers its waiting calls with UNKNOWN_MEMBER_ID, so that a live client joins again."""
    group.remove(member.member_id)
    builder.cancel_session_timer(group, member.member_id)
    builder.add_reply(member.join_ticket, join_refusal(NO_MEMBER, ErrorCode.UNKNOWN_MEMBER_ID))
    builder.add_reply(member.sync_ticket, sync_refusal(ErrorCode.UNKNOWN_MEMBER_ID))
    member.join_ticket = member.sync_ticket = None


def remove_member_and_rebalance(builder: ResultBuilder, settings: GroupSettings, group: Group, member: Member) -> None:
    """Removes a member and begins a join phase (GRP-14, GRP-15).

    The caller calls `try_to_complete_join` after the last removal.
    """
    remove_member(builder, group, member)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING):
        begin_join_phase(builder, settings, group)
