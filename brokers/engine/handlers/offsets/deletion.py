"""OffsetDelete and DeleteGroups: deletes committed offsets of a group, or the whole group (GRP-27)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from brokers.contract.acls import ResourceType
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.groups.coordinator_calls import call_group_coordinator
from brokers.engine.handlers.offsets.offsets import PartitionResults, id_refusal
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from brokers.engine.protocol.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from brokers.engine.scheduling.time_slice import TimeSlice

GROUPS_PER_REQUEST_MAX: Final = 10_000
# Deletions that are awaited together; each is an append.
GROUPS_AT_ONCE: Final = 50


async def offset_delete(context: RequestContext, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    """Deletes offsets. An error of the group is the result of the whole request."""
    results: PartitionResults[OffsetDeleteResponsePartition, OffsetDeleteRequestPartition] = PartitionResults(
        context,
        request.topics,
        lambda index, code: OffsetDeleteResponsePartition(partition_index=index, error_code=code),
    )
    group_id = context.view.namespace.internal_id(request.group_id)
    refusal = int(ErrorCode.INVALID_GROUP_ID) if not request.group_id else id_refusal(group_id)
    refusal = context.denial(ResourceType.GROUP, request.group_id) or refusal
    if refusal:
        return OffsetDeleteResponse(error_code=refusal, topics=[])
    keys = [(topic, requested_partition.partition_index) for topic, requested_partition, _ in results.allowed]
    reply = call_group_coordinator(
        context,
        group_id,
        lambda machine, now, ticket: machine.removals.delete_offsets(now, group_id, keys, ticket),
        lambda code: (code, []),
    )
    error, codes = await reply if isinstance(reply, Awaitable) else reply
    if error:
        return OffsetDeleteResponse(error_code=error, topics=[])
    results.complete(codes)
    return OffsetDeleteResponse(
        topics=[OffsetDeleteResponseTopic(name=name, partitions=result) for name, result in results.by_topic]
    )


async def delete_groups(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    names = list(dict.fromkeys(request.groups_names))
    requested_names = names[:GROUPS_PER_REQUEST_MAX]
    codes: list[int] = []
    time_slice = TimeSlice()
    for start in range(0, len(requested_names), GROUPS_AT_ONCE):
        replies = []
        for name in requested_names[start : start + GROUPS_AT_ONCE]:
            replies.append(_delete(context, name))
            await time_slice.pause()
        awaited_replies = iter(await asyncio.gather(*(reply for reply in replies if isinstance(reply, Awaitable))))
        codes += [next(awaited_replies) if isinstance(reply, Awaitable) else reply for reply in replies]
    codes += [int(ErrorCode.INVALID_REQUEST)] * (len(names) - len(codes))
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=name, error_code=code) for name, code in zip(names, codes, strict=True)]
    )


def _delete(context: RequestContext, name: str) -> int | Awaitable[int]:
    """Deletes a group, synchronously if nothing has to be written."""
    group_id = context.view.namespace.internal_id(name)
    refusal = context.denial(ResourceType.GROUP, name) or id_refusal(group_id)
    if refusal:
        return refusal
    reply: int | Awaitable[int] = call_group_coordinator(
        context,
        group_id,
        lambda machine, now, ticket: machine.removals.delete_group(now, group_id, ticket),
        int,
    )
    return reply
