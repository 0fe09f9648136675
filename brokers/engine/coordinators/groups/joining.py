"""JoinGroup: admission to a group, assignment of member ids, and the start of a rebalance (GRP-6, GRP-7, GRP-8)."""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from brokers.engine.coordinators.groups import static_members
from brokers.engine.coordinators.groups.checking import check_member
from brokers.engine.coordinators.groups.group import Group, GroupState
from brokers.engine.coordinators.groups.member import Member, metadata_bytes
from brokers.engine.coordinators.groups.rebalancing import begin_join_phase, join_reply, try_to_complete_join
from brokers.engine.coordinators.groups.registry import GroupRegistry
from brokers.engine.coordinators.groups.replies import NO_MEMBER, JoinReply, JoinRequest, join_refusal
from brokers.engine.coordinators.groups.result_builder import ResultBuilder
from brokers.engine.coordinators.limits import (
    GROUP_METADATA_BYTES_MAX,
    MEMBER_BYTES,
    MEMBER_ID_BYTES_MAX,
    MEMBER_METADATA_BYTES_MAX,
    NAME_BYTES_MAX,
    PROTOCOLS_MAX,
)
from brokers.engine.coordinators.result import REPLY_PENDING, CoordinatorResult
from brokers.engine.coordinators.settings import GroupSettings
from brokers.engine.protocol.errors import ErrorCode

# Session timeout of a member before its first reply: it sends no heartbeats yet, and its client may be gone (GRP-14).
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000


