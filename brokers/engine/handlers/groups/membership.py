"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the calls of group members (GRP-4…20). Group ids are prefixed
internally (CKA-16), so that no client reaches the groups of another instance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from brokers.contract.acls import ResourceType
from brokers.engine.coordinators.groups.replies import (
    JoinReply,
    JoinRequest,
    Leaver,
    LeaveReply,
    SyncReply,
    SyncRequest,
    join_refusal,
    sync_refusal,
)
from brokers.engine.coordinators.limits import LEAVING_MEMBERS_MAX, is_too_long
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.groups.coordinator_calls import Operation, WaitingClient, call_group_coordinator
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

_REBALANCE_TIMEOUT_FROM: Final = 1
_MEMBER_ID_REQUIRED_FROM: Final = 4
_NULL_PROTOCOL_FROM: Final = 7
_SKIP_FROM: Final = 9
_PROTOCOL_NAMED_FROM: Final = 5
_LEAVE_BATCH_FROM: Final = 3

_LOADING: Final = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_ALIVE: Final = HeartbeatResponse(error_code=0)


def join_group(context: RequestContext, request: JoinGroupRequest) -> Any:
    def error_reply(code: int) -> JoinReply:
        return join_refusal(request.member_id, code)

    def to_response(reply: JoinReply) -> JoinGroupResponse:
        return _join_response(context.version, reply)

    if context.view.state == "deleting":
        return to_response(error_reply(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    static = request.group_instance_id
    session_ms = request.session_timeout_ms
    group_id = context.view.namespace.internal_id(request.group_id)
    join = JoinRequest(
        group_id,
        request.member_id,
        static,
        context.client_id,
        f"/{context.address}",
        session_ms,
        request.rebalance_timeout_ms if context.version >= _REBALANCE_TIMEOUT_FROM else session_ms,
        request.protocol_type,
        tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        needs_member_id=context.version >= _MEMBER_ID_REQUIRED_FROM and static is None,
        can_skip_assignment=context.version >= _SKIP_FROM,
    )
    return _call(
        context, request, lambda machine, now, ticket: machine.join(now, ticket, join), error_reply, to_response
    )


def _join_response(version: int, reply: JoinReply) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type,
        # "" stood for no protocol before the field was nullable.
        protocol_name=(reply.protocol or None) if version >= _NULL_PROTOCOL_FROM else (reply.protocol or ""),
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in reply.members
        ],
    )


def sync_group(context: RequestContext, request: SyncGroupRequest) -> Any:
    def error_reply(code: int) -> SyncReply:
        # Clients do not expect 14 here. The rebalance is lost with the former coordinator, so members rejoin.
        return sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS if code == _LOADING else code)

    def to_response(reply: SyncReply) -> SyncGroupResponse:
        return SyncGroupResponse(
            error_code=reply.error,
            protocol_type=reply.protocol_type,
            protocol_name=reply.protocol,
            assignment=reply.assignment,
        )

    if context.version >= _PROTOCOL_NAMED_FROM and (request.protocol_type is None or request.protocol_name is None):
        return to_response(sync_refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    group_id = context.view.namespace.internal_id(request.group_id)
    sync = SyncRequest(
        group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.protocol_type,
        request.protocol_name,
        tuple((assignment.member_id, assignment.assignment) for assignment in request.assignments),
    )
    return _call(
        context, request, lambda machine, now, ticket: machine.sync(now, ticket, sync), error_reply, to_response
    )


def heartbeat(context: RequestContext, request: HeartbeatRequest) -> Any:
    def error_reply(code: int) -> int:
        # Members keep their sessions while the group is loaded (GRP-4).
        return 0 if code == _LOADING else code

    def to_response(code: int) -> HeartbeatResponse:
        return HeartbeatResponse(error_code=code) if code else _ALIVE

    group_id = context.view.namespace.internal_id(request.group_id)
    member = request.generation_id, request.member_id, request.group_instance_id
    return _call(
        context,
        request,
        lambda machine, now, ticket: machine.heartbeat(now, group_id, *member),
        error_reply,
        to_response,
    )


def leave_group(context: RequestContext, request: LeaveGroupRequest) -> Any:
    is_single = context.version < _LEAVE_BATCH_FROM
    if len(request.members) > LEAVING_MEMBERS_MAX:
        return LeaveGroupResponse(error_code=int(ErrorCode.INVALID_REQUEST), members=[])
    if is_single:
        leavers = [Leaver(request.member_id)]
    else:
        leavers = [Leaver(member.member_id, member.group_instance_id) for member in request.members]

    def to_response(reply: LeaveReply) -> LeaveGroupResponse:
        if is_single:
            code = reply.error or (reply.members[0].error if reply.members else 0)
            return LeaveGroupResponse(error_code=code, members=[])
        return LeaveGroupResponse(
            error_code=reply.error,
            members=[
                MemberResponse(
                    member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=member.error
                )
                for member in reply.members
            ],
        )

    group_id = context.view.namespace.internal_id(request.group_id)
    return _call(
        context,
        request,
        lambda machine, now, ticket: machine.leave(now, ticket, group_id, leavers),
        LeaveReply,
        to_response,
    )


def _call(
    context: RequestContext,
    request: Any,
    operation: Operation,
    error_reply: Callable[[int], Any],
    to_response: Callable[[Any], Any],
) -> Any:
    """Returns the response, as for nearly every heartbeat, or an awaitable of it. An empty group id is rejected
    (GRP-4). A member needs READ on the group at every call and during the wait: when it loses the right, the response
    is the denial.
    """
    shown_id, group_id = request.group_id, context.view.namespace.internal_id(request.group_id)
    waiting_client = WaitingClient(context.view.instance_id, lambda: context.denial(ResourceType.GROUP, shown_id))
    denied = waiting_client.denial()
    if denied:
        return to_response(error_reply(denied))
    if not shown_id or is_too_long(group_id):
        return to_response(error_reply(int(ErrorCode.INVALID_GROUP_ID)))
    reply = call_group_coordinator(context, group_id, operation, error_reply, waiting_client)
    return _await_response(reply, to_response) if hasattr(reply, "__await__") else to_response(reply)


async def _await_response(reply: Any, to_response: Callable[[Any], Any]) -> Any:
    return to_response(await reply)
