"""Replacement of a static member that joins without its member id, after a restart (GRP-18, GRP-19)."""

from __future__ import annotations

from brokers.engine.coordinators.groups.formats import encode_group_key, encode_group_value
from brokers.engine.coordinators.groups.group import Group, GroupState
from brokers.engine.coordinators.groups.member import Member
from brokers.engine.coordinators.groups.rebalancing import begin_join_phase, join_reply, try_to_complete_join
from brokers.engine.coordinators.groups.replies import (
    NO_MEMBER,
    JoinReply,
    JoinRequest,
    client_error,
    join_refusal,
    sync_refusal,
)
from brokers.engine.coordinators.groups.result_builder import ResultBuilder
from brokers.engine.coordinators.result import REPLY_PENDING, CoordinatorResult, StateRecord
from brokers.engine.coordinators.settings import GroupSettings
from brokers.engine.protocol.errors import ErrorCode


def replace_static_member(
    settings: GroupSettings, builder: ResultBuilder, group: Group, request: JoinRequest, member_id: str
) -> CoordinatorResult:
    """Replaces the member id of a static member by `member_id`, and answers its waiting calls.

    A stable group rebalances only if it would choose another protocol.
    """
    assert request.group_instance_id is not None, "only a static member can be replaced"
    leader_before = group.leader
    member = group.members[group.static_members[request.group_instance_id]]
    previous_member = _PreviousMember(member)
    _fence_waiting_calls(builder, group, member)
    builder.cancel_session_timer(group, member.member_id)
    group.rename(member, member_id)
    member.timer_fires_ms = None
    group.update_protocols(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    builder.set_session_deadline(group, member, member.session_timeout_ms)
    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol:
        return _keep_assignment(
            builder, group, member, previous_member, leader_before or "", request.can_skip_assignment
        )
    group.set_join_ticket(member, builder.ticket)
    begin_join_phase(builder, settings, group)
    try_to_complete_join(builder, group)
    return builder.result(REPLY_PENDING)


class _PreviousMember:
    """State of a member before its replacement, restored if the record cannot be written."""

    __slots__ = ("member_id", "protocols", "rebalance_timeout_ms", "session_timeout_ms")

    def __init__(self, member: Member) -> None:
        self.member_id = member.member_id
        self.protocols = member.protocols
        self.rebalance_timeout_ms = member.rebalance_timeout_ms
        self.session_timeout_ms = member.session_timeout_ms


def _fence_waiting_calls(builder: ResultBuilder, group: Group, member: Member) -> None:
    """Answers the waiting calls of the old member id with FENCED_INSTANCE_ID."""
    builder.add_reply(group.set_join_ticket(member, None), join_refusal(member.member_id, ErrorCode.FENCED_INSTANCE_ID))
    builder.add_reply(member.sync_ticket, sync_refusal(ErrorCode.FENCED_INSTANCE_ID))
    member.sync_ticket = None


def _keep_assignment(
    builder: ResultBuilder,
    group: Group,
    member: Member,
    previous_member: _PreviousMember,
    leader_before: str,
    can_skip_assignment: bool,
) -> CoordinatorResult:
    """Records the new member id without a rebalance; the assignment stays (GRP-19).

    A leader whose version does not support `skip_assignment` gets its old member id as the leader's: otherwise it would
    compute an assignment that no member fetches.
    """
    assignments = {peer.member_id: peer.assignment for peer in group.members.values()}
    record = group.to_record(builder.now.wall_ms, assignments)

    def on_refused(code: int) -> CoordinatorResult:
        builder.cancel_session_timer(group, member.member_id)
        group.rename(member, previous_member.member_id)
        group.update_protocols(
            member, previous_member.protocols, previous_member.rebalance_timeout_ms, previous_member.session_timeout_ms
        )
        member.timer_fires_ms = None
        builder.set_session_deadline(group, member, member.session_timeout_ms)
        return builder.result(refusal(client_error(code), NO_MEMBER))

    def refusal(code: int, id: str) -> JoinReply:
        return JoinReply(code, id, group.generation, group.protocol_type, group.protocol, leader_before)

    if can_skip_assignment:
        reply = join_reply(group, member, skip_assignment=member.member_id == group.leader)
    else:
        reply = join_reply(group, member, leader=leader_before)
    result = builder.result(reply)
    result.records = [StateRecord(encode_group_key(group.id), encode_group_value(record))]
    result.on_refused = on_refused
    result.make_timeout_reply = lambda code: refusal(client_error(code), NO_MEMBER)
    return result
