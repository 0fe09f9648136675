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
from brokers.models import Broker, Cluster, Placement, PortLease
from brokers.monitoring.health import health
from brokers.placement import placement
from brokers.placement.sold import Sold, SoldByCluster, promised, sold_by_broker, sold_by_cluster
from instances.choices import ClusterType
from instances.lifecycle.phases import Phase
from instances.models import Instance
from tenants.errors import Conflict, FieldError, Message

ANSWERS = (Health.HEALTHY, Health.DISK_OFFLINE)
# Phases of an instance that does not wait for a cluster any more.
OVER = (Phase.DELETED, Phase.FAILED, Phase.DELETING)


def rooms(
    clusters: Iterable[Cluster], *, besides: Instance | None = None, tenant_id: str = ""
) -> list[placement.ClusterRoom]:
    """Returns the free capacity of each cluster, and its number of instances of the given tenant. The instance
    `besides`, which is to be resized, does not count as sold.
    """
    found = list(clusters)
    # Health is judged at the time of the latest observation: a late observer must not make all brokers count as
    # unresponsive.
    looked_at = Broker.objects.aggregate(at=Max("observed_at"))["at"] or timezone.now()
    by_broker = sold_by_broker(found, besides)
    by_cluster = sold_by_cluster(found, besides, tenant_id)
    brokers: dict[str, list[Broker]] = defaultdict(list)
    running = Broker.objects.filter(cluster__in=found, wanted=WantedState.RUNNING)
    for broker in running.select_related("host").order_by("cluster_id", "number"):
        brokers[broker.cluster_id].append(broker)
    takes_all = besides is not None
    return [
        _room(
            cluster,
            [broker for broker in brokers[cluster.pk] if broker.accepts_instances or takes_all],
            by_cluster.get(cluster.pk, SoldByCluster()),
            by_broker,
            # Before the first observation of a cluster, all its brokers count as healthy.
            looked_at if any(broker.observed_at is not None for broker in brokers[cluster.pk]) else None,
        )
        for cluster in found
    ]


def _room(
    cluster: Cluster,
    brokers: Iterable[Broker],
    sold: SoldByCluster,
    by_broker: Mapping[str, Sold],
    looked_at: datetime | None,
) -> placement.ClusterRoom:
    """Returns the free capacity of a cluster on these brokers. For a deleted instance the storage counts until its
    files are deleted, and the bandwidth does not (`Room.release_bandwidth`).
    """
    nothing = Sold()
    return placement.ClusterRoom(
        id=cluster.pk,
        brokers_min=cluster.brokers_per_instance_min,
        free_partitions=_unsold(cluster.max_partitions, sold.partitions),
        unsold_mb_s=_unsold(cluster.max_bandwidth_mb_s, sold.mb_s),
        unsold_gb=_unsold(cluster.max_storage_gb, sold.gb),
        own_instances=sold.own_instances,
        brokers=tuple(
            placement.BrokerRoom(
                id=broker.pk,
                number=broker.number,
                free_bandwidth_mb_s=broker.bandwidth_mb_s - by_broker.get(broker.pk, nothing).mb_s,
                free_storage_gb=broker.storage_gb - by_broker.get(broker.pk, nothing).gb,
                is_healthy=looked_at is None or health(broker, looked_at) in ANSWERS,
                zone=broker.effective_rack,
            )
            for broker in brokers
        ),
    )


def _unsold(limit: int | None, sold: int) -> int | None:
    return None if limit is None else limit - sold


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
        Message(
            gettext_noop("Broker %(id)s would have sold %(sold)s of %(limit)s %(unit)s."),
            id=broker.number,
            sold=f"{float(sold):,.0f}",
            limit=f"{limit:,}",
            unit=unit,
        )
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


def _require_unsold(room: placement.ClusterRoom, present: Placement, *, bandwidth_mb_s: int, storage_gb: int) -> None:
    """Raises `Conflict` (`no_room`) if an instance would grow beyond what its cluster may sell to all (CKA-46)."""
    errors = [
        FieldError(
            detail=Message(
                gettext_noop("At most %(n)s %(unit)s at the moment."), n=f"{max(unsold or 0, 0):,}", unit=unit
            ),
            code="no_room",
            pointer=pointer,
        )
        for pointer, unit, wanted, held, unsold in (
            ("/bandwidth_mb_s", "MB/s", bandwidth_mb_s, present.bandwidth_mb_s, room.unsold_mb_s),
            ("/storage_gb", "GB", storage_gb, present.storage_gb, room.unsold_gb),
        )
        if wanted > held and placement.exceeds(unsold, wanted)
    ]
    if errors:
        raise Conflict(errors[0].detail, code="no_room", errors=errors)


class Room:
    """Implements `instances.interfaces.capacity`."""

    def reserve(self, instance: Instance, *, bandwidth_mb_s: int, storage_gb: int) -> None:
        """Reserves the capacity for another size of a placed instance in the caller's transaction: on its brokers, and
        on those to which a rebalance moves it. Raises `Conflict` (`no_room`) with the missing capacity by broker.
        """
        present = Placement.objects.select_related("cluster").filter(instance=instance).first()
        if present is None:
            return
        cluster = Cluster.objects.select_for_update().get(pk=present.cluster_id)
        kept = PortLease.objects.filter(instance=instance, is_leaving=False)
        is_placed_on = set(kept.values_list("broker_id", flat=True))
        share = max(1, len(is_placed_on))
        is_placed_on |= {broker_id for owner, broker_id in promised([cluster]) if owner == instance.pk}
        (room,) = rooms([cluster], besides=instance)
        _require_unsold(room, present, bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb)
        brokers = [broker for broker in room.brokers if broker.id in is_placed_on]
        lacks = [
            (broker.number, f"{math.ceil(missing):,} {unit}", at)
            for at, unit, asked, held, free in (
                ("/bandwidth_mb_s", "MB/s", bandwidth_mb_s, present.bandwidth_mb_s, "free_bandwidth_mb_s"),
                ("/storage_gb", "GB", storage_gb, present.storage_gb, "free_storage_gb"),
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
                FieldError(
                    detail=Message(gettext_noop("Broker %(id)s lacks %(size)s."), id=number, size=missing),
                    code="no_room",
                    pointer=at,
                )
                for number, missing, at in lacks
            ]
            raise Conflict(detail, code="no_room", errors=errors)
        present.bandwidth_mb_s, present.storage_gb = bandwidth_mb_s, storage_gb
        present.save(update_fields=["bandwidth_mb_s", "storage_gb"])

    def release_bandwidth(self, instance: Instance) -> None:
        """Releases the bandwidth of a deleted instance; `reserve` reserves it again when the instance is restored."""
        Placement.objects.filter(instance=instance).update(bandwidth_mb_s=0)
