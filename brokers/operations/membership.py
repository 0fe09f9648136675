"""Operators grow and shrink a cluster: a broker is added on a host, and removed when it is empty and stopped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from brokers.choices import WantedState
from brokers.limits import BROKER_BANDWIDTH_MB_S, BROKER_STORAGE_GB, BROKERS_PER_CLUSTER_MAX
from brokers.models import Broker, Cluster, FormerPort, Host, PortLease
from brokers.operations.seed import ADMIN_PORT_BASE, INTERNAL_PORT_BASE
from brokers.services import notify
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import Conflict, Invalid


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
    """One more broker process on a host; its agent starts it at once. Numbers are never used again.

    Without `data_dirs` it keeps its log beside that of a broker of the same host. Raises `Conflict` when the cluster or
    the host is full, `Invalid` for a directory that another broker has.
    """
    access.require(acting, Scope.OPERATOR)
    cluster = Cluster.objects.select_for_update().get(pk=cluster.pk)
    host = Host.objects.select_for_update().get(pk=host.pk)
    numbers = set(Broker.objects.filter(cluster=cluster).values_list("number", flat=True))
    if Broker.objects.filter(cluster=cluster, removed_at=None).count() >= BROKERS_PER_CLUSTER_MAX:
        raise Conflict(f"A cluster has at most {BROKERS_PER_CLUSTER_MAX} brokers.", code="cluster_full")
    number = max(numbers, default=0) + 1
    internal_port, admin_port = own_ports(host)
    made = Broker.objects.create(
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
    after = {"cluster": cluster.pk, "number": number, "host": host.name, "data_dirs": made.data_dirs}
    audit.record(acting, "broker.added", made, None, after)
    if not dry_run:
        notify(made)
    return made


def own_ports(host: Host) -> tuple[int, int]:
    """An internal and an admin port for one more broker on a host: the next ones behind those of its other brokers,
    outside the pool of tenants' ports. Call with the host's row locked.
    """
    pairs = list(Broker.objects.filter(host=host, removed_at=None).values_list("internal_port", "admin_port"))
    taken = {port for pair in pairs for port in pair} | set(range(host.port_first, host.port_last + 1))
    result: list[int] = []
    for position, first in enumerate((INTERNAL_PORT_BASE, ADMIN_PORT_BASE)):
        start = max((pair[position] for pair in pairs), default=first - 1) + 1
        port = next((port for port in range(start, 65_536) if port not in taken), None)
        if port is None:
            raise Conflict(f"Host {host.name} has no port left for a broker.", code="no_port")
        taken.add(port)
        result.append(port)
    return result[0], result[1]


def directories_of(cluster: Cluster, host: Host, number: int, wanted: Sequence[str]) -> list[str]:
    """Where a broker's logs go: as given, else beside those of a broker of the same host."""
    others = Broker.objects.filter(host=host, removed_at=None).order_by("number")
    if not wanted:
        near = next((other.data_dirs[0] for other in others if other.data_dirs), None)
        if near is not None and Path(near).parent.name.isdigit():
            root = Path(near).parent.parent
            return [str(root / str(number) / "data")]
        return [str(settings.STATE_DIR / "brokers" / cluster.pk / str(number) / "data")]
    for index, path in enumerate(wanted):
        if not Path(path).is_absolute():
            raise Invalid.at(f"/data_dirs/{index}", "An absolute path.", code="invalid_path")
        if any(path in other.data_dirs for other in others):
            raise Invalid.at(f"/data_dirs/{index}", "Another broker keeps its log there.", code="taken")
    return list(wanted)


@transaction.atomic
def remove_broker(*, acting: Actor, broker: Broker) -> Broker:
    """Take a stopped broker off the cluster for good. Raises `Conflict` while it is wanted or has tenants' ports."""
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
