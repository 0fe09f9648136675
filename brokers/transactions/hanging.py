"""Hanging transactions and their abort. They are overdue (open for longer than their timeout), or orphans (open on a
partition while no coordinator knows of them).

An open transaction blocks all readers of committed messages of its partitions (TXN-23). Its coordinator ends it after
its timeout (TXN-17); the remaining ones need an operator. Hanging transactions are found as by Kafka's tool: first the
leaders are queried for open transactions, then the coordinators for those that they know. In this order, a transaction
that ends in between is not reported as hanging.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from brokers.dataplane.transactions import ClusterTransactions
from brokers.limits import (
    HANGING_DESCRIBED_AT_ONCE,
    HANGING_LISTED_MAX,
    HANGING_SCAN_PARTITIONS_MAX,
    HANGING_UNKNOWN_AFTER_MS,
)
from brokers.models import Cluster
from brokers.monitoring import cluster_overview
from instances.groups.interfaces import Partition, ProducerState, TransactionDescription, TransactionListing
from instances.groups.transaction_selectors import DECIDED, ONGOING, OVERDUE_GRACE_MS
from instances.interfaces import BrokerUnresponsive
from instances.models import Instance
from instances.naming import plain_scoped, split_internal
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, Unavailable
from tenants.models import AuditEntry

PAGE_OF_PARTITIONS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueTransaction:
    """A transaction that its coordinator should have ended. `id` and topics are internal names.

    `is_decided`: it is committed or aborted already, and a marker does not reach one of its partitions.
    """

    id: str
    instance_id: str | None
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    age_ms: int
    partitions: tuple[Partition, ...]

    @property
    def shown_id(self) -> str:
        """The id as its tenant knows it."""
        return self.id if self.instance_id is None else plain_scoped(self.instance_id, self.id) or self.id

    @property
    def shown_partitions(self) -> tuple[Partition, ...]:
        """The partitions as the tenant knows them; internal topics of the cluster by their own names."""
        return tuple((topic.removeprefix(f"{self.instance_id}."), index) for topic, index in self.partitions)

    @property
    def is_decided(self) -> bool:
        return self.state in DECIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanTransaction:
    """A transaction that is open on a partition, while no coordinator has an open transaction with this partition."""

    producer: ProducerState
    instance_id: str | None
    silent_ms: int

    @property
    def topic_partition(self) -> Partition:
        return self.producer.topic, self.producer.partition


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueList:
    rows: tuple[OverdueTransaction, ...]
    silent: tuple[BrokerUnresponsive, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanScan:
    """Result of the scan of a part of the cluster's partitions, with the number of scanned partitions in `looked_at`.

    `following` is the position of the next part, "" at the end. `unanswered` is the number of partitions whose leader
    did not answer.
    """

    rows: tuple[OrphanTransaction, ...]
    looked_at: int
    unanswered: int
    following: str
    silent: tuple[BrokerUnresponsive, ...]


def list_overdue(cluster: Cluster, *, now_ms: int | None = None) -> OverdueList:
    """Returns the transactions open for longer than their timeout and the coordinators' grace period, the
    oldest first.
    """
    at_ms = _now_ms() if now_ms is None else now_ms
    admin_client = ClusterTransactions(cluster)
    result = admin_client.transactions(open_for_ms=OVERDUE_GRACE_MS)
    open_transactions = [
        transaction
        for transaction in result.transactions
        if transaction.state == ONGOING or transaction.state in DECIDED
    ]
    rows: list[OverdueTransaction] = []
    silent = {transaction.broker_id: transaction for transaction in result.silent}
    for start in range(0, len(open_transactions), HANGING_DESCRIBED_AT_ONCE):
        page = open_transactions[start : start + HANGING_DESCRIBED_AT_ONCE]
        descriptions = admin_client.describe([transaction.id for transaction in page])
        silent |= _undescribed_coordinators(page, descriptions)
        rows += [
            row
            for transaction in descriptions.values()
            if transaction is not None and (row := _overdue_or_none(transaction, at_ms)) is not None
        ]
        if len(rows) >= HANGING_LISTED_MAX:
            break
    return OverdueList(
        rows=tuple(sorted(rows, key=lambda row: -row.age_ms)),
        silent=tuple(silent[number] for number in sorted(silent)),
    )


def scan_orphans(cluster: Cluster, *, after: str = "", now_ms: int | None = None) -> OrphanScan:
    """Returns orphans among the next partitions, as reported by the leaders. Raises `Unavailable` if no
    broker answers.
    """
    at_ms = _now_ms() if now_ms is None else now_ms
    admin_client = ClusterTransactions(cluster)
    partitions, following = _next_partitions(cluster, after)
    summaries = admin_client.producers(partitions)
    open_producers = [
        producer
        for summary in summaries.values()
        for producer in summary
        if producer.transaction_start_offset is not None
    ]
    idle_producers = [
        producer for producer in open_producers if at_ms - producer.last_timestamp_ms >= HANGING_UNKNOWN_AFTER_MS
    ]
    transactions_by_producer, silent = _query_known_transactions(admin_client, idle_producers)
    # While a coordinator does not answer, a transaction may be known to it.
    orphans = (
        []
        if silent
        else [
            producer
            for producer in idle_producers
            if not _is_known_to_coordinator(transactions_by_producer.get(producer.producer_id, ()), producer)
        ]
    )
    return OrphanScan(
        rows=tuple(
            OrphanTransaction(
                producer=producer,
                instance_id=split_internal(producer.topic)[0],
                silent_ms=at_ms - producer.last_timestamp_ms,
            )
            for producer in sorted(orphans, key=lambda orphan: (orphan.topic, orphan.partition))
        ),
        looked_at=len(partitions),
        unanswered=len(partitions) - len(summaries),
        following=following,
        silent=silent,
    )


@audit.atomic
def abort_overdue(*, acting: Actor, cluster: Cluster, transactional_id: str, dry_run: bool = False) -> None:
    """Aborts a transaction through its coordinator: its producer is fenced, as by a new InitProducerId (TXN-5).

    Raises `Conflict` if it has ended, is decided, or is still within its timeout, and `Unavailable` if its coordinator
    does not answer.
    """
    access.require(acting, Scope.OPERATOR)
    admin_client = ClusterTransactions(cluster)
    descriptions = admin_client.describe([transactional_id])
    if transactional_id not in descriptions:
        raise Unavailable("The transaction's coordinator does not answer at the moment.", retry_after_s=1)
    result = descriptions[transactional_id]
    row = _overdue_or_none(result, _now_ms()) if result is not None else None
    if row is None:
        raise Conflict("The transaction has ended, or is within its time-out.", code="not_hanging")
    if row.is_decided:
        raise Conflict("Its outcome is decided; what is missing is a marker.", code="decided")
    after = {"fenced": True, "producer_id": row.producer_id, "producer_epoch": row.producer_epoch}
    entry = _record_abort(acting, row.instance_id, transactional_id, after)
    if not dry_run:
        with audit.in_doubt(entry):
            admin_client.fence(transactional_id)


@audit.atomic
def abort_orphan(
    *,
    acting: Actor,
    cluster: Cluster,
    topic: str,
    partition: int,
    producer_id: int,
    transaction_start_offset: int,
    dry_run: bool = False,
) -> None:
    """Writes an ABORT marker into one partition, as the cluster itself.

    Raises `Conflict` if the transaction has ended, is too young, or is known to a coordinator after all.
    """
    access.require(acting, Scope.OPERATOR)
    admin_client = ClusterTransactions(cluster)
    producers = admin_client.producers([(topic, partition)]).get((topic, partition))
    if producers is None:
        raise Unavailable("The partition has no leader that answers at the moment.", retry_after_s=1)
    matching_producers = [
        summary
        for summary in producers
        if summary.producer_id == producer_id and summary.transaction_start_offset == transaction_start_offset
    ]
    if not matching_producers or _now_ms() - matching_producers[0].last_timestamp_ms < HANGING_UNKNOWN_AFTER_MS:
        raise Conflict("The transaction has ended, or is not old enough to say that it hangs.", code="not_hanging")
    transactions_by_producer, silent = _query_known_transactions(admin_client, matching_producers)
    if silent:
        raise Conflict("A coordinator does not answer: it may know of the transaction.", code="not_known")
    if _is_known_to_coordinator(transactions_by_producer.get(producer_id, ()), matching_producers[0]):
        raise Conflict("A coordinator knows of the transaction and will end it.", code="not_hanging")
    owner = split_internal(topic)[0]
    name = topic.removeprefix(f"{owner}.")
    after = {
        "topic": name,
        "partition": partition,
        "producer_id": producer_id,
        "first_offset": transaction_start_offset,
    }
    entry = _record_abort(acting, owner, f"{topic}/{partition}", after)
    if not dry_run:
        with audit.in_doubt(entry):
            admin_client.abort(matching_producers[0])


def _overdue_or_none(transaction: TransactionDescription, now_ms: int) -> OverdueTransaction | None:
    if transaction.started_ms is None or not (transaction.state == ONGOING or transaction.state in DECIDED):
        return None
    age_ms = now_ms - transaction.started_ms
    if age_ms <= transaction.timeout_ms + OVERDUE_GRACE_MS:
        return None
    return OverdueTransaction(
        id=transaction.id,
        instance_id=split_internal(transaction.id)[0],
        state=transaction.state,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        timeout_ms=transaction.timeout_ms,
        age_ms=age_ms,
        partitions=transaction.partitions,
    )


def _next_partitions(cluster: Cluster, after: str) -> tuple[list[Partition], str]:
    """Returns the next partitions by name, and the position of those after them."""
    partitions: list[Partition] = []
    following = after
    while len(partitions) < HANGING_SCAN_PARTITIONS_MAX:
        limit = min(PAGE_OF_PARTITIONS, HANGING_SCAN_PARTITIONS_MAX - len(partitions))
        page, following = cluster_overview.partition_page(cluster, after=following, limit=limit)
        partitions += [(partition["topic"], partition["partition"]) for partition in page]
        if not following:
            break
    return partitions, following


def _query_known_transactions(
    admin_client: ClusterTransactions, producers: Iterable[ProducerState]
) -> tuple[dict[int, list[TransactionDescription]], tuple[BrokerUnresponsive, ...]]:
    """Returns the transactions known to coordinators by producer id, and the coordinators that did not answer."""
    ids = sorted({producer.producer_id for producer in producers})
    if not ids:
        return {}, ()
    listing = admin_client.transactions(producer_ids=ids)
    descriptions = admin_client.describe([producer.id for producer in listing.transactions])
    result: dict[int, list[TransactionDescription]] = {}
    for producer in descriptions.values():
        if producer is not None:
            result.setdefault(producer.producer_id, []).append(producer)
    silent = {producer.broker_id: producer for producer in listing.silent} | _undescribed_coordinators(
        listing.transactions, descriptions
    )
    return result, tuple(silent[number] for number in sorted(silent))


def _undescribed_coordinators(
    listed: Iterable[TransactionListing], described: Mapping[str, TransactionDescription | None]
) -> dict[int, BrokerUnresponsive]:
    """Returns the coordinators that listed an id and did not describe it."""
    return {
        listing.coordinator: BrokerUnresponsive(broker_id=listing.coordinator, reason="does not answer")
        for listing in listed
        if listing.id not in described
    }


def _is_known_to_coordinator(transactions: Sequence[TransactionDescription], producer: ProducerState) -> bool:
    """True if a coordinator has the partition in an open transaction, which it will end."""
    return any(
        (producer.topic, producer.partition) in transaction.partitions
        and (transaction.state == ONGOING or transaction.state in DECIDED)
        for transaction in transactions
    )


def _record_abort(acting: Actor, instance_id: str | None, name: str, after: Mapping[str, object]) -> AuditEntry:
    """Writes the audit entry to the tenant's log, because it is the tenant's transaction."""
    owner = Instance.objects.select_related("tenant").filter(pk=instance_id or "").first()
    tenant = owner.tenant if owner is not None else None
    tenant_name = name.removeprefix(f"{instance_id}.")[:240].replace("\x00", "�")
    target = f"{instance_id}/{tenant_name}" if instance_id else tenant_name
    return audit.record(acting, "transaction.aborted", ("transaction", target), None, after, tenant=tenant)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
