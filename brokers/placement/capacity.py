"""Sold and free capacity of each broker: the input of `placement`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any

from django.db.models import Count, Max
from django.utils import timezone
from django.utils.translation import gettext_noop

from brokers.choices import ClusterKind, ClusterState, Health, RebalanceState, WantedState
from brokers.models import Broker, Cluster, Placement, PortLease, Rebalance
from brokers.monitoring.health import health
from brokers.placement import placement
from instances.choices import ClusterType
from instances.lifecycle.phases import Phase
from instances.models import Instance
from tenants.errors import Conflict, FieldError, Message

ANSWERS = (Health.HEALTHY, Health.DISK_OFFLINE)
# Phases of an instance that no longer waits for a cluster.
OVER = (Phase.DELETED, Phase.FAILED, Phase.DELETING)


def rooms(
    clusters: Iterable[Cluster], *, besides: Instance | None = None, tenant_id: str = ""
) -> list[placement.ClusterRoom]:
    """Returns the free capacity of each cluster, without `besides` (for resizing it), and the number of instances there
    of the given tenant.
    """
    # Health is judged at the time of the latest observation: a late observer must not make all brokers count as
    # unresponsive.
    looked_at = Broker.objects.aggregate(at=Max("observed_at"))["at"] or timezone.now()
    return [_room(cluster, besides, tenant_id, looked_at) for cluster in clusters]


def _room(cluster: Cluster, besides: Instance | None, tenant_id: str, looked_at: datetime) -> placement.ClusterRoom:
    """Returns the free capacity. The size of an instance is divided equally among its brokers. A broker that the
    instance leaves keeps its share until the port is released, because the data is still there; so does a broker to
    which a running rebalance moves it, before it has a port there. For a deleted instance the storage counts until its
    files are deleted, and the bandwidth does not (`Room.release_bandwidth`).
    """
    leases = PortLease.objects.filter(broker__cluster=cluster)
    sold_bandwidth: dict[str, Fraction] = defaultdict(Fraction)
    sold_storage: dict[str, Fraction] = defaultdict(Fraction)
    kept = leases.filter(is_leaving=False).values("instance_id").annotate(brokers=Count("broker", distinct=True))
    spread = dict(kept.values_list("instance_id", "brokers"))
    placed = Placement.objects.filter(cluster=cluster).select_related("instance")
    sizes = {row.instance_id: row for row in placed}
    for instance_id, broker_id in {*leases.values_list("instance_id", "broker_id"), *_promised(cluster)}:
        size = sizes.get(instance_id)
        if size is None or (besides is not None and instance_id == besides.pk):
            continue
        sold_bandwidth[broker_id] += Fraction(size.bandwidth_mb_s, spread.get(instance_id, 1))
        sold_storage[broker_id] += Fraction(size.storage_gb, spread.get(instance_id, 1))
    others = [row.instance for row in sizes.values() if besides is None or row.instance_id != besides.pk]
    sold_partitions = sum(instance.partitions_max for instance in others)
    brokers = list(cluster.brokers.filter(wanted=WantedState.RUNNING))
    # Before the first observation of a cluster, all its brokers count as healthy.
    is_observed = any(broker.observed_at is not None for broker in brokers)
    return placement.ClusterRoom(
        id=cluster.pk,
        brokers_min=cluster.brokers_per_instance_min,
        free_partitions=None if cluster.max_partitions is None else cluster.max_partitions - sold_partitions,
        own_instances=sum(instance.tenant_id == tenant_id for instance in others),
        brokers=tuple(
            placement.BrokerRoom(
                id=broker.pk,
                number=broker.number,
                free_bandwidth_mb_s=broker.bandwidth_mb_s - sold_bandwidth[broker.pk],
                free_storage_gb=broker.storage_gb - sold_storage[broker.pk],
                is_healthy=not is_observed or health(broker, looked_at) in ANSWERS,
            )
            for broker in brokers
            if broker.accepts_instances or besides is not None
        ),
    )


def _promised(cluster: Cluster) -> set[tuple[str, str]]:
    """Returns pairs (instance, broker) of placements that a running rebalance will create."""
    forwards = dict.fromkeys((RebalanceState.RUNNING.value, RebalanceState.PAUSED.value), "arriving")
    ways = forwards | {RebalanceState.UNDOING.value: "leaving"}
    rows = list(Rebalance.objects.filter(cluster=cluster, state__in=ways).values_list("state", "placements"))
    ids = dict(cluster.brokers.values_list("number", "pk")) if rows else {}
    return {
        (placement["owner"], ids[number])
        for state, placements in rows
        for placement in placements
        for number in placement[ways[state]]
    }


def require_room(cluster: Cluster, placements: Iterable[Mapping[str, Any]]) -> None:
    """Checks that the brokers of a cluster have the capacity for the given placements, as in `Rebalance.placements`. A
    broker that is already oversold is accepted if its load does not grow.

    Raises `Conflict` (`no_room`) with the brokers that lack capacity.
    """
    before: dict[str, set[int]] = defaultdict(set)
    rows = PortLease.objects.filter(broker__cluster=cluster, is_leaving=False)
    for instance_id, number in rows.values_list("instance_id", "broker__number"):
        before[instance_id].add(number)
    after = dict(before)
    for change in placements:
        after[change["owner"]] = (before[change["owner"]] | {*change["arriving"]}) - {*change["leaving"]}
    sizes = {row.instance_id: row for row in Placement.objects.filter(cluster=cluster)}
    sold_before, sold_after = _sold(before, sizes), _sold(after, sizes)
    over = [
        f"Broker {broker.number} would have sold {float(sold):,.0f} of {limit:,} {unit}."
        for broker in cluster.brokers.filter(wanted=WantedState.RUNNING).order_by("number")
        for unit, limit, sold, present in zip(
            ("MB/s", "GB"),
            (broker.bandwidth_mb_s, broker.storage_gb),
            sold_after[broker.number],
            sold_before[broker.number],
            strict=True,
        )
        if sold > limit and sold > present
    ]
    if over:
        raise Conflict(
            "The other brokers have no room for what is sold there. Add a broker.",
            code="no_room",
            errors=[FieldError(detail=message, code="no_room", pointer="/broker_id") for message in over],
        )


def _sold(
    is_placed_on: Mapping[str, Collection[int]], sizes: Mapping[str, Placement]
) -> dict[int, tuple[Fraction, Fraction]]:
    """Returns (MB/s, GB) by broker number: the size of an instance is divided equally among its brokers."""
    result: dict[int, tuple[Fraction, Fraction]] = defaultdict(lambda: (Fraction(), Fraction()))
    for instance_id, size in sizes.items():
        count = len(is_placed_on.get(instance_id, ()))
        for number in is_placed_on.get(instance_id, ()):
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


def candidates(instance: Instance) -> list[Cluster]:
    """Returns the clusters that may take an instance, locked in a fixed order so that concurrent placements see each
    other's sales.

    A dedicated instance takes an empty dedicated cluster: the one that was formed for it, or one that is not reserved
    for a waiting instance. Call in a transaction.
    """
    is_dedicated = instance.cluster_type == ClusterType.DEDICATED
    kind = ClusterKind.DEDICATED if is_dedicated else ClusterKind.SHARED
    rows = Cluster.objects.select_for_update(of=("self",)).filter(
        kind=kind, accepts_instances=True, state=ClusterState.READY
    )
    result = list(rows.select_related("reserved_for").order_by("pk"))
    if is_dedicated:
        taken = set(Placement.objects.filter(cluster__in=result).values_list("cluster_id", flat=True))
        result = [cluster for cluster in result if cluster.pk not in taken and _may_take(cluster, instance)]
        own = [cluster for cluster in result if cluster.reserved_for_id == instance.pk]
        return own or result
    return result


def _may_take(cluster: Cluster, instance: Instance) -> bool:
    owner = cluster.reserved_for
    return owner is None or owner.pk == instance.pk or owner.current_phase in OVER


class Room:
    """Implements `instances.interfaces.capacity`."""

    def reserve(self, instance: Instance, *, bandwidth_mb_s: int, storage_gb: int) -> None:
        """Reserves the capacity for another size of a placed instance in the caller's transaction: on its brokers, and
        on those to which a rebalance moves it. Raises `Conflict` (`no_room`) with the missing capacity by broker.
        """
        result = Placement.objects.select_related("cluster").filter(instance=instance).first()
        if result is None:
            return
        cluster = Cluster.objects.select_for_update().get(pk=result.cluster_id)
        kept = PortLease.objects.filter(instance=instance, is_leaving=False)
        is_placed_on = set(kept.values_list("broker_id", flat=True))
        share = max(1, len(is_placed_on))
        is_placed_on |= {broker_id for owner, broker_id in _promised(cluster) if owner == instance.pk}
        brokers = [broker for broker in rooms([cluster], besides=instance)[0].brokers if broker.id in is_placed_on]
        lacks = [
            (broker.number, f"{math.ceil(missing):,} {unit}", at)
            for at, unit, asked, held, free in (
                ("/bandwidth_mb_s", "MB/s", bandwidth_mb_s, result.bandwidth_mb_s, "free_bandwidth_mb_s"),
                ("/storage_gb", "GB", storage_gb, result.storage_gb, "free_storage_gb"),
            )
            for broker in brokers
            if asked > held and (missing := Fraction(asked, share) - getattr(broker, free)) > 0
        ]
        if lacks:
            detail = Message(
                gettext_noop(
                    "The brokers of this instance have no room for %(bandwidth)s MB/s and %(storage)s GB. "
                    "Missing, by broker: %(missing)s"
                ),
                bandwidth=bandwidth_mb_s,
                storage=storage_gb,
                missing=", ".join(f"{number}: {missing}" for number, missing, _at in lacks),
            )
            errors = [
                FieldError(detail=f"Broker {number} lacks {missing}.", code="no_room", pointer=at)
                for number, missing, at in lacks
            ]
            raise Conflict(detail, code="no_room", errors=errors)
        result.bandwidth_mb_s, result.storage_gb = bandwidth_mb_s, storage_gb
        result.save(update_fields=["bandwidth_mb_s", "storage_gb"])

    def release_bandwidth(self, instance: Instance) -> None:
        """Releases the bandwidth of a deleted instance; `reserve` takes it again."""
        Placement.objects.filter(instance=instance).update(bandwidth_mb_s=0)
