"""Calls about producer ids and transactions. Each is checked as a broker checks it: the transactional id first."""

from __future__ import annotations

from typing import Any, Final

from brokers.contract.acls import AclOperation, ResourceType
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages import transactions
from brokers.engine.scheduling.time_slice import TimeSlice
from brokers.engine.upstream.call import Call
from brokers.engine.upstream.group_calls import GROUP, TRANSACTION
from brokers.engine.upstream.topic_calls import TOPIC, TopicLists, forward_allowed, refuse_all, split

_NO_PRODUCER: Final = -1
_NOT_ATTEMPTED: Final = int(ErrorCode.OPERATION_NOT_ATTEMPTED)


async def init_producer_id(call: Call, request: transactions.InitProducerIdRequest) -> Any:
    transactional_id = request.transactional_id
    if transactional_id is not None:
        code = call.denied(TRANSACTION, transactional_id)
        code = code or (0 if transactional_id else int(ErrorCode.INVALID_REQUEST))
    else:
        code = call.denied(ResourceType.CLUSTER)
        if code and call.context.rights.allows_any(AclOperation.WRITE, TOPIC):
            code = 0
    if code:
        return transactions.InitProducerIdResponse(error_code=code, producer_id=_NO_PRODUCER, producer_epoch=-1)
    return await call.forward(request)


_ADDED: Final = TopicLists(
    "v3_and_below_topics",
    "name",
    "partitions",
    "results_by_topic_v3_and_below",
    lambda index, code: transactions.AddPartitionsToTxnPartitionResult(
        partition_index=index, partition_error_code=code
    ),
    lambda name, partitions: transactions.AddPartitionsToTxnTopicResult(name=name, results_by_partition=partitions),
    lambda results: transactions.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results),
)


async def add_partitions(call: Call, request: transactions.AddPartitionsToTxnRequest) -> Any:
    """Forwards all partitions, or none if one of them is refused."""
    code = call.denied(TRANSACTION, request.v3_and_below_transactional_id)
    if code:
        return await refuse_all(request, _ADDED, code)
    allowed, refused = await split(request, _ADDED, call.topic_refusal)
    if refused:
        time_slice = TimeSlice()
        refused += [await _ADDED.refused(topic, _NOT_ATTEMPTED, time_slice) for topic in allowed]
        return _ADDED.response(refused)
    return await call.forward(request)


async def add_offsets(call: Call, request: transactions.AddOffsetsToTxnRequest) -> Any:
    code = call.denied(TRANSACTION, request.transactional_id) or call.denied(GROUP, request.group_id)
    return transactions.AddOffsetsToTxnResponse(error_code=code) if code else await call.forward(request)


async def end_transaction(call: Call, request: transactions.EndTxnRequest) -> Any:
    code = call.denied(TRANSACTION, request.transactional_id)
    return transactions.EndTxnResponse(error_code=code) if code else await call.forward(request)


_COMMITTED: Final = TopicLists(
    "topics",
    "name",
    "partitions",
    "topics",
    lambda partition, code: transactions.TxnOffsetCommitResponsePartition(
        partition_index=partition.partition_index, error_code=code
    ),
    lambda name, partitions: transactions.TxnOffsetCommitResponseTopic(name=name, partitions=partitions),
    lambda results: transactions.TxnOffsetCommitResponse(topics=results),
)


async def commit_offsets(call: Call, request: transactions.TxnOffsetCommitRequest) -> Any:
    code = call.denied(TRANSACTION, request.transactional_id) or call.denied(GROUP, request.group_id)
    if code:
        return await refuse_all(request, _COMMITTED, code)
    return await forward_allowed(call, request, _COMMITTED, call.topic_refusal)
