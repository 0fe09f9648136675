"""What is sold on each broker, and what is left: the numbers that `placement` decides on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction

from django.db.models import Count

from brokers import placement
from brokers.choices import ClusterKind, WantedState
from brokers.models import Cluster, Placement, PortLease
from instances.choices import ClusterType
from instances.models import Instance
from tenants.errors import Conflict


def rooms(clusters: Iterable[Cluster], *, besides: Instance | None = None) -> list[placement.ClusterRoom]:
    """What each cluster has left, as if `besides` were not there (for resizing it)."""
    return [_room(cluster, besides) for cluster in clusters]


def _room(cluster: Cluster, besides: Instance | None) -> placement.ClusterRoom:
    leases = PortLease.objects.filter(broker__cluster=cluster)
    sold_bandwidth: dict[str, Fraction] = defaultdict(Fraction)
    sold_storage: dict[str, Fraction] = defaultdict(Fraction)
    spread = dict(leases.values("instance_id").annotate(brokers=Count("id")).values_list("instance_id", "brokers"))
    sizes = {row.instance_id: row for row in Placement.objects.filter(cluster=cluster)}
    for instance_id, broker_id in leases.values_list("instance_id", "broker_id"):
        size = sizes.get(instance_id)
        if size is None or (besides is not None and instance_id == besides.pk):
            continue
        sold_bandwidth[broker_id] += Fraction(size.bandwidth_mb_s, spread[instance_id])
        sold_storage[broker_id] += Fraction(size.storage_gb, spread[instance_id])
    brokers = cluster.brokers.filter(wanted=WantedState.RUNNING)
    return placement.ClusterRoom(
        id=cluster.pk,
        brokers_min=cluster.brokers_per_instance_min,
        brokers=tuple(
            placement.BrokerRoom(
                id=broker.pk,
                number=broker.number,
                free_bandwidth_mb_s=broker.bandwidth_mb_s - sold_bandwidth[broker.pk],
                free_storage_gb=broker.storage_gb - sold_storage[broker.pk],
            )
            for broker in brokers
            if broker.accepts_instances or besides is not None
        ),
    )


def candidates(instance: Instance) -> list[Cluster]:
    """Clusters that may take an instance, locked in one order so that two placements see each other's sales.

    A dedicated instance takes a dedicated cluster that nobody lives on. Call in a transaction.
    """
    is_dedicated = instance.cluster_type == ClusterType.DEDICATED
    kind = ClusterKind.DEDICATED if is_dedicated else ClusterKind.SHARED
    rows = Cluster.objects.select_for_update().filter(kind=kind, accepts_instances=True).order_by("pk")
    found = list(rows)
    if is_dedicated:
        settled = set(Placement.objects.filter(cluster__in=found).values_list("cluster_id", flat=True))
        found = [cluster for cluster in found if cluster.pk not in settled]
    return found


class Room:
    """The port `instances.ports.capacity`."""

    def reserve(self, instance: Instance, *, bandwidth_mb_s: int, storage_gb: int) -> None:
        """Take the room for another size of a placed instance, on its brokers, in the caller's transaction."""
        found = Placement.objects.select_related("cluster").filter(instance=instance).first()
        if found is None:
            return
        cluster = Cluster.objects.select_for_update().get(pk=found.cluster_id)
        lives_on = set(PortLease.objects.filter(instance=instance).values_list("broker_id", flat=True))
        share = max(1, len(lives_on))
        for broker in rooms([cluster], besides=instance)[0].brokers:
            grows = bandwidth_mb_s > found.bandwidth_mb_s or storage_gb > found.storage_gb
            has_room = placement.takes(broker, Fraction(bandwidth_mb_s, share), Fraction(storage_gb, share))
            if broker.id in lives_on and grows and not has_room:
                raise Conflict(
                    f"The brokers of this instance have no room for {bandwidth_mb_s} MB/s and {storage_gb} GB.",
                    code="no_room",
                )
        found.bandwidth_mb_s, found.storage_gb = bandwidth_mb_s, storage_gb
        found.save(update_fields=["bandwidth_mb_s", "storage_gb"])
