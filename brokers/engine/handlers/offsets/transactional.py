"""TxnOffsetCommit: offsets that are committed with a producer's transaction (TXN-9).

The coordinator of the transaction is asked first whether the group's partition of the offsets topic was added to it, as
for any partition that the producer writes to (TXN-27).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from brokers.contract.acls import ResourceType
from brokers.engine.coordinators.groups.offsets import Commit, Producer, commit_error
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.groups.coordinator_calls import call_group_coordinator
from brokers.engine.handlers.offsets.offsets import PartitionResults, id_refusal
from brokers.engine.handlers.transactions.transactions import id_refusal as transactional_id_refusal
from brokers.engine.partitions import transactions
from brokers.engine.partitions.verification import OPEN, UNVERIFIED_OK
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

NO_SEQUENCE: Final = -1
# First versions whose clients know a loading coordinator, and a transaction that can only be aborted.
LOADING_FROM: Final = 2
ABORTABLE_FROM: Final = 4

_Results = PartitionResults[TxnOffsetCommitResponsePartition, TxnOffsetCommitRequestPartition]


async def txn_offset_commit(context: RequestContext, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    results: _Results = PartitionResults(
        context,
        request.topics,
        lambda index, code: TxnOffsetCommitResponsePartition(partition_index=index, error_code=code),
    )
    denied = context.denial(ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    denied = denied or context.denial(ResourceType.GROUP, request.group_id)
    if denied:
        results.fail_all(denied)
    elif results.allowed:
        group_id = context.view.namespace.internal_id(request.group_id)
        code = _refusal(context, request, group_id)
        if code:
            results.fail(_error_for(context, code))
        else:
            await _commit(context, request, group_id, results)
    return TxnOffsetCommitResponse(
        topics=[TxnOffsetCommitResponseTopic(name=name, partitions=result) for name, result in results.by_topic]
    )


def _refusal(context: RequestContext, request: TxnOffsetCommitRequest, group_id: str) -> int:
    """Returns the error code of a request that is rejected without asking a coordinator, else 0."""
    groups = context.services.coordination.groups
    if not request.group_id:
        return int(ErrorCode.INVALID_GROUP_ID)
    if groups is None:
        return int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return (
        id_refusal(group_id) or groups.refusal(group_id) or transactional_id_refusal(context, request.transactional_id)
    )


async def _commit(context: RequestContext, request: TxnOffsetCommitRequest, group_id: str, results: _Results) -> None:
    verification_token, code = await _verify(context, request, group_id)
    if code:
        results.fail(_error_for(context, code))
        return
    producer = Producer(request.producer_id, request.producer_epoch, verification_token)
    commits = [
        Commit(
            topic,
            requested_partition.partition_index,
            requested_partition.committed_offset,
            requested_partition.committed_leader_epoch,
            requested_partition.committed_metadata or "",
        )
        for topic, requested_partition, _ in results.allowed
    ]
    reply = call_group_coordinator(
        context,
        group_id,
        lambda machine, now, _: machine.offsets.commit_in_transaction(
            now,
            group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            commits,
            producer,
        ),
        lambda code: [code] * len(commits),
    )
    codes = await reply if isinstance(reply, Awaitable) else reply
    results.complete([_error_for(context, code) for code in codes])


async def _verify(context: RequestContext, request: TxnOffsetCommitRequest, group_id: str) -> tuple[int, int]:
    """Returns the verification token for the append, and the error code that forbids it."""
    services = context.services
    groups, settings = services.coordination.groups, services.coordination.settings
    if groups is None:
        return OPEN, int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not settings.transactions.verifies_partitions:
        return UNVERIFIED_OK, 0
    key = (groups.topic, groups.partition_of(group_id))
    partition = services.storage.table.get(*key)
    if partition is None:
        return OPEN, int(ErrorCode.NOT_COORDINATOR)
    producer_id, epoch = request.producer_id, request.producer_epoch
    verification_token = transactions.begin_verification(
        partition, producer_id, epoch, NO_SEQUENCE, services.clock.now_ms()
    )
    if verification_token == transactions.NOT_LED:
        return verification_token, int(ErrorCode.NOT_COORDINATOR)
    if verification_token == OPEN:
        return verification_token, 0
    transactional_id = context.view.namespace.internal_id(request.transactional_id)
    verified = await services.coordination.verify_transaction(transactional_id, producer_id, epoch, [key])
    return verification_token, verified[key]


def _error_for(context: RequestContext, code: int) -> int:
    """Returns the error code as clients of this version know it."""
    code = commit_error(code)
    if code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE):
        known = context.version >= ABORTABLE_FROM
        return int(ErrorCode.TRANSACTION_ABORTABLE if known else ErrorCode.INVALID_TXN_STATE)
    if code == ErrorCode.PRODUCER_FENCED:
        return int(ErrorCode.INVALID_PRODUCER_EPOCH)
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and context.version < LOADING_FROM:
        return int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return code
