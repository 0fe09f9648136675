"""Periodic search for instances whose reconciliation was lost, and deletion of leftovers in ZooKeeper."""

from __future__ import annotations

from datetime import datetime

import structlog
from django.db.models import F, Q

from brokers.dataplane import probe
from brokers.infra import zookeeper
from brokers.limits import SWEEP_INSTANCES_MAX
from brokers.models import Cluster, Placement
from brokers.placement import instance_placement
from brokers.provisioning.publisher import Publisher
from instances import naming
from instances.lifecycle.phases import WITH_PENDING_WORK, Phase
from instances.models import Instance
from tenants.containment import contained
from tenants.errors import DomainError

log = structlog.get_logger(__name__)

EXTERNAL_ERRORS = (DomainError, *zookeeper.ERRORS)


def instance_ids_needing_work(now: datetime) -> list[str]:
    """Returns the ids of instances that are changing, unconfirmed, due to be purged, or whose document differs."""
    result = list(incomplete_instance_ids(now))
    for cluster in Cluster.objects.active().order_by("pk"):
        with contained("sweep.cluster_failed", cluster_id=cluster.pk):
            if cluster.is_kafka:
                instance_placement.lease_on_all_gateways(cluster)
            try:
                generation_by_instance = Publisher(zookeeper.session(cluster), cluster.chroot).generations()
            except EXTERNAL_ERRORS as error:
                log.warning("sweep.no_zookeeper", cluster_id=cluster.pk, reason=type(error).__name__)
                continue
            result += differing_instance_ids(cluster, generation_by_instance)
    return list(dict.fromkeys(result))[:SWEEP_INSTANCES_MAX]


def incomplete_instance_ids(now: datetime) -> list[str]:
    """Returns the ids of instances that are changing, unconfirmed or due to be purged, according to their rows alone.

    The least recently updated instances come first.
    """
    rows = Instance.objects.exclude(phase__in=(Phase.DELETED.value, Phase.FAILED.value)).filter(
        Q(phase__in=[phase.value for phase in WITH_PENDING_WORK])
        | Q(generation__gt=F("observed_generation"))
        | Q(phase=Phase.DELETING.value, restorable_until__lte=now)
    )
    return list(rows.order_by("updated_at").values_list("pk", flat=True)[:SWEEP_INSTANCES_MAX])


def differing_instance_ids(cluster: Cluster, generation_by_instance: dict[str, int]) -> list[str]:
    """Returns the instances of a cluster whose published generation is not that of their rows (for example after
    ZooKeeper was restored).
    """
    rows = Placement.objects.filter(cluster=cluster).values_list("instance_id", "instance__generation")
    return [instance_id for instance_id, generation in rows if generation_by_instance.get(instance_id) != generation]


def delete_leftovers() -> int:
    """Deletes probe topics of running instances, and documents of deleted instances; returns their number."""
    deleted = 0
    for cluster in Cluster.objects.active().order_by("pk"):
        with contained("tidy.cluster_failed", cluster_id=cluster.pk):
            try:
                publisher = Publisher(zookeeper.session(cluster), cluster.chroot)
                deleted += _delete_probe_topics(publisher)
                deleted += _delete_orphaned_documents(cluster, publisher)
            except EXTERNAL_ERRORS as error:
                log.warning("cleanup.failed", cluster_id=cluster.pk, reason=type(error).__name__)
    return deleted


def _delete_probe_topics(publisher: Publisher) -> int:
    deleted = 0
    for internal_name in publisher.topics():
        instance_id, topic = naming.split_internal(internal_name)
        if topic != probe.PROBE_TOPIC or instance_id is None:
            continue
        if Instance.objects.filter(pk=instance_id, phase=Phase.RUNNING.value, first_running_at__isnull=False).exists():
            with contained("tidy.probe_failed", instance_id=instance_id):
                probe.clean_up(instance_id)
                deleted += 1
    return deleted


def _delete_orphaned_documents(cluster: Cluster, publisher: Publisher) -> int:
    """Deletes documents of ended instances without a placement, left by a crash of the reconciler. Returns the number
    of instances.
    """
    placed_instance_ids = set(Placement.objects.filter(cluster=cluster).values_list("instance_id", flat=True))
    ended_instances = Instance.objects.filter(phase__in=(Phase.DELETED.value, Phase.FAILED.value))
    deleted = 0
    for instance_id in set(publisher.generations()) - placed_instance_ids:
        if ended_instances.filter(pk=instance_id).exists():
            with contained("tidy.orphan_failed", instance_id=instance_id):
                document = publisher.read_instance(instance_id)
                publisher.unpublish_instance(instance_id, document.leased_ports if document else ())
                publisher.forget_acks(instance_id)
                deleted += 1
    return deleted
