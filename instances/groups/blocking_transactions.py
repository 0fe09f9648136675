"""Open transactions that block a group: its consumers of committed records cannot read past their first offset."""

from __future__ import annotations

import time
from collections.abc import Iterable

from instances.groups.interfaces import Partition, ProducerState, transaction_admin_client
from instances.groups.selectors import BlockingTransaction, PartitionLag
from instances.limits import BLOCKED_PARTITIONS_QUERIED_MAX, BLOCKING_TRANSACTIONS_SHOWN_MAX
from instances.models import Instance

# Transactions in a healthy stream are shorter than this, and do not block for long.
BLOCKING_AGE_MS_MIN = 10_000
# A group may be positioned before markers of earlier transactions, which are offsets without records.
MARKERS_BETWEEN_MAX = 10


def blocking_transactions(
    instance: Instance, partition_lags: Iterable[PartitionLag], *, now_ms: int | None = None
) -> list[BlockingTransaction]:
    """Returns the transactions that block a group, the longest open first. Leaders are queried for partitions in which
    the group lags, those with the largest lag first.
    """
    lagging = (partition for partition in partition_lags if partition.lag)
    most_lagging = sorted(lagging, key=lambda partition: -(partition.lag or 0))[:BLOCKED_PARTITIONS_QUERIED_MAX]
    if not most_lagging:
        return []
    at_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    producers = transaction_admin_client.implementation.producers(
        instance.pk, [partition.topic_partition for partition in most_lagging]
    )
    blocking_producers: dict[Partition, ProducerState] = {}
    for partition_lag in most_lagging:
        state = _first_open_transaction(producers.get(partition_lag.topic_partition, ()))
        if state is not None and partition_lag.committed is not None and _is_blocked_by(partition_lag.committed, state):
            blocking_producers[partition_lag.topic_partition] = state
    if not blocking_producers:
        return []
    listings = transaction_admin_client.implementation.transactions(instance.pk).transactions
    producer_ids = {state.producer_id for state in blocking_producers.values()}
    ids = {listing.producer_id: listing.id for listing in listings if listing.producer_id in producer_ids}
    descriptions = transaction_admin_client.implementation.describe(instance.pk, sorted(ids.values()))
    blocking = []
    for (topic, partition), state in blocking_producers.items():
        transactional_id = ids.get(state.producer_id, "")
        description = descriptions.get(transactional_id)
        started_ms = description.started_ms if description is not None else None
        open_ms = at_ms - (state.last_timestamp_ms if started_ms is None else started_ms)
        if open_ms >= BLOCKING_AGE_MS_MIN:
            blocking.append(
                BlockingTransaction(
                    id=transactional_id, producer_id=state.producer_id, topic=topic, partition=partition,
                    offset=state.transaction_start_offset or 0, open_ms=open_ms,
                )
            )  # fmt: skip
    return sorted(blocking, key=lambda transaction: -transaction.open_ms)[:BLOCKING_TRANSACTIONS_SHOWN_MAX]


def _first_open_transaction(states: Iterable[ProducerState]) -> ProducerState | None:
    """Returns the open transaction with the lowest offset: consumers of committed records read nothing after it."""
    return min(
        (state for state in states if state.transaction_start_offset is not None),
        key=lambda state: state.transaction_start_offset or 0,
        default=None,
    )


def _is_blocked_by(committed: int, state: ProducerState) -> bool:
    """True if a group has read everything before the transaction, except markers, and nothing of it."""
    return (
        state.transaction_start_offset is not None
        and 0 <= state.transaction_start_offset - committed <= MARKERS_BETWEEN_MAX
    )
