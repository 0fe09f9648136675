"""AddPartitionsToTxn, AddOffsetsToTxn, and the verification of added partitions for their leaders (TXN-7, TXN-8,
TXN-27).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators import limits
from brokers.engine.coordinators.result import CoordinatorResult, Now
from brokers.engine.coordinators.transactions.registry import TransactionRegistry, instance_of, record_of
from brokers.engine.coordinators.transactions.replies import VerificationReply, coordinator_error, fatal_refusal
from brokers.engine.coordinators.transactions.states import DECIDED, TransactionState
from brokers.engine.protocol.errors import ErrorCode

_NONE: Final = int(ErrorCode.NONE)


def add_partitions(
    registry: TransactionRegistry,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[PartitionKey],
    now: Now,
) -> CoordinatorResult:
    """Adds partitions to the open transaction, or begins one. The reply is one error code for all of `partitions`."""
    entry = registry.entry(transactional_id)
    metadata = None if entry is None else entry.visible
    if entry is not None and metadata is None:
        return CoordinatorResult(int(ErrorCode.CONCURRENT_TRANSACTIONS))
    if entry is None or metadata is None or metadata.producer_id != producer_id:
        return fatal_refusal(int(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    if metadata.producer_epoch != producer_epoch or metadata.is_fencing_epoch:
        return fatal_refusal(int(ErrorCode.PRODUCER_FENCED))
    if entry.pending or metadata.state in DECIDED:
        return CoordinatorResult(int(ErrorCode.CONCURRENT_TRANSACTIONS))
    if metadata.state is TransactionState.ONGOING and metadata.partitions.issuperset(partitions):
        return CoordinatorResult(_NONE)
    extended = metadata.with_partitions(partitions, now.wall_ms)
    if len(extended.partitions) > limits.PARTITIONS_PER_TRANSACTION_MAX:
        return CoordinatorResult(int(ErrorCode.POLICY_VIOLATION))
    added_count = len(extended.partitions) - len(metadata.partitions)
    if not registry.may_add_partitions(instance_of(transactional_id), added_count):
        return CoordinatorResult(int(ErrorCode.POLICY_VIOLATION))
    record = record_of(extended)
    if record.value is not None and len(record.value) > limits.TRANSACTION_BYTES_MAX:
        return CoordinatorResult(int(ErrorCode.POLICY_VIOLATION))
    return CoordinatorResult(
        _NONE,
        [record],
        on_refused=lambda code: CoordinatorResult(coordinator_error(code)),
        make_timeout_reply=coordinator_error,
    )


def verify_partitions(
    registry: TransactionRegistry,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[PartitionKey],
) -> CoordinatorResult:
    """Verifies that partitions are in the open transaction. The reply is a `VerificationReply`, with
    TRANSACTION_ABORTABLE (120) for a partition that is not.

    Records that are not committed yet are ignored: the producer has no response for them yet. A marker that is written
    meanwhile, also by a later coordinator, is detected by the partition when the batch is appended. Only refusals that
    make a producer give up are released after a leadership check (`fatal_refusal`).
    """
    code = _NONE
    entry = registry.entry(transactional_id)
    metadata = None if entry is None else entry.visible
    if entry is not None and metadata is None:
        code = int(ErrorCode.CONCURRENT_TRANSACTIONS)
    elif metadata is None or metadata.producer_id != producer_id:
        code = int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    elif metadata.producer_epoch != producer_epoch:
        code = int(ErrorCode.PRODUCER_FENCED)
    elif metadata.state in DECIDED:
        code = int(ErrorCode.CONCURRENT_TRANSACTIONS)
    if code == ErrorCode.CONCURRENT_TRANSACTIONS:
        return CoordinatorResult(VerificationReply(dict.fromkeys(partitions, code), registry.coordinator_epoch))
    if code or metadata is None:
        return fatal_refusal(VerificationReply(dict.fromkeys(partitions, code), registry.coordinator_epoch))
    absent = int(ErrorCode.TRANSACTION_ABORTABLE)
    codes = {partition: _NONE if partition in metadata.partitions else absent for partition in partitions}
    verified = VerificationReply(codes, registry.coordinator_epoch)
    return fatal_refusal(verified) if absent in codes.values() else CoordinatorResult(verified)
