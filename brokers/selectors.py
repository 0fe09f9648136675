"""Queries for the rows of the fleet: clusters, hosts, brokers, placements, rebalances and restarts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address

from django.db.models import Count, F, OuterRef, Prefetch, Q, QuerySet, Subquery, Sum, Value, prefetch_related_objects
from django.db.models.functions import Coalesce, Least
from django.utils import timezone

from brokers.choices import ClusterBackend, Health, HostCheckState, ReassignmentState, RestartState, WantedState
from brokers.limits import HOST_LATE_S
from brokers.models import (
    UNDER_WAY,
    AgentCertificate,
    Broker,
    Cluster,
    FleetOperation,
    Host,
    PartitionReassignment,
    Placement,
    PortLease,
    Rebalance,
    RollingRestart,
)
from brokers.monitoring.health import health


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCapacity:
    """Sold capacity and capacity of a cluster, in MB/s and GB."""

    bandwidth_mb_s: int
    storage_gb: int
    sold_bandwidth_mb_s: int
    sold_storage_gb: int
    instances: int
    sold_partitions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A log directory of a broker; the sizes are those of its volume, None if the broker did not report them."""

    broker_id: str
    number: int
    path: str
    total_bytes: int | None
    usable_bytes: int | None
    offline_reason: str

    @property
    def used_bytes(self) -> int | None:
        is_reported = self.total_bytes is not None and self.usable_bytes is not None
        return self.total_bytes - self.usable_bytes if is_reported else None  # type: ignore[operator]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceProgress:
    """Progress of a rebalance: moves, and the bytes to copy in total and copied so far."""

    total: int
    waiting: int
    running: int
    done: int
    size_bytes: int
    copied_bytes: int

    @property
    def percent(self) -> int:
        """The progress by bytes if there are any, otherwise by moves; 100 only if all are done."""
        total, completed = (self.size_bytes, self.copied_bytes) if self.size_bytes else (self.total, self.done)
        if self.done == self.total:
            return 100
        return min(99, completed * 100 // total) if total else 0


def clusters() -> QuerySet[Cluster]:
    broker_count = Count("brokers", filter=Q(brokers__removed_at=None), distinct=True)
    return Cluster.objects.active().select_related("kafka").annotate(broker_count=broker_count).order_by("name")


def is_on_kafka(instance_id: str) -> bool:
    """True for an instance that is placed on a Kafka cluster."""
    return Placement.objects.filter(instance_id=instance_id, cluster__backend=ClusterBackend.KAFKA).exists()


def active_clusters() -> QuerySet[Cluster]:
    """Returns the clusters that are not retired, without annotations, so that rows can be locked."""
    return Cluster.objects.active()


def fleet_operations() -> QuerySet[FleetOperation]:
    """Returns all fleet operations, the latest first."""
    return FleetOperation.objects.select_related("cluster").order_by("-created_at", "id")


def latest_operation(cluster: Cluster) -> FleetOperation | None:
    """Returns the last operation of a cluster."""
    return fleet_operations().filter(cluster=cluster).first()


def hosts() -> QuerySet[Host]:
    """Returns the hosts with the capacity that their brokers may sell (`broker_count`, `used_mb_s`, `used_gb`) and the
    end of their agents' certificates (`agent_certificate_expires_at`, None for an agent with a database).
    """
    is_present = Q(brokers__removed_at=None)
    valid_certificates = AgentCertificate.objects.filter(host=OuterRef("pk"), revoked_at=None).order_by("-expires_at")
    return (
        Host.objects.filter(removed_at=None)
        .annotate(
            broker_count=Count("brokers", filter=is_present),
            used_mb_s=Coalesce(Sum("brokers__bandwidth_mb_s", filter=is_present), 0),
            used_gb=Coalesce(Sum("brokers__storage_gb", filter=is_present), 0),
            agent_certificate_expires_at=Subquery(valid_certificates.values("expires_at")[:1]),
        )
        .order_by("name")
    )


def agent_is_alive(host: Host) -> bool:
    """True if the agent of a host was seen recently."""
    return host.agent_seen_at is not None and timezone.now() - host.agent_seen_at <= timedelta(seconds=HOST_LATE_S)


def disks_of(brokers: Iterable[Broker]) -> list[Disk]:
    """Returns the log directories of brokers with their volumes, as last reported."""
    return [
        Disk(
            broker_id=broker.pk,
            number=broker.number,
            path=str(directory["path"]),
            total_bytes=directory.get("total_bytes"),
            usable_bytes=directory.get("usable_bytes"),
            offline_reason=directory.get("offline_reason") or "",
        )
        for broker in brokers
        for directory in (broker.observed or {}).get("log_directories", ())
    ]


def hosts_with_running_brokers() -> QuerySet[Host]:
    """Returns the hosts with brokers that should run; `running` is their number."""
    running_count = Count("brokers", filter=Q(brokers__removed_at=None, brokers__wanted=WantedState.RUNNING))
    return Host.objects.annotate(running=running_count).filter(running__gt=0).order_by("name")


def hosts_in_need(now: datetime) -> QuerySet[Host]:
    """Returns the hosts with brokers that should run, and an agent that is late or has found something wrong."""
    is_late = Q(agent_seen_at=None) | Q(agent_seen_at__lt=now - timedelta(seconds=HOST_LATE_S))
    has_failed_check = Q(checks__contains=[{"state": HostCheckState.FAILED.value}])
    return hosts_with_running_brokers().filter(is_late | has_failed_check)


def brokers() -> QuerySet[Broker]:
    """Returns the brokers that are not removed."""
    present_brokers = Broker.objects.filter(removed_at=None).select_related("cluster", "host")
    return present_brokers.order_by("cluster_id", "number")


def running_brokers(cluster: Cluster) -> QuerySet[Broker]:
    """Returns the brokers of a cluster that should run, by number."""
    return brokers().filter(cluster=cluster, wanted=WantedState.RUNNING)


def placements() -> QuerySet[Placement]:
    return Placement.objects.select_related("cluster", "instance__tenant").order_by("cluster_id", "instance_id")


def instances_by_broker(cluster: Cluster) -> dict[int, int]:
    """Returns the number of instances with a port on each broker, by broker number."""
    rows = (
        PortLease.objects.filter(broker__cluster=cluster)
        .values("broker__number")
        .annotate(found=Count("instance", distinct=True))
    )
    return {row["broker__number"]: row["found"] for row in rows}


def is_exposed() -> bool:
    """True if other machines may reach brokers: a host listens on, or advertises, a non-loopback address."""
    address_pairs = Host.objects.filter(removed_at=None).values_list("bind_host", "advertised_host")
    return any(not _is_loopback(address) for addresses in address_pairs for address in addresses)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def rebalances() -> QuerySet[Rebalance]:
    """Returns all rebalances, the latest first."""
    return Rebalance.objects.select_related("cluster", "broker").order_by("-created_at", "id")


def prefetch_losses(rebalances: Sequence[Rebalance]) -> None:
    """Reads the moves that lose data of all these rebalances at once, for `Rebalance.lost_partitions`."""
    lossy = PartitionReassignment.objects.exclude(loses="").order_by("topic", "partition")
    prefetch_related_objects(rebalances, Prefetch("moves", queryset=lossy, to_attr="lossy_moves"))


def rebalances_under_way() -> QuerySet[Rebalance]:
    """Returns the rebalances in progress, the earliest first."""
    return Rebalance.objects.filter(state__in=UNDER_WAY).select_related("cluster", "broker").order_by("pk")


def rolling_restarts() -> QuerySet[RollingRestart]:
    """Returns all rolling restarts, the latest first."""
    return RollingRestart.objects.select_related("cluster").order_by("-created_at", "id")


def rolling_restarts_under_way() -> QuerySet[RollingRestart]:
    """Returns the running and paused rolling restarts, the earliest first."""
    states = (RestartState.RUNNING, RestartState.PAUSED)
    return RollingRestart.objects.filter(state__in=states).select_related("cluster").order_by("pk")


def progress_of(rebalance: Rebalance) -> RebalanceProgress:
    """Returns the progress, summed up by the database; during undoing, undone moves count as done."""
    return progresses_of([rebalance])[rebalance.pk]


def progresses_of(rebalances: Sequence[Rebalance]) -> dict[str, RebalanceProgress]:
    """Returns the progress of many rebalances by their ids; two queries at most."""
    result: dict[str, RebalanceProgress] = {}
    for is_back in (False, True):
        ids = [rebalance.pk for rebalance in rebalances if rebalance.is_going_back == is_back]
        result |= _progresses(ids, is_back=is_back) if ids else {}
    return result


def _progresses(rebalance_ids: Sequence[str], *, is_back: bool) -> dict[str, RebalanceProgress]:
    final_states = (ReassignmentState.SKIPPED, ReassignmentState.UNDONE if is_back else ReassignmentState.DONE)
    total_bytes = F("size_bytes") * F("copies_back" if is_back else "copies")
    moves = PartitionReassignment.objects.filter(rebalance__in=rebalance_ids).order_by()
    rows = moves.values("rebalance_id").annotate(
        total=Count("id"),
        running=Count("id", filter=Q(state=ReassignmentState.RUNNING)),
        done=Count("id", filter=Q(state__in=final_states)),
        whole_bytes=Sum(total_bytes),
        ended_bytes=Sum(total_bytes, filter=Q(state__in=final_states)),
        running_bytes=Sum(Least(F("copied_bytes"), total_bytes), filter=Q(state=ReassignmentState.RUNNING)),
    )
    no_progress = RebalanceProgress(total=0, waiting=0, running=0, done=0, size_bytes=0, copied_bytes=0)
    return dict.fromkeys(rebalance_ids, no_progress) | {
        row["rebalance_id"]: RebalanceProgress(
            total=row["total"],
            waiting=row["total"] - row["running"] - row["done"],
            running=row["running"],
            done=row["done"],
            size_bytes=row["whole_bytes"] or 0,
            copied_bytes=(row["ended_bytes"] or 0) + (row["running_bytes"] or 0),
        )
        for row in rows
    }


def health_of(broker: Broker) -> Health:
    """Returns the current health of a broker."""
    return health(broker, timezone.now())


def capacity_of(cluster: Cluster) -> ClusterCapacity:
    """Returns the sold capacity and the capacity of a cluster."""
    return capacities_of([cluster])[cluster.pk]


def capacities_of(clusters: Sequence[Cluster], *, with_partitions: bool = True) -> dict[str, ClusterCapacity]:
    """Returns the sold capacity and the capacity of many clusters at once, by id. Without `with_partitions` no instance
    is read, and `sold_partitions` is 0.
    """
    capacity_by_cluster = {
        row["cluster_id"]: row
        for row in Broker.objects.filter(cluster__in=clusters, removed_at=None, wanted=WantedState.RUNNING)
        .values("cluster_id")
        .annotate(mb_s=Sum("bandwidth_mb_s"), gb=Sum("storage_gb"))
    }
    sold_by_cluster = {
        row["cluster_id"]: row
        for row in Placement.objects.filter(cluster__in=clusters)
        .values("cluster_id")
        .annotate(
            mb_s=Sum("bandwidth_mb_s"),
            gb=Sum("storage_gb"),
            instances=Count("instance_id"),
            partitions=Sum("instance__partitions_max") if with_partitions else Value(0),
        )
    }
    zero = {"mb_s": 0, "gb": 0, "instances": 0, "partitions": 0}
    result = {}
    for cluster in clusters:
        limits, sold_capacity = capacity_by_cluster.get(cluster.pk, zero), sold_by_cluster.get(cluster.pk, zero)
        result[cluster.pk] = ClusterCapacity(
            bandwidth_mb_s=limits["mb_s"],
            storage_gb=limits["gb"],
            sold_bandwidth_mb_s=sold_capacity["mb_s"],
            sold_storage_gb=sold_capacity["gb"],
            instances=sold_capacity["instances"],
            sold_partitions=sold_capacity["partitions"],
        )
    return result
