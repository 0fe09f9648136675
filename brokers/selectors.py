"""Reads of the fleet: for operators, and for the usage pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from brokers.choices import Health, MoveState, WantedState
from brokers.health import health
from brokers.models import Broker, Cluster, Host, Placement, PortLease, Rebalance, RollingRestart


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Sold against capacity of a cluster, in MB/s and GB."""

    bandwidth_mb_s: int
    storage_gb: int
    sold_bandwidth_mb_s: int
    sold_storage_gb: int
    instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a rebalance is: moves, and the bytes they copy in all and have copied."""

    total: int
    waiting: int
    running: int
    done: int
    size_bytes: int
    copied_bytes: int

    @property
    def percent(self) -> int:
        """By bytes where there are any, else by moves; 100 only when all are done."""
        whole, part = (self.size_bytes, self.copied_bytes) if self.size_bytes else (self.total, self.done)
        if self.done == self.total:
            return 100
        return min(99, part * 100 // whole) if whole else 0


def clusters() -> QuerySet[Cluster]:
    present = Count("brokers", filter=Q(brokers__removed_at=None), distinct=True)
    return Cluster.objects.annotate(broker_count=present).order_by("name")


def hosts() -> QuerySet[Host]:
    present = Count("brokers", filter=Q(brokers__removed_at=None), distinct=True)
    return Host.objects.annotate(broker_count=present).order_by("name")


def brokers() -> QuerySet[Broker]:
    """All but those that were removed."""
    rows = Broker.objects.filter(removed_at=None).select_related("cluster", "host")
    return rows.order_by("cluster_id", "number")


def placements() -> QuerySet[Placement]:
    return Placement.objects.select_related("cluster", "instance__tenant").order_by("cluster_id", "instance_id")


def instances_by_broker(cluster: Cluster) -> dict[int, int]:
    """Broker number -> how many instances have a port there."""
    rows = PortLease.objects.filter(broker__cluster=cluster).values("broker__number").annotate(found=Count("id"))
    return {row["broker__number"]: row["found"] for row in rows}


def rebalances() -> QuerySet[Rebalance]:
    """The latest first."""
    return Rebalance.objects.select_related("cluster", "broker").order_by("-created_at", "id")


def rolling_restarts() -> QuerySet[RollingRestart]:
    """The latest first."""
    return RollingRestart.objects.select_related("cluster").order_by("-created_at", "id")


def progress_of(rebalance: Rebalance) -> Progress:
    """Counted over its moves; what is undone counts as done when it is being undone."""
    ends = (MoveState.SKIPPED, MoveState.UNDONE if rebalance.is_going_back else MoveState.DONE)
    counts: dict[str, int] = {}
    size_bytes = copied_bytes = 0
    for state, before, target, size, copied in rebalance.moves.values_list(
        "state", "before", "target", "size_bytes", "copied_bytes"
    ).iterator():
        counts[state] = counts.get(state, 0) + 1
        arriving, present = (before, target) if rebalance.is_going_back else (target, before)
        whole = size * len(set(arriving) - set(present))
        size_bytes += whole
        copied_bytes += whole if state in ends else min(copied, whole) if state == MoveState.RUNNING else 0
    total, running = sum(counts.values()), counts.get(MoveState.RUNNING, 0)
    done = sum(counts.get(state, 0) for state in ends)
    return Progress(
        total=total,
        waiting=total - running - done,
        running=running,
        done=done,
        size_bytes=size_bytes,
        copied_bytes=copied_bytes,
    )


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
