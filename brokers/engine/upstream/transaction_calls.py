"""Calls about producer ids and transactions. Each is checked as a broker checks it: the transactional id first."""

from __future__ import annotations

from typing import Any, Final

from brokers.contract.acls import AclOperation, ResourceType
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages import producers, transactions
from brokers.engine.scheduling.time_slice import TimeSlice
from brokers.engine.upstream.call import Call
from brokers.engine.upstream.group_calls import GROUP, TRANSACTION
from brokers.engine.upstream.topic_calls import TOPIC, TopicLists, forward_allowed, refuse_all, split

_NO_PRODUCER: Final = -1
_NOT_ATTEMPTED: Final = int(ErrorCode.OPERATION_NOT_ATTEMPTED)


async def init_producer_id(call: Call, request: transactions.InitProducerIdRequest) -> Any:
    transactional_id = request.transactional_id
    if transactional_id is not None:
        code = call.denial_code(TRANSACTION, transactional_id)
        code = code or (0 if transactional_id else int(ErrorCode.INVALID_REQUEST))
    else:
        code = call.denial_code(ResourceType.CLUSTER)
        if code and call.context.rights.allows_any(AclOperation.WRITE, TOPIC):
            code = 0
    if code:
        return transactions.InitProducerIdResponse(error_code=code, producer_id=_NO_PRODUCER, producer_epoch=-1)
    return await call.forward(request)


_ADDED: Final = TopicLists(
    topics="v3_and_below_topics",
    name="name",
    partitions="partitions",
    results="results_by_topic_v3_and_below",
    partition_result=lambda index, code: transactions.AddPartitionsToTxnPartitionResult(
        partition_index=index, partition_error_code=code
    ),
    topic_result=lambda name, results: transactions.AddPartitionsToTxnTopicResult(
        name=name, results_by_partition=results
    ),
    response=lambda results: transactions.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results),
)


async def add_partitions(call: Call, request: transactions.AddPartitionsToTxnRequest) -> Any:
    """Forwards all partitions, or none if one of them is refused."""
    code = call.denial_code(TRANSACTION, request.v3_and_below_transactional_id)
    if code:
        return await refuse_all(request, _ADDED, code)
    allowed, refused = await split(request, _ADDED, call.topic_refusal_code)
    if refused:
        time_slice = TimeSlice()
        for topic in allowed:
            refused.append(await _ADDED.refused_result(topic, _NOT_ATTEMPTED, time_slice))
        return _ADDED.response(refused)
    return await call.forward(request)


async def add_offsets(call: Call, request: transactions.AddOffsetsToTxnRequest) -> Any:
    code = call.denial_code(TRANSACTION, request.transactional_id) or call.denial_code(GROUP, request.group_id)
    return transactions.AddOffsetsToTxnResponse(error_code=code) if code else await call.forward(request)


async def end_transaction(call: Call, request: transactions.EndTxnRequest) -> Any:
    code = call.denial_code(TRANSACTION, request.transactional_id)
    return transactions.EndTxnResponse(error_code=code) if code else await call.forward(request)


_COMMITTED: Final = TopicLists(
    topics="topics",
    name="name",
    partitions="partitions",
    results="topics",
    partition_result=lambda partition, code: transactions.TxnOffsetCommitResponsePartition(
        partition_index=partition.partition_index, error_code=code
    ),
    topic_result=lambda name, results: transactions.TxnOffsetCommitResponseTopic(name=name, partitions=results),
    response=lambda results: transactions.TxnOffsetCommitResponse(topics=results),
)


async def commit_offsets(call: Call, request: transactions.TxnOffsetCommitRequest) -> Any:
    code = call.denial_code(TRANSACTION, request.transactional_id) or call.denial_code(GROUP, request.group_id)
    if code:
        return await refuse_all(request, _COMMITTED, code)
    return await forward_allowed(call, request, _COMMITTED, call.topic_refusal_code)


# -- descriptions -----------------------------------------------------------------------------------------------------

_PRODUCERS: Final = TopicLists(
    topics="topics",
    name="name",
    partitions="partition_indexes",
    results="topics",
    partition_result=lambda index, code: producers.DescribeProducersPartitionResult(
        partition_index=index, error_code=code
    ),
    topic_result=lambda name, results: producers.DescribeProducersTopicResult(name=name, partitions=results),
    response=lambda results: producers.DescribeProducersResponse(topics=results),
)


async def describe_producers(call: Call, request: producers.DescribeProducersRequest) -> Any:
    return await forward_allowed(call, request, _PRODUCERS, call.topic_refusal_code)


async def describe_transactions(
    call: Call, request: producers.DescribeTransactionsRequest
) -> producers.DescribeTransactionsResponse:
    """Forwards the ids that the client may describe, and omits topics that it may not describe."""
    allowed, refused = [], []
    time_slice = TimeSlice()
    for transactional_id in request.transactional_ids:
        await time_slice.pause()
        code = call.denial_code(TRANSACTION, transactional_id)
        if code:
            refused.append(producers.TransactionDescription(error_code=code, transactional_id=transactional_id))
        else:
            allowed.append(transactional_id)
    if refused and not allowed:
        return producers.DescribeTransactionsResponse(transaction_states=refused)
    request.transactional_ids = allowed
    response: producers.DescribeTransactionsResponse = await call.forward(request)
    for state in response.transaction_states:
        visible = []
        for topic in state.topics:
            await time_slice.pause()
            if not call.denial_code(TOPIC, topic.topic):
                visible.append(topic)
        state.topics = visible
    response.transaction_states += refused
    return response


async def list_transactions(
    call: Call, request: producers.ListTransactionsRequest
) -> producers.ListTransactionsResponse:
    """Forwards a request for all transactions, and returns those that the client may describe."""
    response: producers.ListTransactionsResponse = await call.forward(request)
    time_slice, allowed = TimeSlice(), []
    for state in response.transaction_states:
        await time_slice.pause()
        if not call.denial_code(TRANSACTION, state.transactional_id):
            allowed.append(state)
    response.transaction_states = allowed
    return response
