"""Forwarding of calls that list, describe and delete consumer groups, or delete their offsets."""

from __future__ import annotations

from typing import Any, Final

from brokers.contract.acls import AclOperation
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages import groups, offsets
from brokers.engine.scheduling.time_slice import TimeSlice
from brokers.engine.upstream.call import Call
from brokers.engine.upstream.group_calls import GROUP
from brokers.engine.upstream.topic_calls import CLUSTER, TopicLists, forward_allowed

_INVALID_GROUP: Final = int(ErrorCode.INVALID_GROUP_ID)


def _refusal_code(call: Call, group_id: str) -> int:
    return call.denial_code(GROUP, group_id) or (0 if group_id else _INVALID_GROUP)


async def list_groups(call: Call, request: groups.ListGroupsRequest) -> groups.ListGroupsResponse:
    """Forwards a request for all groups, and returns those that the client may describe."""
    response: groups.ListGroupsResponse = await call.forward(request)
    if call.denial_code(CLUSTER, operation=AclOperation.DESCRIBE):
        time_slice, allowed = TimeSlice(), []
        for group in response.groups:
            await time_slice.pause()
            if not call.denial_code(GROUP, group.group_id):
                allowed.append(group)
        response.groups = allowed
    return response


async def describe_groups(call: Call, request: groups.DescribeGroupsRequest) -> groups.DescribeGroupsResponse:
    """Forwards the groups that the client may describe. Members have no address, since the upstream only knows that of
    their gateway; the allowed operations are those of the client, not of the gateway.
    """
    shows_operations = request.include_authorized_operations
    request.include_authorized_operations = False
    allowed, refused = [], []
    time_slice = TimeSlice()
    for group_id in request.groups:
        await time_slice.pause()
        code = _refusal_code(call, group_id)
        if code:
            refused.append(
                groups.DescribedGroup(
                    error_code=code, group_id=group_id, group_state="", protocol_type="", protocol_data=""
                )
            )
        else:
            allowed.append(group_id)
    if refused and not allowed:
        return groups.DescribeGroupsResponse(groups=refused)
    request.groups = allowed
    response: groups.DescribeGroupsResponse = await call.forward(request)
    for group in response.groups:
        for member in group.members:
            member.client_host = ""
            await time_slice.pause()
        if shows_operations and not group.error_code:
            group.authorized_operations = call.context.authorised_operations(GROUP, group.group_id)
        await time_slice.pause()
    response.groups += refused
    return response


async def delete_groups(call: Call, request: groups.DeleteGroupsRequest) -> groups.DeleteGroupsResponse:
    allowed, refused = [], []
    time_slice = TimeSlice()
    for group_id in request.groups_names:
        await time_slice.pause()
        code = _refusal_code(call, group_id)
        if code:
            refused.append(groups.DeletableGroupResult(group_id=group_id, error_code=code))
        else:
            allowed.append(group_id)
    if refused and not allowed:
        return groups.DeleteGroupsResponse(results=refused)
    request.groups_names = allowed
    response: groups.DeleteGroupsResponse = await call.forward(request)
    response.results += refused
    return response


_DELETED: Final = TopicLists(
    topics="topics",
    name="name",
    partitions="partitions",
    results="topics",
    partition_result=lambda partition, code: offsets.OffsetDeleteResponsePartition(
        partition_index=partition.partition_index, error_code=code
    ),
    topic_result=lambda name, results: offsets.OffsetDeleteResponseTopic(name=name, partitions=results),
    response=lambda results: offsets.OffsetDeleteResponse(topics=results),
)


async def delete_offsets(call: Call, request: offsets.OffsetDeleteRequest) -> Any:
    code = _refusal_code(call, request.group_id)
    if code:
        return offsets.OffsetDeleteResponse(error_code=code)
    return await forward_allowed(call, request, _DELETED, call.topic_refusal_code)
