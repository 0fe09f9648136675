"""SyncGroup: the leader sends the assignments, and each member gets its own (GRP-12)."""

from __future__ import annotations

from brokers.engine.coordinators.groups.checking import check_generation
from brokers.engine.coordinators.groups.formats import encode_group_key, encode_group_value
from brokers.engine.coordinators.groups.group import Group, GroupState
from brokers.engine.coordinators.groups.rebalancing import (
    begin_join_phase,
    fail_waiting_syncs,
    remove_member,
    try_to_complete_join,
)
from brokers.engine.coordinators.groups.registry import GroupRegistry
from brokers.engine.coordinators.groups.replies import SyncReply, SyncRequest, client_error, sync_refusal
from brokers.engine.coordinators.groups.result_builder import SYNC, ResultBuilder
from brokers.engine.coordinators.limits import GROUP_RECORD_BYTES_MAX
from brokers.engine.coordinators.result import REPLY_PENDING, CoordinatorResult, StateRecord
from brokers.engine.coordinators.settings import GroupSettings
from brokers.engine.protocol.errors import ErrorCode


def sync(groups: GroupRegistry, builder: ResultBuilder, group: Group | None, request: SyncRequest) -> CoordinatorResult:
    """Handles SyncGroup. Members wait for the leader's call, which records the assignments of all."""
    if group is None:
        return builder.result(sync_refusal(ErrorCode.UNKNOWN_MEMBER_ID))
    code = _check(group, request)
    if code:
        return builder.result(sync_refusal(code))
    if group.state is GroupState.PREPARING:
        return builder.result(sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS))
    member = group.members[request.member_id]
    if group.pending_sync_member_ids:
        group.pending_sync_member_ids.discard(member.member_id)
        if not group.pending_sync_member_ids:
            builder.cancel_group_timer(SYNC, group)
    if group.state is GroupState.STABLE:
        builder.set_session_deadline(group, member, member.session_timeout_ms)
        return builder.result(
            _sync_reply(group, member.assignment), depends_on_offset=group.last_record_offset, is_read=True
        )
    builder.add_reply(member.sync_ticket, sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync_ticket = builder.ticket
    if member.member_id != group.leader:
        return builder.result(REPLY_PENDING)
    return _assign(groups, builder, group, dict(request.assignments))


def on_sync_deadline(builder: ResultBuilder, settings: GroupSettings, group: Group) -> None:
    """Removes the members that have not sent SyncGroup within the rebalance timeout."""
    if group.state not in (GroupState.COMPLETING, GroupState.STABLE) or not group.pending_sync_member_ids:
        return
    # Sorted, because the order of a set differs between processes.
    for member_id in sorted(group.pending_sync_member_ids):
        remove_member(builder, group, group.members[member_id])
    group.pending_sync_member_ids.clear()
    begin_join_phase(builder, settings, group)
    try_to_complete_join(builder, group)


def _check(group: Group, request: SyncRequest) -> int:
    code = check_generation(group, request.generation, request.member_id, request.group_instance_id)
    if code:
        return code
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.protocol is not None and request.protocol != group.protocol:
        return int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return 0


def _assign(
    groups: GroupRegistry, builder: ResultBuilder, group: Group, assignments: dict[str, bytes]
) -> CoordinatorResult:
    """Records the leader's assignments; members get them once the record is committed."""
    value = encode_group_value(group.to_record(builder.now.wall_ms, assignments))
    waiting = [(member, member.sync_ticket) for member in group.members.values() if member.sync_ticket is not None]

    def on_refused(code: int) -> CoordinatorResult:
        for member, ticket in waiting:
            member.sync_ticket = ticket
        fail_waiting_syncs(builder, group, client_error(code))
        begin_join_phase(builder, groups.settings, group)
        return builder.result(REPLY_PENDING)

    assignment_bytes = sum(len(assignments.get(member_id, b"")) for member_id in group.members)
    if len(value) > GROUP_RECORD_BYTES_MAX or not groups.may_add_members(
        group.id, assignment_bytes - group.assignment_bytes
    ):
        return on_refused(ErrorCode.MESSAGE_TOO_LARGE)
    deferred_replies: list[tuple[object, SyncReply]] = []
    leader_reply = sync_refusal(ErrorCode.UNKNOWN_SERVER_ERROR)
    for member, ticket in waiting:
        reply = _sync_reply(group, assignments.get(member.member_id, b""))
        if ticket is builder.ticket:
            leader_reply = reply
        else:
            deferred_replies.append((ticket, reply))
        member.sync_ticket = None
        builder.set_session_deadline(group, member, member.session_timeout_ms)
    return CoordinatorResult(
        leader_reply,
        [StateRecord(encode_group_key(group.id), value)],
        deferred_replies=[*builder.deferred_replies(), *deferred_replies],
        timers=builder.timers(),
        on_refused=on_refused,
        make_timeout_reply=lambda code: sync_refusal(client_error(code)),
    )


def _sync_reply(group: Group, assignment: bytes) -> SyncReply:
    return SyncReply(0, group.protocol_type, group.protocol, assignment)
