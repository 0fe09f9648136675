"""DescribeTransactions and ListTransactions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from brokers.engine.coordinators.result import CoordinatorResult, Now
from brokers.engine.coordinators.transactions.registry import TransactionRegistry
from brokers.engine.coordinators.transactions.replies import DescribedTransaction, TransactionListing
from brokers.engine.coordinators.transactions.states import DECIDED, NAMES, TransactionState
from brokers.engine.protocol.errors import ErrorCode

ANY_DURATION: Final = -1


def describe(registry: TransactionRegistry, transactional_id: str) -> CoordinatorResult:
    """Describes a transactional id. The reply is a `DescribedTransaction`; while markers are being written its
    partitions are those that still lack one.
    """
    entry = registry.entry(transactional_id)
    metadata = None if entry is None else entry.visible
    if entry is None or metadata is None:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if entry is None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return CoordinatorResult(DescribedTransaction(int(code), transactional_id))
    partitions = entry.pending_markers if metadata.state in DECIDED and not entry.pending else metadata.partitions
    return CoordinatorResult(
        DescribedTransaction(
            error=int(ErrorCode.NONE),
            transactional_id=transactional_id,
            state=NAMES[metadata.state],
            timeout_ms=metadata.timeout_ms,
            start_ms=metadata.start_ms,
            producer_id=metadata.producer_id,
            producer_epoch=metadata.producer_epoch,
            partitions=sorted(partitions),
        )
    )


def list_transactions(
    registry: TransactionRegistry,
    instance_id: str | None,
    states: Collection[TransactionState] | None,
    producer_ids: Collection[int],
    longer_than_ms: int,
    now: Now,
) -> CoordinatorResult:
    """Lists the transactional ids of one instance, or of all with `instance_id` None. The reply is a list of
    `TransactionListing`.

    `states` None and empty `producer_ids` do not filter; `longer_than_ms` counts from the start of the transaction.
    """
    result = []
    for transactional_id, entry in registry.entries(instance_id):
        metadata = entry.visible
        if metadata is None:
            continue
        if states is not None and metadata.state not in states:
            continue
        if producer_ids and metadata.producer_id not in producer_ids:
            continue
        if longer_than_ms > ANY_DURATION and now.wall_ms - metadata.start_ms <= longer_than_ms:
            continue
        result.append(TransactionListing(transactional_id, metadata.producer_id, NAMES[metadata.state]))
    return CoordinatorResult(result)
