"""Sold and free capacity of each broker: the input of `placement`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any

from django.db.models import Max
from django.utils import timezone
from django.utils.translation import gettext_noop

from brokers.choices import ClusterKind, ClusterState, Health, WantedState
from brokers.limits import BROKERS_PER_CLUSTER_MAX
from brokers.models import Broker, Cluster, Placement, PortLease
from brokers.monitoring.health import health
from brokers.placement import placement
from brokers.placement.sold import ClusterSales, SoldCapacity, promised_placements, sold_by_broker, sold_by_cluster
from instances.choices import ClusterType
from instances.lifecycle.phases import Phase
from instances.models import Instance
from tenants.errors import Conflict, FieldError, Message

ANSWERING_STATES = (Health.HEALTHY, Health.DISK_OFFLINE)
# Phases in which an instance does not need the cluster that is reserved for it.
PHASES_WITHOUT_PLACEMENT = (Phase.DELETED, Phase.FAILED, Phase.DELETING)


def headrooms(
    clusters: Iterable[Cluster], *, excluded: Instance | None = None, tenant_id: str = ""
) -> list[placement.ClusterHeadroom]:
    """Returns the free capacity of each cluster, and its number of instances of the given tenant.

    The instance `excluded`, which is to be resized, does not count as sold.
    """
    cluster_list = list(clusters)
    # Health is judged at the time of the latest observation: a late observer must not make all brokers count as
    # unresponsive.
    observed_at = Broker.objects.aggregate(at=Max("observed_at"))["at"] or timezone.now()
    sold_by_broker_id = sold_by_broker(cluster_list, excluded)
    sold_by_cluster_id = sold_by_cluster(cluster_list, excluded, tenant_id)
    brokers: dict[str, list[Broker]] = defaultdict(list)
    running_brokers = Broker.objects.filter(cluster__in=cluster_list, wanted=WantedState.RUNNING)
    for broker in running_brokers.select_related("host").order_by("cluster_id", "number"):
        brokers[broker.cluster_id].append(broker)
    includes_closed_brokers = excluded is not None
    return [
        _headroom(
            cluster,
            [
                broker
                for broker in brokers[cluster.pk]
                if broker.accepts_instances or includes_closed_brokers or cluster.is_kafka
            ],
            sold_by_cluster_id.get(cluster.pk, ClusterSales()),
            sold_by_broker_id,
            # Before the first observation of a cluster, all its brokers count as healthy.
            observed_at if any(broker.observed_at is not None for broker in brokers[cluster.pk]) else None,
        )
        for cluster in cluster_list
    ]


def _headroom(
    cluster: Cluster,
    brokers: Iterable[Broker],
    sold: ClusterSales,
    sold_by_broker_id: Mapping[str, SoldCapacity],
    observed_at: datetime | None,
) -> placement.ClusterHeadroom:
    """Returns the free capacity of a cluster on these brokers. For a deleted instance the storage counts until its
    files are deleted, and the bandwidth does not (`CapacityReservations.release_bandwidth`).
    """
    nothing_sold = SoldCapacity()
    return placement.ClusterHeadroom(
        id=cluster.pk,
        # A gateway leads to one upstream broker, so an instance needs all of them.
        brokers_min=BROKERS_PER_CLUSTER_MAX if cluster.is_kafka else cluster.brokers_per_instance_min,
        free_partitions=_unsold(cluster.max_partitions, sold.partitions),
        unsold_mb_s=_unsold(cluster.max_bandwidth_mb_s, sold.mb_s),
        unsold_gb=_unsold(cluster.max_storage_gb, sold.gb),
        own_instances=sold.own_instances,
        brokers=tuple(
            placement.BrokerHeadroom(
                id=broker.pk,
                number=broker.number,
                free_bandwidth_mb_s=broker.bandwidth_mb_s - sold_by_broker_id.get(broker.pk, nothing_sold).mb_s,
                free_storage_gb=broker.storage_gb - sold_by_broker_id.get(broker.pk, nothing_sold).gb,
                is_healthy=observed_at is None or health(broker, observed_at) in ANSWERING_STATES,
                zone=broker.effective_rack,
            )
            for broker in brokers
        ),
    )


def _unsold(limit: int | None, sold: int) -> int | None:
    return None if limit is None else limit - sold


def require_capacity(cluster: Cluster, placements: Iterable[Mapping[str, Any]]) -> None:
    """Checks that the brokers of a cluster have the capacity for the given placements, as in `Rebalance.placements`. A
    broker that is already oversold is accepted if its load does not grow.

    Raises `Conflict` (`no_room`) with the brokers that lack capacity.
    """
    brokers_before: dict[str, set[int]] = defaultdict(set)
    leases = PortLease.objects.filter(broker__cluster=cluster, is_leaving=False)
    for instance_id, number in leases.values_list("instance_id", "broker__number"):
        brokers_before[instance_id].add(number)
    brokers_after = dict(brokers_before)
    for change in placements:
        brokers_after[change["owner"]] = (brokers_before[change["owner"]] | {*change["arriving"]}) - {
            *change["leaving"]
        }
    sizes = {row.instance_id: row for row in Placement.objects.filter(cluster=cluster)}
    sold_before, sold_after = (
        _sold_by_broker_number(brokers_before, sizes),
        _sold_by_broker_number(brokers_after, sizes),
    )
    messages = [
        Message(
            gettext_noop("Broker %(id)s would have sold %(sold)s of %(limit)s %(unit)s."),
            id=broker.number,
            sold=f"{float(sold):,.0f}",
            limit=f"{limit:,}",
            unit=unit,
        )
        for broker in cluster.brokers.filter(wanted=WantedState.RUNNING).order_by("number")
        for unit, limit, sold, already_sold in zip(
            ("MB/s", "GB"),
            (broker.bandwidth_mb_s, broker.storage_gb),
            sold_after[broker.number],
            sold_before[broker.number],
            strict=True,
        )
        if sold > limit and sold > already_sold
    ]
    if messages:
        raise Conflict(
            "The other brokers have no room for what is sold there. Add a broker.",
            code="no_room",
            errors=[FieldError(detail=message, code="no_room", pointer="/broker_id") for message in messages],
        )


def _sold_by_broker_number(
    broker_numbers_by_instance: Mapping[str, Collection[int]], sizes: Mapping[str, Placement]
) -> dict[int, tuple[Fraction, Fraction]]:
    """Returns (MB/s, GB) by broker number: the size of an instance is divided equally among its brokers."""
    result: dict[int, tuple[Fraction, Fraction]] = defaultdict(lambda: (Fraction(), Fraction()))
    for instance_id, size in sizes.items():
        count = len(broker_numbers_by_instance.get(instance_id, ()))
        for number in broker_numbers_by_instance.get(instance_id, ()):
            bandwidth, storage = result[number]
            result[number] = (
                bandwidth + Fraction(size.bandwidth_mb_s, count),
                storage + Fraction(size.storage_gb, count),
            )
    return result


def size_of(instance: Instance) -> dict[str, int]:
    """Returns the size that an instance needs on a cluster."""
    return {
        "bandwidth_mb_s": instance.bandwidth_mb_s,
        "storage_gb": instance.storage_gb,
        "partitions": instance.partitions_max,
    }


def lock_candidate_clusters(instance: Instance) -> list[Cluster]:
    """Locks and returns the clusters that may take an instance. Call in a transaction.

    They are locked in a fixed order, so that concurrent placements see each other's sales.

    A dedicated instance takes an empty dedicated cluster: the one that was formed for it, or one that is not reserved
    for a waiting instance. Clusters reserved for tenants are returned alone if any names the tenant of the instance.
    """
    is_dedicated = instance.cluster_type == ClusterType.DEDICATED
    kind = ClusterKind.DEDICATED if is_dedicated else ClusterKind.SHARED
    rows = Cluster.objects.select_for_update(of=("self",)).filter(
        kind=kind, accepts_instances=True, state=ClusterState.READY
    )
    result = list(rows.select_related("reserved_for").order_by("pk"))
    if is_dedicated:
        occupied = set(Placement.objects.filter(cluster__in=result).values_list("cluster_id", flat=True))
        result = [cluster for cluster in result if cluster.pk not in occupied and _is_available_to(cluster, instance)]
        reserved = [cluster for cluster in result if cluster.reserved_for_id == instance.pk]
        if reserved:
            return reserved
    clusters_of_tenant = [cluster for cluster in result if instance.tenant_id in cluster.tenant_ids]
    return clusters_of_tenant or [cluster for cluster in result if not cluster.tenant_ids]


def _is_available_to(cluster: Cluster, instance: Instance) -> bool:
    owner = cluster.reserved_for
    return owner is None or owner.pk == instance.pk or owner.current_phase in PHASES_WITHOUT_PLACEMENT


def _require_unsold(
    headroom: placement.ClusterHeadroom, placement_row: Placement, *, bandwidth_mb_s: int, storage_gb: int
) -> None:
    """Raises `Conflict` (`no_room`) if an instance would grow beyond what its cluster may sell to all (CKA-46)."""
    errors = [
        FieldError(
            detail=Message(
                gettext_noop("At most %(n)s %(unit)s at the moment."), n=f"{max(unsold or 0, 0):,}", unit=unit
            ),
            code="no_room",
            pointer=pointer,
        )
        for pointer, unit, requested, present_size, unsold in (
            ("/bandwidth_mb_s", "MB/s", bandwidth_mb_s, placement_row.bandwidth_mb_s, headroom.unsold_mb_s),
            ("/storage_gb", "GB", storage_gb, placement_row.storage_gb, headroom.unsold_gb),
        )
        if requested > present_size and placement.exceeds(unsold, requested)
    ]
    if errors:
        raise Conflict(errors[0].detail, code="no_room", errors=errors)


class CapacityReservations:
    """Implements `instances.interfaces.capacity`."""

    def reserve(self, instance: Instance, *, bandwidth_mb_s: int, storage_gb: int) -> None:
        """Reserves the capacity for another size of a placed instance in the caller's transaction: on its brokers, and
        on those to which a rebalance moves it. Raises `Conflict` (`no_room`) with the missing capacity by broker.
        """
        placement_row = Placement.objects.select_related("cluster").filter(instance=instance).first()
        if placement_row is None:
            return
        cluster = Cluster.objects.select_for_update().get(pk=placement_row.cluster_id)
        leases = PortLease.objects.filter(instance=instance, is_leaving=False)
        broker_ids = set(leases.values_list("broker_id", flat=True))
        broker_count = max(1, len(broker_ids))
        broker_ids |= {broker_id for owner, broker_id in promised_placements([cluster]) if owner == instance.pk}
        (headroom,) = headrooms([cluster], excluded=instance)
        _require_unsold(headroom, placement_row, bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb)
        brokers = [broker for broker in headroom.brokers if broker.id in broker_ids]
        shortfalls = [
            (broker.number, f"{math.ceil(missing):,} {unit}", pointer)
            for pointer, unit, requested, present_size, attribute in (
                ("/bandwidth_mb_s", "MB/s", bandwidth_mb_s, placement_row.bandwidth_mb_s, "free_bandwidth_mb_s"),
                ("/storage_gb", "GB", storage_gb, placement_row.storage_gb, "free_storage_gb"),
            )
            for broker in brokers
            if requested > present_size
            and (missing := Fraction(requested, broker_count) - getattr(broker, attribute)) > 0
        ]
        if shortfalls:
            detail = Message(
                gettext_noop(
                    "The brokers of this instance have no room for %(bandwidth)s MB/s and %(storage)s GB. "
                    "Missing, by broker: %(missing)s"
                ),
                bandwidth=bandwidth_mb_s,
                storage=storage_gb,
                missing=", ".join(f"{number}: {missing}" for number, missing, _pointer in shortfalls),
            )
            errors = [
                FieldError(
                    detail=Message(gettext_noop("Broker %(id)s lacks %(size)s."), id=number, size=missing),
                    code="no_room",
                    pointer=pointer,
                )
                for number, missing, pointer in shortfalls
            ]
            raise Conflict(detail, code="no_room", errors=errors)
        placement_row.bandwidth_mb_s, placement_row.storage_gb = bandwidth_mb_s, storage_gb
        placement_row.save(update_fields=["bandwidth_mb_s", "storage_gb"])

    def release_bandwidth(self, instance: Instance) -> None:
        """Releases the bandwidth of a deleted instance; `reserve` reserves it again when the instance is restored."""
        Placement.objects.filter(instance=instance).update(bandwidth_mb_s=0)