def join(groups: GroupRegistry, builder: ResultBuilder, group: Group | None, request: JoinRequest) -> CoordinatorResult:
    """Handles JoinGroup. `group` is None if it does not exist yet; the handler has refused an empty id (GRP-4)."""
    settings = groups.settings
    if not settings.session_timeout_ms_min <= request.session_timeout_ms <= settings.session_timeout_ms_max:
        return builder.result(join_refusal(request.member_id, ErrorCode.INVALID_SESSION_TIMEOUT))
    if not is_within_limits(request):
        return builder.result(join_refusal(request.member_id, ErrorCode.INVALID_REQUEST))
    if group is None:
        if request.member_id != NO_MEMBER:
            return builder.result(join_refusal(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
        if not groups.may_add_group(request.group_id):
            return builder.result(join_refusal(request.member_id, ErrorCode.POLICY_VIOLATION))
        group = groups.get_or_create(request.group_id, builder.now.wall_ms)
    reply: Any
    if not accepts_joining_member(settings, group, _existing_member_id(group, request)):
        if group.remove(request.member_id) is not None:
            builder.cancel_session_timer(group, request.member_id)
        reply = join_refusal(NO_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif not fits_in_memory(groups, group, request):
        reply = join_refusal(request.member_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
    elif not group.supports_protocols(request.protocol_type, request.protocols):
        reply = join_refusal(request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif request.member_id != NO_MEMBER:
        reply = _rejoin(settings, builder, group, request)
    elif request.group_instance_id is not None and request.group_instance_id in group.static_members:
        return static_members.replace_static_member(settings, builder, group, request, new_member_id(request))
    elif request.needs_member_id:
        reply = _assign_member_id(settings, builder, group, request)
    else:
        reply = _add_member(settings, builder, group, request, new_member_id(request))
    try_to_complete_join(builder, group)
    return builder.result(reply)


def new_member_id(request: JoinRequest) -> str:
    """Returns a unique member id: the client id or group instance id, a hyphen and a UUID."""
    return f"{request.client_id if request.group_instance_id is None else request.group_instance_id}-{uuid4()}"


def is_within_limits(request: JoinRequest) -> bool:
    """True if a request is within the limits of one member and names each protocol once.

    A protocol that is named twice would be counted as if two members offered it.
    """
    names = (request.group_instance_id or "", request.client_id, request.protocol_type)
    return (
        len(request.protocols) <= PROTOCOLS_MAX
        and len({name for name, _ in request.protocols}) == len(request.protocols)
        and metadata_bytes(request.protocols) <= MEMBER_METADATA_BYTES_MAX
        and len(request.member_id.encode()) <= MEMBER_ID_BYTES_MAX
        and all(len(name.encode()) <= NAME_BYTES_MAX for name in names)
        and all(len(name.encode()) <= NAME_BYTES_MAX for name, _ in request.protocols)
    )


def _existing_member_id(group: Group, request: JoinRequest) -> str:
    """Returns the id of the existing member that the request is for or that it replaces, else NO_MEMBER."""
    if request.member_id == NO_MEMBER and request.group_instance_id is not None:
        return group.static_members.get(request.group_instance_id, NO_MEMBER)
    return request.member_id


def accepts_joining_member(settings: GroupSettings, group: Group, member_id: str) -> bool:
    """True if the member fits into the group's maximum size (GRP-7).

    During a join phase only members that have joined again count, so the last ones to join may be refused.
    """
    if group.state is GroupState.EMPTY:
        # Pending member ids count as well, or a client could get any number of them.
        return len(group.pending) < settings.members_max or member_id in group.pending
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING:
        return (
            member is not None and member.join_ticket is not None
        ) or group.awaiting_join_count < settings.members_max
    return member is not None or len(group.members) < settings.members_max


def fits_in_memory(groups: GroupRegistry, group: Group, request: JoinRequest) -> bool:
    """True if the group and its instance may use the memory that the member of this request takes."""
    member_id = _existing_member_id(group, request)
    member = group.members.get(member_id)
    more_bytes = metadata_bytes(request.protocols) - (0 if member is None else member.metadata_bytes)
    if group.metadata_bytes + more_bytes > GROUP_METADATA_BYTES_MAX:
        return False
    is_known = member is not None or member_id in group.pending
    if is_known:
        return groups.may_add_members(group.id, more_bytes)
    return groups.may_add_members(group.id, more_bytes + MEMBER_BYTES, 1)


def _assign_member_id(settings: GroupSettings, builder: ResultBuilder, group: Group, request: JoinRequest) -> JoinReply:
    if len(group.pending) >= settings.members_max:
        return join_refusal(NO_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED)
    member_id = new_member_id(request)
    group.pending.add(member_id)
    builder.arm_pending_timer(group, member_id, request.session_timeout_ms)
    return join_refusal(member_id, ErrorCode.MEMBER_ID_REQUIRED)


def _add_member(
    settings: GroupSettings, builder: ResultBuilder, group: Group, request: JoinRequest, member_id: str
) -> Any:
    member = Member(
        member_id,
        request.group_instance_id,
        request.client_id,
        request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
    )
    member.is_new = True
    member.join_ticket = builder.ticket
    if not group.members:
        group.protocol_type = request.protocol_type
    if group.state is GroupState.PREPARING and group.generation == 0:
        group.has_new_member = True
    if member_id in group.pending:
        builder.cancel_pending_timer(group, member_id)
    group.add(member)
    builder.set_session_deadline(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    begin_join_phase(builder, settings, group)
    return REPLY_PENDING


def _rejoin(settings: GroupSettings, builder: ResultBuilder, group: Group, request: JoinRequest) -> Any:
    member_id = request.member_id
    if member_id in group.pending and request.group_instance_id is None:
        return _add_member(settings, builder, group, request, member_id)
    code = check_member(group, member_id, request.group_instance_id)
    if code:
        return join_refusal(member_id, code)
    member = group.members[member_id]
    unchanged = member.protocols == tuple(request.protocols)
    if unchanged and (
        group.state is GroupState.COMPLETING or (group.state is GroupState.STABLE and group.leader != member_id)
    ):
        # A retry of an answered call: the generation has not changed.
        return join_reply(group, member)
    group.update_protocols(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
    supersede_join(builder, group, member)
    begin_join_phase(builder, settings, group)
    return REPLY_PENDING


def supersede_join(builder: ResultBuilder, group: Group, member: Member) -> None:
    """Makes the member wait with the current call. A previous call that still waits is answered with
    REBALANCE_IN_PROGRESS.
    """
    before = group.set_join_ticket(member, builder.ticket)
    builder.add_reply(before, join_refusal(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))
