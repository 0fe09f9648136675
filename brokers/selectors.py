"""Reads of the fleet: for operators, and for the usage pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, QuerySet
from django.utils import timezone

from brokers.choices import Health, WantedState
from brokers.health import health
from brokers.models import Broker, Cluster, Host, Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Sold against capacity of a cluster, in MB/s and GB."""

    bandwidth_mb_s: int
    storage_gb: int
    sold_bandwidth_mb_s: int
    sold_storage_gb: int
    instances: int


def clusters() -> QuerySet[Cluster]:
    return Cluster.objects.annotate(broker_count=Count("brokers", distinct=True)).order_by("name")


def hosts() -> QuerySet[Host]:
    return Host.objects.annotate(broker_count=Count("brokers", distinct=True)).order_by("name")


def brokers() -> QuerySet[Broker]:
    return Broker.objects.select_related("cluster", "host").order_by("cluster_id", "number")


def placements() -> QuerySet[Placement]:
    return Placement.objects.select_related("cluster", "instance__tenant").order_by("cluster_id", "instance_id")


def health_of(broker: Broker) -> Health:
    """One word about a broker as things stand."""
    return health(broker, timezone.now())


def room_of(cluster: Cluster) -> Room:
    """What a cluster can sell and has sold."""
    can_sell = list(cluster.brokers.filter(wanted=WantedState.RUNNING).values_list("bandwidth_mb_s", "storage_gb"))
    sold = Placement.objects.filter(cluster=cluster)
    sizes = list(sold.values_list("bandwidth_mb_s", "storage_gb"))
    return Room(
        bandwidth_mb_s=sum(bandwidth for bandwidth, _ in can_sell),
        storage_gb=sum(storage for _, storage in can_sell),
        sold_bandwidth_mb_s=sum(bandwidth for bandwidth, _ in sizes),
        sold_storage_gb=sum(storage for _, storage in sizes),
        instances=len(sizes),
    )
