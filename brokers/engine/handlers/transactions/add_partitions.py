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
from brokers.engine.handlers.transactions.transactions import asked, id_refusal
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
Named = tuple[str, int]


class Answered(NamedTuple):
    """An error code for each requested partition, and the epoch of the coordinator that verified them."""

    codes: dict[Named, int]
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
        answered = await _answered(context, transaction)
        lines = await _by_topic(context, transaction.topics, answered.codes)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=lines)
    if not is_broker(context.view.principal):
        return AddPartitionsToTxnResponse(error_code=int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    if len(request.transactions) > TRANSACTIONS_PER_REQUEST_MAX:
        return AddPartitionsToTxnResponse(error_code=int(ErrorCode.INVALID_REQUEST))
    result = await asyncio.gather(*(_answered(context, transaction) for transaction in request.transactions))
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=await _by_topic(context, transaction.topics, answered.codes),
                coordinator_epoch=answered.coordinator_epoch if transaction.wants_coordinator_epoch else NO_COORDINATOR,
            )
            for transaction, answered in zip(request.transactions, result, strict=True)
        ]
    )


def lines_answered(response: AddPartitionsToTxnResponse) -> int:
    """Returns the length of a response in transactions, topics and partitions."""
    transactions = [result.topic_results for result in response.results_by_transaction]
    topics = [topic for topics in (response.results_by_topic_v3_and_below, *transactions) for topic in topics]
    return len(transactions) + len(topics) + sum(len(topic.results_by_partition) for topic in topics)


async def _answered(context: RequestContext, transaction: AddPartitionsToTxnTransaction) -> Answered:
    named = await _named(transaction.topics)
    if denied := context.denial(ResourceType.TRANSACTIONAL_ID, transaction.transactional_id):
        return Answered(dict.fromkeys(named, denied))
    partitions, refused = await _allowed(context, named)
    if refused:
        # All or nothing: allowed partitions were not attempted.
        return Answered(dict.fromkeys(named, int(ErrorCode.OPERATION_NOT_ATTEMPTED)) | refused)
    refusal = id_refusal(context, transaction.transactional_id)
    if refusal:
        return Answered(dict.fromkeys(named, refusal))
    internal_id = context.view.namespace.internal_id(transaction.transactional_id)
    producer_id, producer_epoch = transaction.producer_id, transaction.producer_epoch
    wanted = list(partitions.values())
    if transaction.verify_only:
        verified: VerificationReply = await asked(
            context,
            internal_id,
            lambda machine, now, _: machine.verify_partitions(internal_id, producer_id, producer_epoch, wanted),
            lambda code: VerificationReply(dict.fromkeys(wanted, code)),
        )
        codes = {key: verified.codes[partition] for key, partition in partitions.items()}
        return Answered(codes, verified.coordinator_epoch)

    def operation(machine: Any, now: Any, _: object) -> Any:
        return machine.add_partitions(internal_id, producer_id, producer_epoch, wanted, now)

    code = await asked(context, internal_id, operation, int)
    return Answered(dict.fromkeys(named, code))


async def _named(topics: Iterable[AddPartitionsToTxnTopic]) -> dict[Named, None]:
    """Returns the requested partitions once, in the order of the request."""
    named: dict[Named, None] = {}
    time_slice = TimeSlice()
    for topic in topics:
        await time_slice.pause()
        for index in topic.partitions:
            await time_slice.pause()
            named[topic.name, index] = None
    return named


async def _allowed(
    context: RequestContext, named: Iterable[Named]
) -> tuple[dict[Named, PartitionKey], dict[Named, int]]:
    """Returns the existing partitions that this client may write to, and the error codes of the others."""
    topics = context.view.namespace.topics
    partitions: dict[Named, PartitionKey] = {}
    refused: dict[Named, int] = {}
    time_slice = TimeSlice()
    topic: TopicImage | None = None
    last_name, refusal = None, 0
    for name, index in named:
        if name != last_name:
            topic = topics.get(name.encode())
            last_name, refusal = name, context.refusal(topic, name)
        await time_slice.pause()
        code = refusal
        if topic is None or not 0 <= index < len(topic.partitions):
            code = code or int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code or topic is None:
            refused[name, index] = code
        else:
            partitions[name, index] = (topic.name, index)
    return partitions, refused


async def _by_topic(
    context: RequestContext, topics: Iterable[AddPartitionsToTxnTopic], codes: dict[Named, int]
) -> list[AddPartitionsToTxnTopicResult]:
    """Returns the results in the order of the request, with its repetitions."""
    result = []
    time_slice = TimeSlice()
    for topic in topics:
        await time_slice.pause()  # a topic may have no partitions
        lines = []
        for index in topic.partitions:
            await time_slice.pause()
            code = downgraded(codes[topic.name, index], context.api_key, context.version)
            lines.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code))
        result.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=lines))
    return result
