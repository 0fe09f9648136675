"""Reads the audit events that brokers wrote about changes by Kafka clients, and stores them as rows of the audit log.

Each event is converted once: rows and offsets are written in one transaction (like usage, decision 10). A reader holds
the lock of its cluster, so that there is only one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import structlog
from django.db import transaction

from brokers.auditing import source
from brokers.auditing.rows import audit_entries_of
from brokers.auditing.source import FetchedEvents
from brokers.contract.process import CLUSTER_USER
from brokers.dataplane.scatter import Target, targets
from brokers.infra.locks import Busy, exclusive_lock
from brokers.models import AuditOffset, Cluster
from instances.models import Instance
from tenants import audit
from tenants.choices import ActorKind
from tenants.containment import contained
from tenants.errors import Unavailable
from tenants.models import AuditEntry

log = structlog.get_logger(__name__)

# A backlog is processed in bounded rounds; a task ends after this many.
ROUNDS_PER_TASK_MAX: Final = 20


def read_all_clusters() -> int:
    """Reads all clusters and returns the number of new events. An unreachable cluster does not delay the others."""
    count = 0
    for cluster in Cluster.objects.active().order_by("pk"):
        with contained("audit.cluster_failed", cluster_id=cluster.pk):
            try:
                with exclusive_lock(f"audit of {cluster.pk}"):
                    count += _read_cluster(cluster)
            except Busy:
                log.debug("audit.busy", cluster_id=cluster.pk)
            except Unavailable as error:
                log.info("audit.unreachable", cluster_id=cluster.pk, reason=str(error))
    return count


def forget_offset(cluster_id: str, partition: int) -> None:
    """Deletes the offset of a partition whose log is about to be recreated, so that it is read from the start."""
    AuditOffset.objects.filter(cluster_id=cluster_id, partition=partition).delete()


def _read_cluster(cluster: Cluster) -> int:
    brokers = targets(cluster, CLUSTER_USER)
    if not brokers:
        return 0
    leader_by_partition = source.leaders(brokers)
    count = 0
    for _ in range(ROUNDS_PER_TASK_MAX):
        if not leader_by_partition:
            break
        fetched_by_partition = source.fetch(brokers, leader_by_partition, _next_offsets(cluster, leader_by_partition))
        count += _store_fetched_events(cluster, brokers, fetched_by_partition)
        # Partitions that have more records, or were reset to their start.
        leader_by_partition = {
            partition: leader_by_partition[partition]
            for partition, fetched in fetched_by_partition.items()
            if fetched.is_out_of_range or fetched.next_offset < fetched.end_offset
        }
    return count


def _next_offsets(cluster: Cluster, partitions: Iterable[int]) -> dict[int, int]:
    stored = dict(AuditOffset.objects.filter(cluster=cluster).values_list("partition", "next_offset"))
    return {partition: stored.get(partition, 0) for partition in partitions}


@transaction.atomic
def _store_fetched_events(
    cluster: Cluster, brokers: Mapping[int, Target], fetched_by_partition: Mapping[int, FetchedEvents]
) -> int:
    count = 0
    for partition, fetched in sorted(fetched_by_partition.items()):
        if fetched.is_out_of_range:
            _reset_offset(cluster, brokers, partition)
            continue
        if not fetched.events and not fetched.next_offset:
            continue
        row, _ = AuditOffset.objects.select_for_update().get_or_create(cluster=cluster, partition=partition)
        if fetched.next_offset <= row.next_offset:
            continue
        count += _append_entries(fetched, row)
        row.next_offset = fetched.next_offset
        row.save(update_fields=("next_offset",))
    return count


def _append_entries(fetched: FetchedEvents, row: AuditOffset) -> int:
    events = [(offset, event) for offset, event in fetched.events if offset >= row.next_offset]
    recorded_ids = _recorded_event_ids({event.id for offset, event in events if offset < row.checked_below})
    new_events = [event for _, event in events if event.id not in recorded_ids]
    instances = Instance.objects.in_bulk({event.instance_id for event in new_events})
    entries = []
    for event in new_events:
        instance = instances.get(event.instance_id)
        if instance is None:
            log.warning("audit.unknown_instance", instance_id=event.instance_id, event_id=event.id)
        else:
            with contained("audit.event_failed", instance_id=event.instance_id, event_id=event.id):
                entries += audit_entries_of(event, instance)
    audit.append(entries)
    return len(new_events)


def _recorded_event_ids(ids: set[str]) -> set[str]:
    """Returns the ids of events with rows. Used only after a log was truncated, because the table has no such index."""
    if not ids:
        return set()
    rows = AuditEntry.objects.filter(actor_kind=ActorKind.CLIENT, request_id__in=ids)
    return set(rows.values_list("request_id", flat=True))


def _reset_offset(cluster: Cluster, brokers: Mapping[int, Target], partition: int) -> None:
    """Resets the offset of a partition whose log does not contain it.

    Either events were deleted by retention before they were read, or the log was truncated in a crash, and events with
    rows may be read again.
    """
    offsets = source.bounds(brokers, partition)
    if offsets is None:
        return
    log_start_offset, end = offsets
    row, is_new = AuditOffset.objects.select_for_update().get_or_create(cluster=cluster, partition=partition)
    if row.next_offset > end:
        log.warning("audit.log_truncated", cluster_id=cluster.pk, partition=partition, stored=row.next_offset, end=end)
        row.checked_below = end
    elif not is_new:
        log.error(
            "audit.events_lost", cluster_id=cluster.pk, partition=partition, count=log_start_offset - row.next_offset
        )
    row.next_offset = log_start_offset
    row.save(update_fields=("next_offset", "checked_below"))
