"""Queries of transactions: a page of transactional ids as their coordinators report them, and a single id with the
states of its producer.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from instances import access
from instances.groups.interfaces import (
    Partition,
    ProducerState,
    TransactionDescription,
    TransactionListing,
    transaction_admin_client,
)
from instances.interfaces import BrokerUnresponsive
from instances.models import Instance
from tenants.api import pages
from tenants.errors import NotFound, Unavailable

STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Empty", "PrepareEpochFence")
ONGOING = "Ongoing"
# Committed or aborted already; a marker has not reached a partition yet.
DECIDED = frozenset({"PrepareCommit", "PrepareAbort"})
IN_FLIGHT = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
# The coordinator checks every ten seconds for transactions past their timeout (TXN-17), and aborts them.
OVERDUE_GRACE_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRow:
    """A transactional id in a list; a field is None if its coordinator did not report it."""

    id: str
    state: str
    producer_id: int
    coordinator: int
    producer_epoch: int | None = None
    timeout_ms: int | None = None
    started_ms: int | None = None
    partitions: tuple[Partition, ...] | None = None
    now_ms: int

    @property
    def age_ms(self) -> int | None:
        """Time since the transaction was opened; None if none is open."""
        return None if self.started_ms is None or self.state not in IN_FLIGHT else max(0, self.now_ms - self.started_ms)

    @property
    def may_abort(self) -> bool:
        """True while the transaction is open and its outcome is not decided."""
        return self.state == ONGOING

    @property
    def is_overdue(self) -> bool:
        """True if it is open for longer than its timeout plus the coordinator's grace period."""
        return self.age_ms is not None and self.age_ms > (self.timeout_ms or 0) + OVERDUE_GRACE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPage:
    """A page of transactional ids, the number of ids in each state, and the unresponsive brokers."""

    rows: tuple[TransactionRow, ...]
    next_token: str | None
    counts: Mapping[str, int]
    silent: tuple[BrokerUnresponsive, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDetail:
    """One transactional id. `producers` has, for each partition, the state of its producer there (None if it has none),
    and True if the partition's leader answered.
    """

    row: TransactionRow
    producers: tuple[tuple[Partition, ProducerState | None, bool], ...]


def transaction_page(
    instance: Instance,
    *,
    contains: str = "",
    states: Sequence[str] = (),
    page_token: str | None = None,
    page_size: int = 50,
    now_ms: int | None = None,
) -> TransactionPage:
    """Returns transactional ids by name, in some states or all; only those of the page are described."""
    access.require_reachable(instance)
    result = transaction_admin_client.implementation.transactions(instance.pk)
    matching = [transaction for transaction in result.transactions if contains.lower() in transaction.id.lower()]
    rows, next_token = pages.page_of_items(
        [transaction for transaction in matching if not states or transaction.state in states],
        key=lambda transaction: transaction.id,
        page_size=page_size,
        page_token=page_token,
        binding=f"transactions {instance.pk} {contains} {sorted(states)}",
    )
    descriptions = transaction_admin_client.implementation.describe(instance.pk, [row.id for row in rows])
    at_ms = _now_ms() if now_ms is None else now_ms
    return TransactionPage(
        rows=tuple(_row(transaction, descriptions.get(transaction.id), at_ms) for transaction in rows),
        next_token=next_token,
        counts=Counter(transaction.state for transaction in matching),
        silent=result.silent,
    )


def transaction_detail(instance: Instance, transactional_id: str, *, now_ms: int | None = None) -> TransactionDetail:
    """Returns one transactional id. Raises `NotFound`, and `Unavailable` if its coordinator does not answer."""
    access.require_reachable(instance)
    descriptions = transaction_admin_client.implementation.describe(instance.pk, [transactional_id])
    if transactional_id not in descriptions:
        # The list would not help: it has no ids of a coordinator that does not answer.
        raise Unavailable("The transaction's coordinator does not answer at the moment.", retry_after_s=1)
    result = descriptions[transactional_id]
    if result is None:
        raise NotFound
    producers = transaction_admin_client.implementation.producers(instance.pk, result.partitions)
    states = []
    for partition in result.partitions:
        states_of_producer = [
            producer for producer in producers.get(partition, ()) if producer.producer_id == result.producer_id
        ]
        states.append((partition, states_of_producer[0] if states_of_producer else None, partition in producers))
    at_ms = _now_ms() if now_ms is None else now_ms
    listing = TransactionListing(
        id=result.id, producer_id=result.producer_id, state=result.state, coordinator=result.coordinator
    )
    return TransactionDetail(row=_row(listing, result, at_ms), producers=tuple(states))


def _row(listing: TransactionListing, description: TransactionDescription | None, now_ms: int) -> TransactionRow:
    if description is None:
        return TransactionRow(
            id=listing.id,
            state=listing.state,
            producer_id=listing.producer_id,
            coordinator=listing.coordinator,
            now_ms=now_ms,
        )
    return TransactionRow(
        id=description.id,
        state=description.state,
        producer_id=description.producer_id,
        coordinator=description.coordinator,
        producer_epoch=description.producer_epoch,
        timeout_ms=description.timeout_ms,
        started_ms=description.started_ms,
        partitions=description.partitions,
        now_ms=now_ms,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
