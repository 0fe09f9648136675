"""DescribeTransactions and ListTransactions, with a tenant's own transactional ids and topics only (CKA-16)."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import isawaitable
from typing import Final

from brokers.contract.acls import ResourceType
from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.transactions.replies import Description, Listed
from brokers.engine.coordinators.transactions.states import BY_NAME
from brokers.engine.handlers.common.duplicate_limits import beyond_duplicate_limit
from brokers.engine.handlers.context import Call
from brokers.engine.handlers.groups.coordinator_calls import ask_at
from brokers.engine.handlers.transactions.transactions import asked, id_refusal
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.producers import (
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


async def describe_transactions(call: Call, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    """Describes the transactions. Ids beyond the limit, and too many repetitions, are rejected."""
    described: list[TransactionDescription] = []
    time_slice = TimeSlice()
    for is_excessive, item in zip(
        beyond_duplicate_limit(request.transactional_ids), request.transactional_ids, strict=True
    ):
        if is_excessive or len(described) >= IDS_PER_REQUEST_MAX:
            refused = int(ErrorCode.INVALID_REQUEST)
            described.append(TransactionDescription(error_code=refused, transactional_id=item))
        else:
            described.append(await _describe(call, item))
        await time_slice.pause()
    return DescribeTransactionsResponse(transaction_states=described)


def transactions_described(response: DescribeTransactionsResponse) -> int:
    """Returns the length of a response in transactions and topics."""
    return sum(1 + len(state.topics or ()) for state in response.transaction_states)


async def _describe(call: Call, transactional_id: str) -> TransactionDescription:
    refusal = id_refusal(call, transactional_id)
    if refusal:
        return TransactionDescription(error_code=refusal, transactional_id=transactional_id)
    internal_id = call.view.namespace.internal_id(transactional_id)
    result: Description = await asked(
        call,
        internal_id,
        lambda machine, now, _: machine.describe(internal_id),
        lambda code: Description(code, internal_id),
    )
    return TransactionDescription(
        error_code=result.error,
        transactional_id=transactional_id,
        transaction_state=result.state,
        transaction_timeout_ms=result.timeout_ms,
        transaction_start_time_ms=result.start_ms,
        producer_id=result.producer_id,
        producer_epoch=result.producer_epoch,
        topics=_topics(call, result.partitions),
    )


def _topics(call: Call, partitions: Iterable[PartitionKey]) -> list[TransactionTopic]:
    """Returns partitions by the client's topic names, without internal topics such as the offsets topic."""
    result: dict[str, list[int]] = {}
    for internal, index in partitions:
        name = _shown(call, internal)
        if name is not None:
            result.setdefault(name, []).append(index)
    return [TransactionTopic(topic=name, partitions=indexes) for name, indexes in result.items()]


def _shown(call: Call, internal: str) -> str | None:
    instance = call.view.instance
    if call.view.instance_id is None:
        return internal
    if instance is None or naming.split_internal(internal)[0] != instance.id:
        return None
    topic = call.view.image.topics.get(internal)
    # A deleted topic stays in a transaction until the transaction ends.
    name = instance.topic_names.get(internal) or naming.plain_topic(internal)
    if name is None or call.denial(ResourceType.TOPIC, name):
        return None
    return None if topic is not None and call.refusal(topic, name) else name


async def list_transactions(call: Call, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Lists the transactions that this broker coordinates."""
    runtime = call.services.coordination.transactions
    if runtime is None:
        return ListTransactionsResponse(error_code=int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    if any(shard.refusal() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for shard in runtime.shards()):
        return ListTransactionsResponse(error_code=int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    names = request.state_filters
    states = {BY_NAME[name] for name in names if name in BY_NAME} if names else None
    producer_ids = frozenset(request.producer_id_filters)
    result: list[Listed] = []
    for index in runtime.held():
        reply = ask_at(
            call.services,
            runtime,
            index,
            lambda machine, now, _: machine.list_transactions(
                call.view.instance_id, states, producer_ids, request.duration_filter, now
            ),
            lambda code: [],
        )
        result += await reply if isawaitable(reply) else reply
    time_slice = TimeSlice()
    listed: list[ListedTransaction] = []
    for item in result:
        listed += _listed(call, item)
        await time_slice.pause()
    return ListTransactionsResponse(
        error_code=int(ErrorCode.NONE),
        unknown_state_filters=[name for name in names if name not in BY_NAME],
        transaction_states=listed,
    )


def _listed(call: Call, item: Listed) -> list[ListedTransaction]:
    """Returns the transaction in a list, which is empty if it is another instance's or may not be described."""
    transactional_id = call.view.namespace.shown_id(item.transactional_id)
    if transactional_id is None or call.denial(ResourceType.TRANSACTIONAL_ID, transactional_id):
        return []
    return [
        ListedTransaction(transactional_id=transactional_id, producer_id=item.producer_id, transaction_state=item.state)
    ]
