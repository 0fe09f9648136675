"""Services for operators: adding a broker on a host, and removing a broker that is empty and stopped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from brokers.choices import ClusterState, WantedState
from brokers.limits import (
    BROKER_BANDWIDTH_MB_S,
    BROKER_STORAGE_GB,
    BROKERS_PER_CLUSTER_MAX,
    BROKERS_PER_HOST_MAX,
)
from brokers.models import Broker, Cluster, FormerPort, Host, PortLease
from brokers.operations import kafka_clusters
from brokers.operations.host_rules import broker_ports, normalised_directory
from brokers.operations.hosts import addresses_of, sold_by_brokers, wrong_directories
from brokers.services import notify
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, Invalid, Message


@transaction.atomic
def add_broker(
    *,
    acting: Actor,
    cluster: Cluster,
    host: Host,
    rack: str = "",
    data_dirs: Sequence[str] = (),
    bandwidth_mb_s: int = BROKER_BANDWIDTH_MB_S,
    storage_gb: int = BROKER_STORAGE_GB,
    dry_run: bool = False,
) -> Broker:
    """Adds a broker process on a host; its agent starts it immediately. Numbers are never reused. On a Kafka cluster it
    is the gateway of the first upstream broker without one.

    Without `data_dirs` its log lies below the host's directories, or beside that of a broker of the same host. Raises
    `Conflict` if the cluster or the host is full, removed or in another zone, or if only some of the brokers would have
    a zone; `Invalid` for a directory that another broker has.
    """
    access.require(acting, Scope.OPERATOR)
    if cluster.is_kafka and cluster.state != ClusterState.FORMING:
        kafka_clusters.probe_again(cluster)
    cluster = Cluster.objects.select_for_update().get(pk=cluster.pk)
    host = Host.objects.select_for_update().get(pk=host.pk)
    _require_capacity(cluster, host, bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb)
    _require_zone_like_others(cluster, rack or host.zone)
    numbers = set(Broker.objects.filter(cluster=cluster).values_list("number", flat=True))
    if Broker.objects.filter(cluster=cluster, removed_at=None).count() >= BROKERS_PER_CLUSTER_MAX:
        raise Conflict(
            Message(gettext_noop("A cluster has at most %(n)s brokers."), n=BROKERS_PER_CLUSTER_MAX),
            code="cluster_full",
        )
    number = kafka_clusters.next_number(cluster) if cluster.is_kafka else max(numbers, default=0) + 1
    internal_port, admin_port = free_broker_ports(host)
    broker = Broker.objects.create(
        cluster=cluster,
        host=host,
        number=number,
        rack=rack,
        internal_port=internal_port,
        admin_port=admin_port,
        data_dirs=directories_of(cluster, host, number, data_dirs),
        bandwidth_mb_s=bandwidth_mb_s,
        storage_gb=storage_gb,
    )
    after = {"cluster": cluster.pk, "number": number, "host": host.name, "data_dirs": broker.data_dirs}
    audit.record(acting, "broker.added", broker, None, after)
    if not dry_run:
        notify(broker)
    return broker


def _require_capacity(cluster: Cluster, host: Host, *, bandwidth_mb_s: int, storage_gb: int) -> None:
    """Raises `Conflict` if the cluster takes no broker, or the host lacks capacity for a broker of this size."""
    if cluster.state in (ClusterState.RETIRING, ClusterState.RETIRED):
        raise Conflict("The cluster is being retired.", code="retired")
    if host.removed_at is not None:
        raise Conflict("The host is removed.", code="removed")
    if cluster.zones and host.zone not in cluster.zones:
        zones = ", ".join(cluster.zones)
        raise Conflict(
            Message(
                gettext_noop("The cluster's brokers are in the zones %(zones)s, the host is in %(zone)s."),
                zones=zones,
                zone=host.zone or "none",
            ),
            code="other_zone",
        )
    if Broker.objects.filter(host=host, removed_at=None).count() >= BROKERS_PER_HOST_MAX:
        raise Conflict(
            Message(gettext_noop("A host has at most %(n)s brokers."), n=BROKERS_PER_HOST_MAX), code="host_full"
        )
    sold_mb_s, sold_gb = sold_by_brokers(host)
    for limit, sold, requested, unit in (
        (host.capacity_mb_s, sold_mb_s, bandwidth_mb_s, "MB/s"),
        (host.capacity_gb, sold_gb, storage_gb, "GB"),
    ):
        if limit is not None and sold + requested > limit:
            raise Conflict(
                Message(
                    gettext_noop(
                        "Host %(name)s has %(left)s %(unit)s left of %(limit)s; the broker would sell %(wanted)s."
                    ),
                    name=host.name,
                    left=f"{max(0, limit - sold):,}",
                    unit=unit,
                    limit=f"{limit:,}",
                    wanted=f"{requested:,}",
                ),
                code="host_full",
            )


def _require_zone_like_others(cluster: Cluster, zone: str) -> None:
    """Raises `Conflict` if a broker in `zone` would be the only one with a zone, or without one: no topic could be
    created (ASG-7).
    """
    others = Broker.objects.filter(cluster=cluster, removed_at=None).select_related("host")
    other = next((broker for broker in others if bool(broker.effective_rack) != bool(zone)), None)
    if other is not None:
        raise Conflict(
            Message(
                gettext_noop(
                    "Broker %(id)s is in the zone %(other)s, this one would be in %(zone)s. Give each host of the "
                    "cluster a zone, or none of them."
                ),
                id=other.number,
                other=other.effective_rack or "none",
                zone=zone or "none",
            ),
            code="zone_missing",
        )


def free_broker_ports(host: Host) -> tuple[int, int]:
    """Returns an internal and an admin port for another broker on a host. Call with the host's row locked.

    Raises `Conflict` (`no_port`) if the host has no port left.
    """
    pairs = list(Broker.objects.filter(host=host, removed_at=None).values_list("internal_port", "admin_port"))
    others = Host.objects.filter(removed_at=None).exclude(pk=host.pk)
    host_addresses, *other_addresses = addresses_of([host, *others])
    sharing = [other for other in other_addresses if host_addresses.shares_address_with(other)]
    result = broker_ports(host_addresses, sharing, pairs)
    if result is None:
        raise Conflict(
            Message(gettext_noop("Host %(name)s has no port left for a broker."), name=host.name), code="no_port"
        )
    return result


def directories_of(cluster: Cluster, host: Host, number: int, requested: Sequence[str]) -> list[str]:
    """Returns the log directories of a new broker: the requested ones, or else directories below those of the host, or
    else beside those of another broker of the host.
    """
    others = list(Broker.objects.filter(host=host, removed_at=None).select_related("cluster").order_by("number"))
    if requested:
        _require_free_directories(others, requested)
        return [normalised_directory(path) for path in requested]
    if host.data_dirs:
        return [str(Path(path) / cluster.pk / str(number) / "data") for path in host.data_dirs]
    for other in sorted(others, key=lambda other: other.cluster_id != cluster.pk):
        folder = Path(other.data_dirs[0]).parent if other.data_dirs else Path()
        if folder.name == str(other.number):
            is_named = folder.parent.name == other.cluster_id
            if other.cluster_id == cluster.pk:
                return [str(folder.parent / str(number) / "data")]
            root = folder.parent.parent if is_named else folder.parent
            return [str(root / cluster.pk / str(number) / "data")]
    return [str(settings.STATE_DIR / "brokers" / cluster.pk / str(number) / "data")]


def _require_free_directories(neighbours: Sequence[Broker], requested: Sequence[str]) -> None:
    for field, detail, code in wrong_directories(requested):
        raise Invalid.at(f"/{field}", detail, code=code)
    used_directories = {normalised_directory(path) for other in neighbours for path in other.data_dirs}
    for index, path in enumerate(requested):
        if normalised_directory(path) in used_directories:
            raise Invalid.at(f"/data_dirs/{index}", "Another broker keeps its log there.", code="taken")


@transaction.atomic
def remove_broker(*, acting: Actor, broker: Broker) -> Broker:
    """Removes a stopped broker from the cluster permanently. Raises `Conflict` while it should run or has tenants'
    ports.
    """
    access.require(acting, Scope.OPERATOR)
    result = Broker.objects.select_for_update(of=("self",)).get(pk=broker.pk)
    if result.wanted != WantedState.STOPPED:
        raise Conflict("The broker is not stopped.")
    if PortLease.objects.filter(broker=result).exists():
        raise Conflict("Instances still have ports on this broker. Drain it first.", code="not_drained")
    if result.removed_at is None:
        result.removed_at, result.accepts_instances = timezone.now(), False
        result.save_changes(["removed_at", "accepts_instances"])
        FormerPort.objects.filter(broker=result).delete()
        audit.record(acting, "broker.removed", result, None, {"number": result.number})
    return result
