"""Retires a cluster without instances: waits until its usage and audit records are read, then stops and removes its
brokers, and deletes its documents.

Each run works from the current state alone. Usage and audit come first, because they would be lost with the last
broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import structlog
from django.db import transaction
from django.utils import timezone

from brokers import selectors, services
from brokers.choices import ClusterState, FleetStep, ProcessState, WantedState
from brokers.contract.audit import AUDIT_TOPIC
from brokers.contract.process import CLUSTER_USER
from brokers.contract.usage import USAGE_INTERVAL_MS, USAGE_TOPIC
from brokers.dataplane.cluster import ClusterAdminClient
from brokers.dataplane.offsets import query_offsets
from brokers.dataplane.scatter import targets
from brokers.infra import zookeeper
from brokers.models import AuditOffset, Broker, Cluster, FleetOperation
from brokers.operations import fleet_operations, membership
from brokers.operations.interfaces import next_usage_offsets
from brokers.provisioning.forget_cluster import delete_tree
from tenants import audit
from tenants.actors import system_actor

log = structlog.get_logger(__name__)

ACTOR = "fleet"
LATEST = -1
# The last counters of an instance are written within an interval of its end; another interval allows for clock
# differences.
WRITTEN_AFTER = timedelta(milliseconds=2 * USAGE_INTERVAL_MS)
STOPPED = (ProcessState.STOPPED, ProcessState.UNKNOWN)


def reconcile_once(operation: FleetOperation) -> bool:
    """Performs the next steps; True if the cluster is retired. Raises `DomainError`, or the errors of kazoo, if brokers
    or ZooKeeper do not answer.
    """
    brokers = list(
        Broker.objects.filter(cluster=operation.cluster, removed_at=None).select_related("host").order_by("number")
    )
    if not fleet_operations.is_done(operation, FleetStep.USAGE_READ) and not _await_usage_read(operation, brokers):
        return False
    return _stop_brokers(operation, brokers) and _remove_brokers(operation, brokers)


def _await_usage_read(operation: FleetOperation, brokers: list[Broker]) -> bool:
    """Stores the end offsets of the usage and audit topics with the step, once the last records are written.

    Returns True if the database has all records up to these offsets.
    """
    step = FleetStep.USAGE_READ
    if not brokers or not fleet_operations.data_of(operation, FleetStep.ACCEPTED).get("was_ready"):
        fleet_operations.mark_done(operation, step, "No instance was ever served.")
        return True
    end_offsets = fleet_operations.data_of(operation, step).get("ends")
    if end_offsets is None:
        if timezone.now() < operation.created_at + WRITTEN_AFTER:
            fleet_operations.mark_waiting(operation, step, "Brokers write down the last counters.")
            return False
        end_offsets = _query_end_offsets(operation.cluster)
        if end_offsets is None:
            fleet_operations.mark_waiting(operation, step, "A partition of the cluster's own topics has no leader.")
            return False
        fleet_operations.mark_waiting(operation, step, "Waits for the pipeline.", ends=end_offsets)
    audit_read_to = AuditOffset.objects.filter(cluster=operation.cluster_id).values_list("partition", "next_offset")
    read_offsets = {
        USAGE_TOPIC: next_usage_offsets.implementation(operation.cluster_id),
        AUDIT_TOPIC: dict(audit_read_to),
    }
    unread_by_topic = unread_records(end_offsets, read_offsets)
    if unread_by_topic:
        topic, count = next(iter(unread_by_topic.items()))
        fleet_operations.mark_waiting(
            operation, step, f"{count:,} records of {topic} are not read yet.", ends=end_offsets
        )
        return False
    fleet_operations.mark_done(operation, step, "All read", ends=end_offsets)
    return True


def unread_records(
    end_offsets: Mapping[str, Mapping[str, int]], read_offsets: Mapping[str, Mapping[int, int]]
) -> dict[str, int]:
    """Returns, by topic, the number of records between the read offsets and the stored ends. Partitions are strings in
    `end_offsets`, as stored in JSON. Pure.
    """
    unread_counts = {
        topic: sum(max(0, end - read_offsets.get(topic, {}).get(int(index), 0)) for index, end in partitions.items())
        for topic, partitions in end_offsets.items()
    }
    return {topic: count for topic, count in unread_counts.items() if count}


def _query_end_offsets(cluster: Cluster) -> dict[str, dict[str, int]] | None:
    """Returns the end offsets of the partitions of usage and audit; None while one of them is unknown."""
    topics = (USAGE_TOPIC, AUDIT_TOPIC)
    partitions = ClusterAdminClient(cluster).view(topics).partitions
    offsets = query_offsets(targets(cluster, CLUSTER_USER), partitions, LATEST)
    if not offsets.keys() >= partitions.keys():
        return None
    result: dict[str, dict[str, int]] = {topic: {} for topic in topics}
    for topic, index in partitions:
        result[topic][str(index)] = offsets[topic, index]
    return result


def _stop_brokers(operation: FleetOperation, brokers: list[Broker]) -> bool:
    """Requests that all brokers stop. True if all have stopped."""
    acting = system_actor(ACTOR)
    for broker in brokers:
        if broker.wanted != WantedState.STOPPED:
            services.set_wanted(acting=acting, broker=broker, wanted=WantedState.STOPPED)
    running = [broker for broker in brokers if broker.process_state not in STOPPED]
    if running:
        first_running = running[0]
        is_agent_alive = selectors.agent_is_alive(first_running.host)
        reason = "is stopping" if is_agent_alive else f"runs, and the agent of host {first_running.host.name} is silent"
        stopped_count = len(brokers) - len(running)
        fact = f"{stopped_count} of {len(brokers)}. Broker {first_running.number} {reason}."
        fleet_operations.mark_waiting(
            operation, FleetStep.BROKERS_STOPPED, fact, stopped=stopped_count, of=len(brokers)
        )
        return False
    fleet_operations.mark_done(operation, FleetStep.BROKERS_STOPPED, f"{len(brokers)} of {len(brokers)}")
    return True


def _remove_brokers(operation: FleetOperation, brokers: list[Broker]) -> bool:
    """Removes the brokers and the documents of the cluster. True if the operation succeeded."""
    for broker in brokers:
        membership.remove_broker(acting=system_actor(ACTOR), broker=broker)
    fleet_operations.mark_done(operation, FleetStep.BROKERS_REMOVED, "Their logs stay on the hosts' disks.")
    cluster = operation.cluster
    deletion = delete_tree(zookeeper.session(cluster), cluster.chroot)
    if deletion.kept:
        log.warning("cluster.documents_kept", cluster_id=cluster.pk, kept=deletion.kept)
    fact = f"{deletion.deleted:,} documents"
    fleet_operations.mark_done(operation, FleetStep.DOCUMENTS_REMOVED, fact, kept=deletion.kept)
    return _finish(operation)


@transaction.atomic
def _finish(operation: FleetOperation) -> bool:
    """Marks the cluster as retired. False if the operation has ended meanwhile."""
    cluster = Cluster.objects.select_for_update().get(pk=operation.cluster_id)
    if not fleet_operations.succeed(operation):
        return False
    cluster.state, cluster.retired_at, cluster.reserved_for = ClusterState.RETIRED, timezone.now(), None
    cluster.save_changes(["state", "retired_at", "reserved_for"])
    audit.record(system_actor(ACTOR), "cluster.retired", cluster, None, {"operation": operation.pk})
    log.info("cluster.retired", cluster_id=cluster.pk)
    return True
