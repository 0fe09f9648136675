"""DescribeGroups and ListGroups: groups as their owner sees them (GRP-29, CKA-16)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from copy import copy
from itertools import repeat
from typing import Any, Final

from brokers.contract.acls import CLUSTER_NAME, AclOperation, ResourceType
from brokers.engine.coordinators.groups.replies import DescribeReply
from brokers.engine.coordinators.limits import is_too_long
from brokers.engine.handlers.common.long_requests import repetitions_beyond_limit
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.groups.coordinator_calls import call_group_coordinator
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.groups import (
    OPERATIONS_NOT_ASKED,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from brokers.engine.scheduling.time_slice import TimeSlice, yield_to_others

# READ, DELETE and DESCRIBE as bits by operation number: all operations on groups.
GROUP_OPERATIONS: Final = sum(1 << operation for operation in (3, 6, 8))
CLASSIC: Final = "classic"
# Maximum number of groups described in one call; further ones get INVALID_REQUEST.
DESCRIBED_MAX: Final = 10_000
# Groups with records that are not yet replicated are awaited together, with a task for each.
DESCRIBED_PER_TURN_MAX: Final = 50


def describe_groups(context: RequestContext, request: DescribeGroupsRequest) -> Any:
    """Answers synchronously, unless a record of a group is not yet replicated."""
    if len(request.groups) > DESCRIBED_PER_TURN_MAX:
        return _describe_many(context, request)
    replies = [
        DescribeReply(int(ErrorCode.INVALID_REQUEST)) if excess else _describe(context, group_id)
        for group_id, excess in zip(request.groups, repetitions_beyond_limit(request.groups), strict=True)
    ]
    if any(hasattr(reply, "__await__") for reply in replies):
        return _describe_awaited(context, request, replies)
    return _response(context, request, replies)


async def _describe_many(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups: list[DescribedGroup] = []
    are_too_many = len(request.groups) > DESCRIBED_MAX
    excess = repeat(True) if are_too_many else repetitions_beyond_limit(request.groups)
    for begin in range(0, len(request.groups), DESCRIBED_PER_TURN_MAX):
        part = copy(request)
        part.groups = request.groups[begin : begin + DESCRIBED_PER_TURN_MAX]
        refused = DescribeReply(int(ErrorCode.INVALID_REQUEST))
        replies = [refused if next(excess) else _describe(context, group_id) for group_id in part.groups]
        groups += (await _describe_awaited(context, part, replies)).groups
        await yield_to_others()
    return DescribeGroupsResponse(groups=groups)


def _describe(context: RequestContext, shown_id: str) -> Any:
    group_id = context.view.namespace.internal_id(shown_id)
    denied = context.denial(ResourceType.GROUP, shown_id)
    if denied:
        return DescribeReply(denied)
    if is_too_long(group_id):
        return DescribeReply(int(ErrorCode.INVALID_GROUP_ID))
    return call_group_coordinator(
        context,
        group_id,
        lambda machine, now, ticket: machine.describe(group_id),
        DescribeReply,
    )


async def _describe_awaited(
    context: RequestContext, request: DescribeGroupsRequest, replies: list[Any]
) -> DescribeGroupsResponse:
    awaited_replies = iter(await asyncio.gather(*(reply for reply in replies if hasattr(reply, "__await__"))))
    return _response(
        context, request, [next(awaited_replies) if hasattr(reply, "__await__") else reply for reply in replies]
    )


def _response(
    context: RequestContext, request: DescribeGroupsRequest, replies: list[DescribeReply]
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(
                error_code=reply.error,
                group_id=group_id,
                group_state=reply.state,
                protocol_type=reply.protocol_type,
                protocol_data=reply.protocol,
                members=[
                    DescribedGroupMember(
                        member_id=member.member_id,
                        group_instance_id=member.group_instance_id,
                        client_id=member.client_id,
                        client_host=member.client_host,
                        member_metadata=member.metadata,
                        member_assignment=member.assignment,
                    )
                    for member in reply.members
                ],
                authorized_operations=(
                    GROUP_OPERATIONS & context.authorised_operations(ResourceType.GROUP, group_id)
                    if request.include_authorized_operations and not reply.error
                    else OPERATIONS_NOT_ASKED
                ),
            )
            for group_id, reply in zip(request.groups, replies, strict=True)
        ]
    )


def list_groups(
    context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse | Awaitable[ListGroupsResponse]:
    """Lists the groups that this broker coordinates; a client asks every broker. Without DESCRIBE on the cluster, the
    list has the groups that the client may describe.
    """
    listed = _list(context, request)
    if context.denial(ResourceType.CLUSTER, CLUSTER_NAME, AclOperation.DESCRIBE):
        return _without_denied(context, listed)
    return listed


async def _without_denied(context: RequestContext, listed: ListGroupsResponse) -> ListGroupsResponse:
    time_slice = TimeSlice()
    allowed = []
    for group in listed.groups:
        if not context.denial(ResourceType.GROUP, group.group_id):
            allowed.append(group)
        await time_slice.pause()
    listed.groups = allowed
    return listed


def _list(context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    runtime = context.services.coordination.groups
    if runtime is None:
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, groups=[])
    states = {state.lower() for state in request.states_filter or ()}
    types = {type.lower() for type in request.types_filter or ()}
    includes_classic = not types or CLASSIC in types
    loading = False
    groups = []
    namespace = context.view.namespace
    for shard in runtime.shards():
        loading = loading or shard.loading
        for result in (
            shard.machine.list_groups(context.view.instance_id) if includes_classic and not shard.loading else ()
        ):
            shown = namespace.client_id_of(result.group_id)
            if shown is not None and (not states or result.state.lower() in states):
                groups.append(
                    ListedGroup(
                        group_id=shown, protocol_type=result.protocol_type, group_state=result.state, group_type=CLASSIC
                    )
                )
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NONE
    return ListGroupsResponse(error_code=int(code), groups=groups)
