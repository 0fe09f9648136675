"""DescribeTransactions and ListTransactions, with a tenant's own transactional ids and topics only (CKA-16).
DescribeProducers: the producers of a partition that have a producer id, and the start of their open transactions; only
the partition's leader answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from inspect import isawaitable
from typing import Final

from brokers.contract.acls import ResourceType
from brokers.contract.partitions import PartitionKey
from brokers.engine.cluster.image import TopicImage
from brokers.engine.coordinators.transactions.replies import DescribedTransaction, TransactionListing
from brokers.engine.coordinators.transactions.states import BY_NAME
from brokers.engine.handlers.common.long_requests import repetitions_beyond_limit
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.groups.coordinator_calls import call_coordinator_at
from brokers.engine.handlers.transactions.transactions import call_transaction_coordinator, id_refusal
from brokers.engine.partitions.producers import known_producers
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.producers import (
    ActiveProducer,
    DescribeProducersPartitionResult,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResult,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionDescription,
    TransactionTopic,
)
from brokers.engine.scheduling.time_slice import TimeSlice
from instances import naming

IDS_PER_REQUEST_MAX: Final = 10_000
# Maximum number of producers in one response, apart from the rest of its last partition; clients split their requests.
PRODUCERS_PER_RESPONSE_MAX: Final = 40_000

# Kafka's messages, which its clients show.
_MESSAGES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The request attempted to perform an operation on an invalid topic.",
    ErrorCode.INVALID_REQUEST: "Too many producers for one answer: ask about fewer partitions.",
}


async def describe_transactions(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describes the transactions. Ids beyond the limit, and too many repetitions, are rejected."""
    described: list[TransactionDescription] = []
    time_slice = TimeSlice()
    for is_excessive, transactional_id in zip(
        repetitions_beyond_limit(request.transactional_ids), request.transactional_ids, strict=True
    ):
        if is_excessive or len(described) >= IDS_PER_REQUEST_MAX:
            refused = int(ErrorCode.INVALID_REQUEST)
            described.append(TransactionDescription(error_code=refused, transactional_id=transactional_id))
        else:
            described.append(await _describe(context, transactional_id))
        await time_slice.pause()
    return DescribeTransactionsResponse(transaction_states=described)


async def _describe(context: RequestContext, transactional_id: str) -> TransactionDescription:
    refusal = id_refusal(context, transactional_id)
    if refusal:
        return TransactionDescription(error_code=refusal, transactional_id=transactional_id)
    internal_id = context.view.namespace.internal_id(transactional_id)
    result: DescribedTransaction = await call_transaction_coordinator(
        context,
        internal_id,
        lambda machine, now, _: machine.describe(internal_id),
        lambda code: DescribedTransaction(code, internal_id),
    )
    return TransactionDescription(
        error_code=result.error,
        transactional_id=transactional_id,
        transaction_state=result.state,
        transaction_timeout_ms=result.timeout_ms,
        transaction_start_time_ms=result.start_ms,
        producer_id=result.producer_id,
        producer_epoch=result.producer_epoch,
        topics=_topics(context, result.partitions),
    )


def _topics(context: RequestContext, partitions: Iterable[PartitionKey]) -> list[TransactionTopic]:
    """Returns partitions by the client's topic names, without internal topics such as the offsets topic."""
    result: dict[str, list[int]] = {}
    for internal, index in partitions:
        name = _client_topic_name(context, internal)
        if name is not None:
            result.setdefault(name, []).append(index)
    return [TransactionTopic(topic=name, partitions=indexes) for name, indexes in result.items()]


def _client_topic_name(context: RequestContext, internal: str) -> str | None:
    instance = context.view.instance
    if context.view.instance_id is None:
        return internal
    if instance is None or naming.split_internal(internal)[0] != instance.id:
        return None
    topic = context.view.image.topics.get(internal)
    # A deleted topic stays in a transaction until the transaction ends.
    name = instance.topic_names.get(internal) or naming.plain_topic(internal)
    if name is None or context.denial(ResourceType.TOPIC, name):
        return None
    return None if topic is not None and context.refusal(topic, name) else name


async def list_transactions(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Lists the transactions that this broker coordinates."""
    runtime = context.services.coordination.transactions
    if runtime is None:
        return ListTransactionsResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    if any(shard.refusal() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for shard in runtime.shards()):
        return ListTransactionsResponse(error_code=int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    names = request.state_filters
    states = {BY_NAME[name] for name in names if name in BY_NAME} if names else None
    producer_ids = frozenset(request.producer_id_filters)
    result: list[TransactionListing] = []
    for index in runtime.led_partitions():
        reply = call_coordinator_at(
            context.services,
            runtime,
            index,
            lambda machine, now, _: machine.list_transactions(
                context.view.instance_id, states, producer_ids, request.duration_filter, now
            ),
            lambda code: [],
        )
        result += await reply if isawaitable(reply) else reply
    time_slice = TimeSlice()
    listed: list[ListedTransaction] = []
    for transaction in result:
        listed += _list_if_visible(context, transaction)
        await time_slice.pause()
    return ListTransactionsResponse(
        error_code=int(ErrorCode.NONE),
        unknown_state_filters=[name for name in names if name not in BY_NAME],
        transaction_states=listed,
    )


def _list_if_visible(context: RequestContext, transaction: TransactionListing) -> list[ListedTransaction]:
    """Returns a list with the transaction; an empty one if it is another instance's or may not be described."""
    transactional_id = context.view.namespace.client_id_of(transaction.transactional_id)
    if transactional_id is None or context.denial(ResourceType.TRANSACTIONAL_ID, transactional_id):
        return []
    return [
        ListedTransaction(
            transactional_id=transactional_id, producer_id=transaction.producer_id, transaction_state=transaction.state
        )
    ]


async def describe_producers(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    time_slice = TimeSlice()
    topics = []
    producer_count = 0
    for requested_topic in request.topics:
        topic, error = context.named_topic(requested_topic.name)
        if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not naming.is_valid_topic_name(requested_topic.name):
            error = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partitions = []
        for index in requested_topic.partition_indexes:
            if error or topic is None:
                partitions.append(_error_result(index, error))
            elif producer_count >= PRODUCERS_PER_RESPONSE_MAX:
                partitions.append(_error_result(index, int(ErrorCode.INVALID_REQUEST)))
            else:
                partitions.append(_partition(context, topic, index))
                producer_count += len(partitions[-1].active_producers)
            await time_slice.pause()
        topics.append(DescribeProducersTopicResult(name=requested_topic.name, partitions=partitions))
        await time_slice.pause()  # a topic may have no partitions
    return DescribeProducersResponse(topics=topics)


def response_length(response: DescribeProducersResponse) -> int:
    """Returns the length of a response in topics, partitions and producers."""
    partitions = [partition for topic in response.topics for partition in topic.partitions]
    return len(response.topics) + sum(len(partition.active_producers) + 1 for partition in partitions)


def _error_result(index: int, code: int) -> DescribeProducersPartitionResult:
    message = _MESSAGES.get(ErrorCode(code))
    return DescribeProducersPartitionResult(partition_index=index, error_code=code, error_message=message)


def _partition(context: RequestContext, topic: TopicImage, index: int) -> DescribeProducersPartitionResult:
    result = DescribeProducersPartitionResult(partition_index=index)
    partition = context.services.storage.find(topic, index)
    if isinstance(partition, int):
        result.error_code = partition
    elif not partition.is_leader:
        result.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif partition.offline:
        result.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)
    else:
        result.active_producers = [
            ActiveProducer(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_first_offset,
            )
            for producer in known_producers(partition)
        ]
    return result
