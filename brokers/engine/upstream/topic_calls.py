"""Calls about topics and their records. Topics that the client may not use are answered here; others are forwarded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from brokers.contract.acls import AclOperation, ResourceType
from brokers.engine.handlers.client import ClientContext
from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.mapping import NO_NODE
from brokers.engine.protocol.messages import configs, fetch, list_offsets, metadata, produce, topics
from brokers.engine.scheduling.time_slice import TimeSlice
from brokers.engine.throttling.charging import charge, fetch_cap_bytes, in_debt
from brokers.engine.upstream import metering
from brokers.engine.upstream.call import UNKNOWN_TOPIC, Call
from instances import naming

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
# Maximum bytes of records that one fetch requests; the upstream exceeds them by at most one batch.
FETCH_BYTES_MAX: Final = 16_777_216
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
_NO_SESSION, _NO_SESSION_EPOCH = 0, -1
_CONSUMER: Final = -1
_DENIED_TRANSACTION: Final = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


@dataclass(frozen=True, slots=True)
class TopicLists:
    """Names of the fields that have the topics of a request, the name and the partitions of a topic, and the results of
    the response. `refused_partition` returns the result of a partition that is not forwarded, given its error code;
    `refused_topic` returns the result of a topic, given its name and such results; `response` returns a response with
    such topics only.
    """

    topics: str
    name: str
    partitions: str
    results: str
    refused_partition: Callable[[Any, int], Any]
    refused_topic: Callable[[str, list[Any]], Any]
    response: Callable[[list[Any]], Any]

    async def refused(self, topic: Any, code: int, time_slice: TimeSlice) -> Any:
        """Returns the result of a topic that is not forwarded, which may have very many partitions."""
        results = []
        for partition in getattr(topic, self.partitions):
            results.append(self.refused_partition(partition, code))
            await time_slice.pause()
        return self.refused_topic(getattr(topic, self.name), results)


async def forward_allowed(call: Call, request: Any, lists: TopicLists, refusal: Callable[[str], int]) -> Any:
    """Forwards the topics without a `refusal`, and adds the results of the others. If all topics are refused, nothing
    is forwarded.
    """
    allowed, refused = await split(request, lists, refusal)
    if refused and not allowed:
        return lists.response(refused)
    setattr(request, lists.topics, allowed)
    response = await call.forward(request)
    getattr(response, lists.results).extend(refused)
    return response


async def refuse_all(request: Any, lists: TopicLists, code: int) -> Any:
    """Returns a response with one error code for all topics of the request, also if it lists none."""
    _, refused = await split(request, lists, lambda _name: code)
    return lists.response(refused)


async def split(request: Any, lists: TopicLists, refusal: Callable[[str], int]) -> tuple[list[Any], list[Any]]:
    """Returns the topics without a `refusal`, and the results of the others."""
    time_slice = TimeSlice()
    allowed, refused = [], []
    for topic in getattr(request, lists.topics):
        code = refusal(getattr(topic, lists.name))
        if code:
            refused.append(await lists.refused(topic, code, time_slice))
        else:
            allowed.append(topic)
        await time_slice.pause()
    return allowed, refused


# -- records ----------------------------------------------------------------------------------------------------------

_PRODUCED: Final = TopicLists(
    "topic_data",
    "name",
    "partition_data",
    "responses",
    lambda data, code: produce.PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1),
    lambda name, partitions: produce.TopicProduceResponse(name=name, partition_responses=partitions),
    lambda results: produce.ProduceResponse(responses=results),
)


async def produce_records(call: Call, client: ClientContext, request: produce.ProduceRequest, size_bytes: int) -> Any:
    """Forwards records. Returns None without acknowledgements; a refusal then closes the connection, as in Kafka."""
    now_ms = call.context.services.clock.monotonic_ms()
    call.delay_ms, call.limiter = charge(client.produce_limiters, size_bytes, now_ms)
    transactional_id = request.transactional_id
    is_denied = transactional_id is not None and call.denied(ResourceType.TRANSACTIONAL_ID, transactional_id)
    refusal = call.topic_refusal if not is_denied else lambda _name: _DENIED_TRANSACTION
    if request.acks:
        if is_denied:
            return await refuse_all(request, _PRODUCED, _DENIED_TRANSACTION)
        sent = await metering.record_bytes_of(request)
        response = await forward_allowed(call, request, _PRODUCED, refusal)
        await metering.count_produced(call.context.services, client, sent, response)
        return response
    allowed, refused = await split(request, _PRODUCED, refusal)
    if allowed:
        request.topic_data = allowed
        sent = await metering.record_bytes_of(request)
        await call.send(request)
        metering.count_sent(call.context.services, client, sent)
    call.closes = bool(refused)
    return None


_FETCHED: Final = TopicLists(
    "topics",
    "topic",
    "partitions",
    "responses",
    lambda partition, code: fetch.FetchPartitionData(
        partition_index=partition.partition, error_code=code, high_watermark=-1, records=b""
    ),
    lambda name, partitions: fetch.FetchableTopicResponse(topic=name, partitions=partitions),
    lambda results: fetch.FetchResponse(responses=results),
)


async def fetch_records(call: Call, client: ClientContext, request: fetch.FetchRequest) -> fetch.FetchResponse:
    """Forwards a fetch without a fetch session: session ids belong to the upstream broker, and those of other clients
    could be guessed. A client in debt gets no records until the bytes that it has read are paid.
    """
    if request.session_id != _NO_SESSION:
        return fetch.FetchResponse(error_code=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    limiters, now_ms = client.consume_limiters, call.context.services.clock.monotonic_ms()
    debt = in_debt(limiters, now_ms)
    if debt is not None:
        call.delay_ms, call.limiter = debt.debt_ms(now_ms), debt
        return fetch.FetchResponse()
    request.session_epoch, request.forgotten_topics_data = _NO_SESSION_EPOCH, []
    request.replica_id, request.cluster_id = _CONSUMER, None
    request.max_bytes = fetch_cap_bytes(limiters, max(1, min(request.max_bytes, FETCH_BYTES_MAX)))
    time_slice = TimeSlice()
    for topic in request.topics:
        for partition in topic.partitions:
            partition.partition_max_bytes = min(partition.partition_max_bytes, request.max_bytes)
            await time_slice.pause()
    response: fetch.FetchResponse = await forward_allowed(call, request, _FETCHED, call.topic_refusal)
    response.session_id = _NO_SESSION
    now_ms = call.context.services.clock.monotonic_ms()
    call.delay_ms, call.limiter = charge(limiters, call.size_bytes, now_ms)
    await metering.count_consumed(call.context.services, client, response)
    return response


_OFFSETS: Final = TopicLists(
    "topics",
    "name",
    "partitions",
    "topics",
    lambda partition, code: list_offsets.ListOffsetsPartitionResponse(
        partition_index=partition.partition_index, error_code=code
    ),
    lambda name, partitions: list_offsets.ListOffsetsTopicResponse(name=name, partitions=partitions),
    lambda results: list_offsets.ListOffsetsResponse(topics=results),
)


async def find_offsets(call: Call, request: list_offsets.ListOffsetsRequest) -> Any:
    request.replica_id = _CONSUMER
    return await forward_allowed(call, request, _OFFSETS, call.topic_refusal)


# -- metadata ---------------------------------------------------------------------------------------------------------


async def describe_topics(call: Call, request: metadata.MetadataRequest) -> metadata.MetadataResponse:
    """Forwards a request for metadata. It never creates missing topics, since creations are counted."""
    context, is_for_all = call.context, request.topics is None
    shows_topic_operations = request.include_topic_authorized_operations
    shows_cluster_operations = request.include_cluster_authorized_operations
    request.allow_auto_topic_creation = False
    request.include_topic_authorized_operations = request.include_cluster_authorized_operations = False
    refused: list[metadata.MetadataResponseTopic] = []
    time_slice = TimeSlice()
    if request.topics is not None:
        allowed = []
        for requested in request.topics:
            code = _metadata_refusal(call, requested.name or "")
            if code:
                refused.append(metadata.MetadataResponseTopic(error_code=code, name=requested.name or ""))
            else:
                allowed.append(requested)
            await time_slice.pause()
        request.topics = allowed
    response: metadata.MetadataResponse = await call.forward(request)
    if is_for_all:
        visible = []
        for topic in response.topics:
            await time_slice.pause()
            if not call.denied(TOPIC, topic.name or ""):
                visible.append(topic)
        response.topics = visible
    response.brokers = [broker for broker in response.brokers if broker.node_id != NO_NODE]
    for topic in response.topics:
        topic.is_internal = False
        _hide_unknown_leaders(topic)
        if shows_topic_operations:
            topic.topic_authorized_operations = context.authorised_operations(TOPIC, topic.name or "")
        await time_slice.pause()
    response.topics += refused
    if shows_cluster_operations and not call.denied(CLUSTER, operation=AclOperation.DESCRIBE):
        response.cluster_authorized_operations = context.authorised_operations(CLUSTER)
    return response


def _metadata_refusal(call: Call, name: str) -> int:
    if denied := call.denied(TOPIC, name):
        return denied
    return 0 if naming.is_valid_topic_name(name) else int(ErrorCode.INVALID_TOPIC_EXCEPTION)


def _hide_unknown_leaders(topic: metadata.MetadataResponseTopic) -> None:
    """Sets LEADER_NOT_AVAILABLE on partitions whose leader has no address for the instance."""
    for partition in topic.partitions:
        if partition.leader_id == NO_NODE and not partition.error_code:
            partition.error_code = int(ErrorCode.LEADER_NOT_AVAILABLE)


# -- administration ---------------------------------------------------------------------------------------------------


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
                    partitions_left = partitions_max - await _partition_count(call)
                if topic.num_partitions > partitions_left:
                    text = (
                        f"the instance may have {partitions_max} partitions, {max(partitions_left, 0)} more than it has"
                    )
                    reason = ErrorCode.POLICY_VIOLATION, text
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
        if call.denied(TOPIC, result.name, AclOperation.DESCRIBE_CONFIGS):
            result.configs, result.num_partitions, result.replication_factor = None, -1, -1
            result.topic_config_error_code = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    response.topics += refused
    return response


def _creation_refusal(call: Call, topic: topics.CreatableTopic) -> tuple[ErrorCode, str] | None:
    if call.denied(CLUSTER, operation=AclOperation.CREATE) and call.denied(TOPIC, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."
    if not naming.is_valid_topic_name(topic.name) or topic.name in naming.RESERVED_TOPIC_NAMES:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, "no topic can have this name"
    if topic.assignments:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the upstream cluster assigns replicas"
    unknown = sorted({config.name for config in topic.configs} - CONFIGS)
    if unknown:
        return ErrorCode.INVALID_CONFIG, f"not set through a gateway: {', '.join(unknown)[:200]}"
    return None


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
    count = sum(counts.values())
    if count <= partitions_max:
        return
    deletion = topics.DeleteTopicsRequest(topic_names=list(created), timeout_ms=DELETION_TIMEOUT_MS)
    await call.request(ApiKey.DELETE_TOPICS, call.served[ApiKey.DELETE_TOPICS][1], deletion)
    text = f"the instance may have {partitions_max} partitions, and others were created at the same time"
    for result in created.values():
        result.error_code, result.error_message = int(ErrorCode.POLICY_VIOLATION), text


async def _partition_count(call: Call) -> int:
    return sum((await _partition_counts(call)).values())


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


async def delete_topics(call: Call, request: topics.DeleteTopicsRequest) -> topics.DeleteTopicsResponse:
    allowed, refused = [], []
    time_slice = TimeSlice()
    for name in request.topic_names:
        await time_slice.pause()
        code = call.topic_refusal(name)
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
            code = call.denied(CLUSTER) or int(ErrorCode.INVALID_REQUEST)
            reason = "only topics have a configuration here"
        else:
            code = call.denied(TOPIC, resource.resource_name)
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
