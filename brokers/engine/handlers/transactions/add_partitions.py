"""AddPartitionsToTxn: a client adds partitions to its transaction. A broker sends a request for many transactions,
which may only verify them (TXN-7, TXN-27).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from brokers.contract.acls import ResourceType
from brokers.contract.partitions import PartitionKey
from brokers.engine.cluster.image import TopicImage
from brokers.engine.coordinators.transactions.replies import NO_COORDINATOR, VerificationReply
from brokers.engine.handlers.common.peer_brokers import is_broker
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.transactions.transactions import call_transaction_coordinator, id_refusal
from brokers.engine.protocol.errors import ErrorCode, downgraded
from brokers.engine.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from brokers.engine.scheduling.time_slice import TimeSlice

# First version that only brokers send.
BATCHED_FROM: Final = 4
TRANSACTIONS_PER_REQUEST_MAX: Final = 10_000

# Client's topic name, and partition index.
TopicPartition = tuple[str, int]


class PartitionCodes(NamedTuple):
    """An error code for each requested partition, and the epoch of the coordinator that verified them."""

    codes: dict[TopicPartition, int]
    coordinator_epoch: int = NO_COORDINATOR


async def add_partitions_to_txn(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if context.version < BATCHED_FROM:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            verify_only=False,
            topics=request.v3_and_below_topics,
        )
        partition_codes = await _add_or_verify(context, transaction)
        results = await _results_by_topic(context, transaction.topics, partition_codes.codes)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    if not is_broker(context.view.principal):
        return AddPartitionsToTxnResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    if len(request.transactions) > TRANSACTIONS_PER_REQUEST_MAX:
        return AddPartitionsToTxnResponse(error_code=int(ErrorCode.INVALID_REQUEST))
    result = await asyncio.gather(*(_add_or_verify(context, transaction) for transaction in request.transactions))
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=await _results_by_topic(context, transaction.topics, partition_codes.codes),
                coordinator_epoch=partition_codes.coordinator_epoch
                if transaction.wants_coordinator_epoch
                else NO_COORDINATOR,
            )
            for transaction, partition_codes in zip(request.transactions, result, strict=True)
        ]
    )


def response_length(response: AddPartitionsToTxnResponse) -> int:
    """Returns the length of a response in transactions, topics and partitions."""
    transactions = [result.topic_results for result in response.results_by_transaction]
    topics = [topic for topics in (response.results_by_topic_v3_and_below, *transactions) for topic in topics]
    return len(transactions) + len(topics) + sum(len(topic.results_by_partition) for topic in topics)


async def _add_or_verify(context: RequestContext, transaction: AddPartitionsToTxnTransaction) -> PartitionCodes:
    requested = await _requested_partitions(transaction.topics)
    if denied := context.denial(ResourceType.TRANSACTIONAL_ID, transaction.transactional_id):
        return PartitionCodes(dict.fromkeys(requested, denied))
    partitions, error_codes = await _split_allowed(context, requested)
    if error_codes:
        # All or nothing: allowed partitions were not attempted.
        return PartitionCodes(dict.fromkeys(requested, int(ErrorCode.OPERATION_NOT_ATTEMPTED)) | error_codes)
    refusal = id_refusal(context, transaction.transactional_id)
    if refusal:
        return PartitionCodes(dict.fromkeys(requested, refusal))
    internal_id = context.view.namespace.internal_id(transaction.transactional_id)
    producer_id, producer_epoch = transaction.producer_id, transaction.producer_epoch
    partition_keys = list(partitions.values())
    if transaction.verify_only:
        verified: VerificationReply = await call_transaction_coordinator(
            context,
            internal_id,
            lambda machine, now, _: machine.verify_partitions(internal_id, producer_id, producer_epoch, partition_keys),
            lambda code: VerificationReply(dict.fromkeys(partition_keys, code)),
        )
        codes = {key: verified.codes[partition] for key, partition in partitions.items()}
        return PartitionCodes(codes, verified.coordinator_epoch)

    def operation(machine: Any, now: Any, _: object) -> Any:
        return machine.add_partitions(internal_id, producer_id, producer_epoch, partition_keys, now)

    code = await call_transaction_coordinator(context, internal_id, operation, int)
    return PartitionCodes(dict.fromkeys(requested, code))


async def _requested_partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> dict[TopicPartition, None]:
    """Returns the requested partitions once, in the order of the request."""
    requested: dict[TopicPartition, None] = {}
    time_slice = TimeSlice()
    for topic in topics:
        await time_slice.pause()
        for index in topic.partitions:
            await time_slice.pause()
            requested[topic.name, index] = None
    return requested


async def _split_allowed(
    context: RequestContext, requested: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, PartitionKey], dict[TopicPartition, int]]:
    """Returns the existing partitions that this client may write to, and the error codes of the others."""
    topics = context.view.namespace.topics
    partitions: dict[TopicPartition, PartitionKey] = {}
    error_codes: dict[TopicPartition, int] = {}
    time_slice = TimeSlice()
    topic: TopicImage | None = None
    last_name, refusal = None, 0
    for name, index in requested:
        if name != last_name:
            topic = topics.get(name.encode())
            last_name, refusal = name, context.refusal(topic, name)
        await time_slice.pause()
        code = refusal
        if topic is None or not 0 <= index < len(topic.partitions):
            code = code or int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code or topic is None:
            error_codes[name, index] = code
        else:
            partitions[name, index] = (topic.name, index)
    return partitions, error_codes


async def _results_by_topic(
    context: RequestContext, topics: Iterable[AddPartitionsToTxnTopic], codes: dict[TopicPartition, int]
) -> list[AddPartitionsToTxnTopicResult]:
    """Returns the results in the order of the request, with its repetitions."""
    result = []
    time_slice = TimeSlice()
    for topic in topics:
        await time_slice.pause()  # a topic may have no partitions
        results = []
        for index in topic.partitions:
            await time_slice.pause()
            code = downgraded(codes[topic.name, index], context.api_key, context.version)
            results.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code))
        result.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results))
    return result
