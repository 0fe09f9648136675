"""Repairs lost tasks: compares rows with documents, and finds leftovers without an owner."""

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


def needing_work(now: datetime) -> list[str]:
    """Returns the ids of instances that are changing, unconfirmed, due to be purged, or whose document differs."""
    result = list(incomplete(now))
    for cluster in Cluster.objects.active().order_by("pk"):
        with contained("sweep.cluster_failed", cluster_id=cluster.pk):
            if cluster.is_kafka:
                instance_placement.lease_on_all_gateways(cluster)
            try:
                published = Publisher(zookeeper.session(cluster), cluster.chroot).generations()
            except EXTERNAL_ERRORS as error:
                log.warning("sweep.no_zookeeper", cluster_id=cluster.pk, reason=type(error).__name__)
                continue
            result += differing(cluster, published)
    return list(dict.fromkeys(result))[:SWEEP_INSTANCES_MAX]


def incomplete(now: datetime) -> list[str]:
    """Returns the ids of instances whose rows alone show that work is left, the least recently updated first."""
    rows = Instance.objects.exclude(phase__in=(Phase.DELETED.value, Phase.FAILED.value)).filter(
        Q(phase__in=[phase.value for phase in WITH_PENDING_WORK])
        | Q(generation__gt=F("observed_generation"))
        | Q(phase=Phase.DELETING.value, restorable_until__lte=now)
    )
    return list(rows.order_by("updated_at").values_list("pk", flat=True)[:SWEEP_INSTANCES_MAX])


def differing(cluster: Cluster, published: dict[str, int]) -> list[str]:
    """Returns the instances of a cluster whose published generation is not that of their rows (for example after
    ZooKeeper was restored).
    """
    rows = Placement.objects.filter(cluster=cluster).values_list("instance_id", "instance__generation")
    return [instance_id for instance_id, generation in rows if published.get(instance_id) != generation]


def delete_leftovers() -> int:
    """Deletes probe topics of running instances, and documents of deleted instances; returns their number."""
    deleted = 0
    for cluster in Cluster.objects.active().order_by("pk"):
        with contained("tidy.cluster_failed", cluster_id=cluster.pk):
            try:
                publisher = Publisher(zookeeper.session(cluster), cluster.chroot)
                deleted += _probe_topics(publisher)
                deleted += _orphans(cluster, publisher)
            except EXTERNAL_ERRORS as error:
                log.warning("cleanup.failed", cluster_id=cluster.pk, reason=type(error).__name__)
    return deleted


def _probe_topics(publisher: Publisher) -> int:
    deleted = 0
    for internal in publisher.topics():
        instance_id, topic = naming.split_internal(internal)
        if topic != probe.PROBE_TOPIC or instance_id is None:
            continue
        if Instance.objects.filter(pk=instance_id, phase=Phase.RUNNING.value, first_running_at__isnull=False).exists():
            with contained("tidy.probe_failed", instance_id=instance_id):
                probe.clean_up(instance_id)
                deleted += 1
    return deleted


def _orphans(cluster: Cluster, publisher: Publisher) -> int:
    """Deletes documents without a placement: the reconciler crashed while failing an instance. Only it writes them."""
    placed = set(Placement.objects.filter(cluster=cluster).values_list("instance_id", flat=True))
    ended = Instance.objects.filter(phase__in=(Phase.DELETED.value, Phase.FAILED.value))
    deleted = 0
    for instance_id in set(publisher.generations()) - placed:
        if ended.filter(pk=instance_id).exists():
            with contained("tidy.orphan_failed", instance_id=instance_id):
                document = publisher.read_instance(instance_id)
                publisher.unpublish_instance(instance_id, document.leased_ports if document else ())
                publisher.forget_acks(instance_id)
                deleted += 1
    return deleted
