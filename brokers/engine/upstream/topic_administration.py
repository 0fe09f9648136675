"""Calls that administer topics: creation, deletion, more partitions, configurations, deletion of records."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from brokers.contract.acls import AclOperation
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages import configs, metadata, topics
from brokers.engine.scheduling.time_slice import TimeSlice
from brokers.engine.upstream.call import UNKNOWN_TOPIC, Call
from brokers.engine.upstream.topic_calls import CLUSTER, TOPIC, TopicLists, forward_allowed
from instances import naming

# Configurations that a tenant may set on a new topic: those that concern only its own records, and do not make the
# upstream open more files than for another topic.
CONFIGS: Final = frozenset(
    {
        "cleanup.policy", "compression.type", "delete.retention.ms", "max.compaction.lag.ms", "max.message.bytes",
        "message.timestamp.after.max.ms", "message.timestamp.before.max.ms", "message.timestamp.type",
        "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "min.insync.replicas", "retention.bytes", "retention.ms",
    }
)  # fmt: skip
TOPIC_RESOURCE: Final = 2
# Attempts, and the interval between them, until the upstream broker shows the topics that it was asked to create.
SHOWN_ATTEMPTS_MAX: Final = 50
SHOWN_INTERVAL_S: Final = 0.1
DELETION_TIMEOUT_MS: Final = 10_000
_NO_OFFSET: Final = -1


async def create_topics(
    call: Call, request: topics.CreateTopicsRequest, lock: asyncio.Lock, partitions_max: int
) -> topics.CreateTopicsResponse:
    """Forwards creations within `partitions_max`, the limit of the instance, one request of an instance at a time."""
    default_partitions = 1
    if call.context.view.instance is not None:
        default_partitions = call.context.view.instance.document.settings.default_partitions
    async with lock:
        allowed, refused = [], []
        partitions_left: int | None = None
        time_slice = TimeSlice()
        for topic in request.topics:
            await time_slice.pause()
            reason = _creation_refusal(call, topic)
            if reason is None:
                if topic.num_partitions < 1:
                    topic.num_partitions = default_partitions
                if partitions_left is None:
                    partitions_left = partitions_max - sum((await _partition_counts(call)).values())
                if topic.num_partitions > partitions_left:
                    reason = _too_many_partitions(partitions_max, partitions_left)
                else:
                    partitions_left -= topic.num_partitions
            if reason is None:
                allowed.append(topic)
            else:
                refused.append(
                    topics.CreatableTopicResult(name=topic.name, error_code=int(reason[0]), error_message=reason[1])
                )
        if refused and not allowed:
            return topics.CreateTopicsResponse(topics=refused)
        request.topics = allowed
        validates_only = request.validate_only
        response: topics.CreateTopicsResponse = await call.forward(request)
        if not validates_only:
            await _undo_excess(call, response, partitions_max)
    for result in response.topics:
        await time_slice.pause()
        if call.denial_code(TOPIC, result.name, AclOperation.DESCRIBE_CONFIGS):
            result.configs, result.num_partitions, result.replication_factor = None, -1, -1
            result.topic_config_error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    response.topics += refused
    return response


def _creation_refusal(call: Call, topic: topics.CreatableTopic) -> tuple[ErrorCode, str] | None:
    if call.denial_code(CLUSTER, operation=AclOperation.CREATE) and call.denial_code(TOPIC, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."
    if not naming.is_valid_topic_name(topic.name) or topic.name in naming.RESERVED_TOPIC_NAMES:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, "no topic can have this name"
    if topic.assignments:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the upstream cluster assigns replicas"
    return _config_refusal({config.name for config in topic.configs})


def _config_refusal(names: set[str]) -> tuple[ErrorCode, str] | None:
    """Returns the reason for which configurations cannot be set; None if they can."""
    unknown = sorted(names - CONFIGS)
    if unknown:
        return ErrorCode.INVALID_CONFIG, f"not set through a gateway: {', '.join(unknown)[:200]}"
    return None


async def _partition_counts(call: Call) -> dict[str, int]:
    """Returns the number of partitions of each topic of the instance."""
    version = call.served[ApiKey.METADATA][1]
    request = metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    response: metadata.MetadataResponse = await call.request(ApiKey.METADATA, version, request)
    time_slice, counts = TimeSlice(), {}
    for topic in response.topics:
        counts[topic.name or ""] = len(topic.partitions)
        await time_slice.pause()
    return counts


async def _undo_excess(call: Call, response: topics.CreateTopicsResponse, partitions_max: int) -> None:
    """Deletes the topics of a response again, and marks their results as refused, if the instance has more than
    `partitions_max` partitions with them, because another gateway created topics at the same time.

    Brokers learn of topics in one order, so that of two gateways at least the one whose topics are later counts both.
    """
    created = {result.name: result for result in response.topics if not result.error_code}
    if not created:
        return
    for _ in range(SHOWN_ATTEMPTS_MAX):
        counts = await _partition_counts(call)
        if counts.keys() >= created.keys():
            break
        await asyncio.sleep(SHOWN_INTERVAL_S)
    if sum(counts.values()) <= partitions_max:
        return
    deletion = topics.DeleteTopicsRequest(topic_names=list(created), timeout_ms=DELETION_TIMEOUT_MS)
    await call.request(ApiKey.DELETE_TOPICS, call.served[ApiKey.DELETE_TOPICS][1], deletion)
    text = f"the instance may have {partitions_max} partitions, and others were created at the same time"
    for result in created.values():
        result.error_code, result.error_message = int(ErrorCode.POLICY_VIOLATION), text


def _too_many_partitions(partitions_max: int, partitions_left: int) -> tuple[ErrorCode, str]:
    text = f"the instance may have {partitions_max} partitions, {max(partitions_left, 0)} more than it has"
    return ErrorCode.POLICY_VIOLATION, text


async def create_partitions(
    call: Call, request: topics.CreatePartitionsRequest, lock: asyncio.Lock, partitions_max: int
) -> topics.CreatePartitionsResponse:
    """Forwards additions of partitions within `partitions_max`, the limit of the instance, one request of an instance
    at a time.
    """
    async with lock:
        allowed, refused = [], []
        counts: dict[str, int] | None = None
        partitions_left = 0
        time_slice = TimeSlice()
        for topic in request.topics:
            await time_slice.pause()
            reason = _growth_refusal(call, topic)
            if reason is None:
                if counts is None:
                    counts = await _partition_counts(call)
                    partitions_left = partitions_max - sum(counts.values())
                added = topic.count - counts.get(topic.name, topic.count)
                if added > partitions_left:
                    reason = _too_many_partitions(partitions_max, partitions_left)
                else:
                    partitions_left -= max(added, 0)
            if reason is None:
                allowed.append(topic)
            else:
                refused.append(
                    topics.CreatePartitionsTopicResult(
                        name=topic.name, error_code=int(reason[0]), error_message=reason[1]
                    )
                )
        if refused and not allowed:
            return topics.CreatePartitionsResponse(results=refused)
        request.topics = allowed
        response: topics.CreatePartitionsResponse = await call.forward(request)
    response.results += refused
    return response


def _growth_refusal(call: Call, topic: topics.CreatePartitionsTopic) -> tuple[ErrorCode, str] | None:
    code = call.topic_refusal_code(topic.name)
    if code:
        return ErrorCode(code), "Authorization failed." if code != UNKNOWN_TOPIC else "There is no such topic."
    if topic.assignments:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the upstream cluster assigns replicas"
    return None


async def delete_topics(call: Call, request: topics.DeleteTopicsRequest) -> topics.DeleteTopicsResponse:
    allowed, refused = [], []
    time_slice = TimeSlice()
    for name in request.topic_names:
        await time_slice.pause()
        code = call.topic_refusal_code(name)
        if code:
            refused.append(topics.DeletableTopicResult(name=name, error_code=code))
        else:
            allowed.append(name)
    request.topic_names = allowed
    if refused and not allowed:
        return topics.DeleteTopicsResponse(responses=refused)
    response: topics.DeleteTopicsResponse = await call.forward(request)
    response.responses += refused
    return response


async def describe_configs(call: Call, request: configs.DescribeConfigsRequest) -> configs.DescribeConfigsResponse:
    """Forwards requests for configurations of topics; those of brokers are the upstream operator's."""
    allowed, refused = [], []
    time_slice = TimeSlice()
    for resource in request.resources:
        await time_slice.pause()
        code, reason = 0, "Authorization failed."
        if resource.resource_type != TOPIC_RESOURCE:
            code = call.denial_code(CLUSTER) or int(ErrorCode.INVALID_REQUEST)
            reason = "only topics have a configuration here"
        else:
            code = call.denial_code(TOPIC, resource.resource_name)
            if not code and not naming.is_valid_topic_name(resource.resource_name):
                code, reason = UNKNOWN_TOPIC, "no topic can have this name"
        if code:
            refused.append(
                configs.DescribeConfigsResult(
                    error_code=code,
                    error_message=reason,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
        else:
            allowed.append(resource)
    if refused and not allowed:
        return configs.DescribeConfigsResponse(results=refused)
    request.resources = allowed
    response: configs.DescribeConfigsResponse = await call.forward(request)
    response.results += refused
    return response


async def alter_configs(
    call: Call, request: configs.IncrementalAlterConfigsRequest
) -> configs.IncrementalAlterConfigsResponse:
    """Forwards changes to those configurations of topics that a tenant may set."""
    allowed, refused = [], []
    time_slice = TimeSlice()
    for resource in request.resources:
        await time_slice.pause()
        reason = _alteration_refusal(call, resource)
        if reason is None:
            allowed.append(resource)
        else:
            refused.append(
                configs.IncrementalAlterConfigsResourceResponse(
                    error_code=int(reason[0]),
                    error_message=reason[1],
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
    if refused and not allowed:
        return configs.IncrementalAlterConfigsResponse(responses=refused)
    request.resources = allowed
    response: configs.IncrementalAlterConfigsResponse = await call.forward(request)
    response.responses += refused
    return response


def _alteration_refusal(call: Call, resource: configs.IncrementalAlterConfigsResource) -> tuple[ErrorCode, str] | None:
    if resource.resource_type != TOPIC_RESOURCE:
        code = ErrorCode(call.denial_code(CLUSTER) or int(ErrorCode.INVALID_REQUEST))
        return code, "only topics have a configuration here"
    denied = call.denial_code(TOPIC, resource.resource_name)
    if denied:
        return ErrorCode(denied), "Authorization failed."
    if not naming.is_valid_topic_name(resource.resource_name):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic can have this name"
    return _config_refusal({config.name for config in resource.configs})


_DELETED: Final = TopicLists(
    topics="topics",
    name="name",
    partitions="partitions",
    results="topics",
    partition_result=lambda partition, code: topics.DeleteRecordsPartitionResult(
        partition_index=partition.partition_index, low_watermark=_NO_OFFSET, error_code=code
    ),
    topic_result=lambda name, results: topics.DeleteRecordsTopicResult(name=name, partitions=results),
    response=lambda results: topics.DeleteRecordsResponse(topics=results),
)


async def delete_records(call: Call, request: topics.DeleteRecordsRequest) -> Any:
    return await forward_allowed(call, request, _DELETED, call.topic_refusal_code)
