"""Calls about consumer groups: coordinators, members, and committed offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from brokers.contract.acls import ResourceType
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.mapping import NO_NODE
from brokers.engine.protocol.messages import groups, offsets
from brokers.engine.scheduling.time_slice import TimeSlice
from brokers.engine.upstream.call import Call
from brokers.engine.upstream.topic_calls import TOPIC, TopicLists, forward_allowed, refuse_all, split

GROUP, TRANSACTION = ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
_RESOURCES: Final = {0: GROUP, 1: TRANSACTION}
# First versions that name several coordinators, and several groups.
_MANY_KEYS_FROM: Final = 4
_MANY_GROUPS_FROM: Final = 8
_NOT_AVAILABLE: Final = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
_INVALID_REQUEST: Final = int(ErrorCode.INVALID_REQUEST)
_INVALID_GROUP: Final = int(ErrorCode.INVALID_GROUP_ID)
_NO_OFFSET: Final = -1


async def find_coordinator(call: Call, request: groups.FindCoordinatorRequest) -> Any:
    """Forwards the keys that the client may describe. A coordinator without an address for the instance is reported as
    not available.
    """
    resource = _RESOURCES.get(request.key_type)
    if call.context.version < _MANY_KEYS_FROM:
        code = _INVALID_REQUEST if resource is None else call.denial_code(resource, request.key)
        if code:
            return groups.FindCoordinatorResponse(error_code=code, error_message="", node_id=NO_NODE, port=-1)
        response = await call.forward(request)
        if response.node_id == NO_NODE and not response.error_code:
            response.error_code = _NOT_AVAILABLE
        return response
    refused, allowed = [], []
    time_slice = TimeSlice()
    for key in request.coordinator_keys:
        await time_slice.pause()
        code = _INVALID_REQUEST if resource is None else call.denial_code(resource, key)
        if code:
            refused.append(groups.Coordinator(key=key, node_id=NO_NODE, port=-1, error_code=code, error_message=""))
        else:
            allowed.append(key)
    if refused and not allowed:
        return groups.FindCoordinatorResponse(coordinators=refused)
    request.coordinator_keys = allowed
    response = await call.forward(request)
    for coordinator in response.coordinators:
        await time_slice.pause()
        if coordinator.node_id == NO_NODE and not coordinator.error_code:
            coordinator.error_code = _NOT_AVAILABLE
    response.coordinators += refused
    return response


def _member_call(response: Callable[[int], Any]) -> Callable[[Call, Any], Any]:
    """Returns the handler of a call that group members make. `response` makes the response for an error code."""

    async def handle(call: Call, request: Any) -> Any:
        code = call.denial_code(GROUP, request.group_id) or (0 if request.group_id else _INVALID_GROUP)
        return response(code) if code else await call.forward(request)

    return handle


join_group = _member_call(lambda code: groups.JoinGroupResponse(error_code=code, protocol_name=""))
sync_group = _member_call(lambda code: groups.SyncGroupResponse(error_code=code))
heartbeat = _member_call(lambda code: groups.HeartbeatResponse(error_code=code))
leave_group = _member_call(lambda code: groups.LeaveGroupResponse(error_code=code))


_COMMITTED: Final = TopicLists(
    topics="topics",
    name="name",
    partitions="partitions",
    results="topics",
    partition_result=lambda partition, code: offsets.OffsetCommitResponsePartition(
        partition_index=partition.partition_index, error_code=code
    ),
    topic_result=lambda name, results: offsets.OffsetCommitResponseTopic(name=name, partitions=results),
    response=lambda results: offsets.OffsetCommitResponse(topics=results),
)


async def commit_offsets(call: Call, request: offsets.OffsetCommitRequest) -> Any:
    code = call.denial_code(GROUP, request.group_id)
    if code:
        return await refuse_all(request, _COMMITTED, code)
    return await forward_allowed(call, request, _COMMITTED, call.topic_refusal_code)


_FETCHED: Final = TopicLists(
    topics="topics",
    name="name",
    partitions="partition_indexes",
    results="topics",
    partition_result=lambda index, code: offsets.OffsetFetchResponsePartition(
        partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=code
    ),
    topic_result=lambda name, results: offsets.OffsetFetchResponseTopic(name=name, partitions=results),
    response=lambda results: offsets.OffsetFetchResponse(topics=results),
)
_FETCHED_OF_GROUP: Final = TopicLists(
    topics="topics",
    name="name",
    partitions="partition_indexes",
    results="topics",
    partition_result=lambda index, code: offsets.OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=code
    ),
    topic_result=lambda name, results: offsets.OffsetFetchResponseTopics(name=name, partitions=results),
    response=lambda results: offsets.OffsetFetchResponseGroup(topics=results),
)


async def fetch_offsets(call: Call, request: offsets.OffsetFetchRequest) -> Any:
    """Forwards a request for committed offsets; one without topics returns all topics that the client may describe."""
    if call.context.version >= _MANY_GROUPS_FROM:
        return await _fetch_offsets_of_groups(call, request)
    code = call.denial_code(GROUP, request.group_id)
    if code:
        request.topics = request.topics or []
        response = await refuse_all(request, _FETCHED, code)
        response.error_code = code
        return response
    if request.topics is not None:
        return await forward_allowed(call, request, _FETCHED, call.topic_refusal_code)
    response = await call.forward(request)
    response.topics = await _describable(call, response.topics)
    return response


async def _describable(call: Call, topics: Iterable[Any]) -> list[Any]:
    """Returns the topics that the client may describe."""
    time_slice, allowed = TimeSlice(), []
    for topic in topics:
        await time_slice.pause()
        if not call.denial_code(TOPIC, topic.name):
            allowed.append(topic)
    return allowed


async def _fetch_offsets_of_groups(call: Call, request: offsets.OffsetFetchRequest) -> Any:
    allowed, refused = [], []
    # Results of topics that are not forwarded, by group; a group whose request is for all topics is not in it.
    refused_topics: dict[str, list[Any]] = {}
    time_slice = TimeSlice()
    for group in request.groups:
        await time_slice.pause()
        code = call.denial_code(GROUP, group.group_id)
        if code:
            refused.append(offsets.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code))
            continue
        if group.topics is not None:
            group.topics, refused_topics[group.group_id] = await split(
                group, _FETCHED_OF_GROUP, call.topic_refusal_code
            )
        allowed.append(group)
    if refused and not allowed:
        return offsets.OffsetFetchResponse(groups=refused)
    request.groups = allowed
    response = await call.forward(request)
    for group in response.groups:
        await time_slice.pause()
        group.topics = await _describable(call, group.topics)
        group.topics += refused_topics.get(group.group_id, ())
    response.groups += refused
    return response
