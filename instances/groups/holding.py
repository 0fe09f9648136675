"""Open transactions that block a group: its consumers of committed records cannot read past their first offset."""

from __future__ import annotations

import time
from collections.abc import Iterable

from instances.groups.interfaces import Partition, ProducerState, transaction_admin_client
from instances.groups.selectors import Holder, PartitionLag
from instances.limits import HELD_PARTITIONS_ASKED_MAX, HELD_SHOWN_MAX
from instances.models import Instance

# Transactions in a healthy stream are shorter than this, and do not block for long.
HELD_FROM_MS = 10_000
# A group may be positioned before markers of earlier transactions, which are offsets without records.
MARKERS_BETWEEN_MAX = 10


def held_by(instance: Instance, lines: Iterable[PartitionLag], *, now_ms: int | None = None) -> list[Holder]:
    """Returns the transactions that block a group, the longest open first. Leaders are queried for partitions in which
    the group lags, those with the largest lag first.
    """
    lagging = (partition for partition in lines if partition.lag)
    late = sorted(lagging, key=lambda partition: -(partition.lag or 0))[:HELD_PARTITIONS_ASKED_MAX]
    if not late:
        return []
    at_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    writers = transaction_admin_client.it.producers(instance.pk, [lag.place for lag in late])
    first: dict[Partition, ProducerState] = {}
    for lag in late:
        state = _first_open(writers.get(lag.place, ()))
        if state is not None and lag.committed is not None and _stands_before(lag.committed, state):
            first[lag.place] = state
    if not first:
        return []
    listed = transaction_admin_client.it.transactions(instance.pk).transactions
    wanted = {state.producer_id for state in first.values()}
    ids = {item.producer_id: item.id for item in listed if item.producer_id in wanted}
    described = transaction_admin_client.it.describe(instance.pk, sorted(ids.values()))
    holders = []
    for (topic, partition), state in first.items():
        name = ids.get(state.producer_id, "")
        known = described.get(name)
        started_ms = known.started_ms if known is not None else None
        open_ms = at_ms - (state.last_timestamp_ms if started_ms is None else started_ms)
        if open_ms >= HELD_FROM_MS:
            holders.append(
                Holder(
                    id=name, producer_id=state.producer_id, topic=topic, partition=partition,
                    offset=state.transaction_start_offset or 0, open_ms=open_ms,
                )
            )  # fmt: skip
    return sorted(holders, key=lambda holder: -holder.open_ms)[:HELD_SHOWN_MAX]


def _first_open(states: Iterable[ProducerState]) -> ProducerState | None:
    """Returns the open transaction with the lowest offset: consumers of committed records read nothing after it."""
    return min(
        (state for state in states if state.transaction_start_offset is not None),
        key=lambda state: state.transaction_start_offset or 0,
        default=None,
    )


def _stands_before(committed: int, state: ProducerState) -> bool:
    """True if a group has read everything before the transaction, except markers, and nothing of it."""
    return (
        state.transaction_start_offset is not None
        and 0 <= state.transaction_start_offset - committed <= MARKERS_BETWEEN_MAX
    )
