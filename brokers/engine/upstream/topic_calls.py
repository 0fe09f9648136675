"""Calls about topics and their records. Topics that the client may not use are answered here; others are forwarded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from brokers.contract.acls import AclOperation, ResourceType
from brokers.engine.handlers.client import ClientContext
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.mapping import NO_NODE
from brokers.engine.protocol.messages import fetch, list_offsets, metadata, produce
from brokers.engine.scheduling.time_slice import TimeSlice
from brokers.engine.throttling.charging import charge, fetch_cap_bytes, find_longest_debt
from brokers.engine.upstream import metering
from brokers.engine.upstream.call import Call
from brokers.engine.upstream.storage import UpstreamStorage
from instances import naming

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
# Maximum bytes of records that one fetch requests; the upstream exceeds them by at most one batch.
FETCH_BYTES_MAX: Final = 16_777_216
_NO_SESSION, _NO_SESSION_EPOCH = 0, -1
_CONSUMER: Final = -1
_DENIED_TRANSACTION: Final = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


@dataclass(frozen=True, slots=True)
class TopicLists:
    """Topics and partitions of a call. `topics` is the field of the request that has them, `name` and `partitions` are
    fields of each topic, and `results` is the field of the response that has the results by topic.

    `partition_result` returns the result of a partition, as it is listed in the request, for an error code;
    `topic_result` that of a topic from its name and the results of its partitions; `response` a response with results
    of topics only.
    """

    topics: str
    name: str
    partitions: str
    results: str
    partition_result: Callable[[Any, int], Any]
    topic_result: Callable[[str, list[Any]], Any]
    response: Callable[[list[Any]], Any]

    async def refused_result(self, topic: Any, code: int, time_slice: TimeSlice) -> Any:
        """Returns the result of a topic that is not forwarded. One topic may have all partitions of a request."""
        results = []
        for partition in getattr(topic, self.partitions):
            results.append(self.partition_result(partition, code))
            await time_slice.pause()
        return self.topic_result(getattr(topic, self.name), results)


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
            refused.append(await lists.refused_result(topic, code, time_slice))
        else:
            allowed.append(topic)
        await time_slice.pause()
    return allowed, refused


# -- records ----------------------------------------------------------------------------------------------------------

_PRODUCED: Final = TopicLists(
    topics="topic_data",
    name="name",
    partitions="partition_data",
    results="responses",
    partition_result=lambda data, code: produce.PartitionProduceResponse(
        index=data.index, error_code=code, base_offset=-1
    ),
    topic_result=lambda name, results: produce.TopicProduceResponse(name=name, partition_responses=results),
    response=lambda results: produce.ProduceResponse(responses=results),
)


async def produce_records(
    call: Call, client: ClientContext, storage: UpstreamStorage, request: produce.ProduceRequest, size_bytes: int
) -> produce.ProduceResponse | None:
    """Forwards records that fit into the storage of the instance. Returns None without acknowledgements; a refusal then
    closes the connection, as in Kafka.
    """
    services = call.context.services
    call.delay_ms, call.limiter = charge(client.produce_limiters, size_bytes, services.clock.monotonic_ms())
    transactional_id = request.transactional_id
    is_denied = transactional_id is not None and call.denial_code(ResourceType.TRANSACTIONAL_ID, transactional_id)
    if is_denied and request.acks:
        return cast(produce.ProduceResponse, await refuse_all(request, _PRODUCED, _DENIED_TRANSACTION))
    allowed, refused = await split(
        request, _PRODUCED, call.topic_refusal_code if not is_denied else lambda _name: _DENIED_TRANSACTION
    )
    request.topic_data = allowed
    sent = await metering.record_bytes_of(request)
    if allowed:
        instance_id = call.context.view.instance_id
        assert instance_id is not None, "clients of a gateway belong to an instance"
        code, message = storage.spend(instance_id, sum(sum(sizes.values()) for sizes in sent.values()))
        if code:
            refused += (await split(request, _refused_for_storage(message), lambda _name: code))[1]
            allowed = []
    if not request.acks:
        if allowed:
            await call.send(request)
            metering.count_sent(services, client, sent)
        call.closes = bool(refused)
        return None
    response = produce.ProduceResponse()
    if allowed or not refused:
        response = await call.forward(request)
    response.responses += refused
    await metering.count_produced(services, client, sent, response)
    return response


def _refused_for_storage(message: str) -> TopicLists:
    def partition_result(data: Any, code: int) -> produce.PartitionProduceResponse:
        return produce.PartitionProduceResponse(
            index=data.index, error_code=code, base_offset=-1, error_message=message
        )

    return replace(_PRODUCED, partition_result=partition_result)


_FETCHED: Final = TopicLists(
    topics="topics",
    name="topic",
    partitions="partitions",
    results="responses",
    partition_result=lambda partition, code: fetch.FetchPartitionData(
        partition_index=partition.partition, error_code=code, high_watermark=-1, records=b""
    ),
    topic_result=lambda name, results: fetch.FetchableTopicResponse(topic=name, partitions=results),
    response=lambda results: fetch.FetchResponse(responses=results),
)


async def fetch_records(call: Call, client: ClientContext, request: fetch.FetchRequest) -> fetch.FetchResponse:
    """Forwards a fetch without a fetch session: session ids belong to the upstream broker, and those of other clients
    could be guessed. A client in debt gets no records until the bytes that it has read are paid.
    """
    if request.session_id != _NO_SESSION:
        return fetch.FetchResponse(error_code=int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    limiters, now_ms = client.consume_limiters, call.context.services.clock.monotonic_ms()
    debt = find_longest_debt(limiters, now_ms)
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
    response: fetch.FetchResponse = await forward_allowed(call, request, _FETCHED, call.topic_refusal_code)
    response.session_id = _NO_SESSION
    now_ms = call.context.services.clock.monotonic_ms()
    call.delay_ms, call.limiter = charge(limiters, call.size_bytes, now_ms)
    await metering.count_consumed(call.context.services, client, response)
    return response


_OFFSETS: Final = TopicLists(
    topics="topics",
    name="name",
    partitions="partitions",
    results="topics",
    partition_result=lambda partition, code: list_offsets.ListOffsetsPartitionResponse(
        partition_index=partition.partition_index, error_code=code
    ),
    topic_result=lambda name, results: list_offsets.ListOffsetsTopicResponse(name=name, partitions=results),
    response=lambda results: list_offsets.ListOffsetsResponse(topics=results),
)


_EPOCHS: Final = TopicLists(
    topics="topics",
    name="topic",
    partitions="partitions",
    results="topics",
    partition_result=lambda partition, code: list_offsets.LeaderEpochEndOffset(
        partition=partition.partition, error_code=code
    ),
    topic_result=lambda name, results: list_offsets.OffsetForLeaderTopicResult(topic=name, partitions=results),
    response=lambda results: list_offsets.OffsetForLeaderEpochResponse(topics=results),
)


async def find_epoch_ends(call: Call, request: list_offsets.OffsetForLeaderEpochRequest) -> Any:
    request.replica_id = _CONSUMER
    return await forward_allowed(call, request, _EPOCHS, call.topic_refusal_code)


async def find_offsets(call: Call, request: list_offsets.ListOffsetsRequest) -> Any:
    request.replica_id = _CONSUMER
    return await forward_allowed(call, request, _OFFSETS, call.topic_refusal_code)


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
            if not call.denial_code(TOPIC, topic.name or ""):
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
    if shows_cluster_operations and not call.denial_code(CLUSTER, operation=AclOperation.DESCRIBE):
        response.cluster_authorized_operations = context.authorised_operations(CLUSTER)
    return response


def _metadata_refusal(call: Call, name: str) -> int:
    if denied := call.denial_code(TOPIC, name):
        return denied
    return 0 if naming.is_valid_topic_name(name) else int(ErrorCode.INVALID_TOPIC_EXCEPTION)


def _hide_unknown_leaders(topic: metadata.MetadataResponseTopic) -> None:
    """Sets LEADER_NOT_AVAILABLE on partitions whose leader has no address for the instance."""
    for partition in topic.partitions:
        if partition.leader_id == NO_NODE and not partition.error_code:
            partition.error_code = int(ErrorCode.LEADER_NOT_AVAILABLE)
