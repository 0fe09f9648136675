"""Tenant ports: one per route and broker, from the pool of the broker's host (CKA-2).

Two instances never share a port: it is chosen under the host's row lock, and a unique constraint enforces it.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from django.db import transaction
from django.db.models import QuerySet

from brokers.models import Broker, FormerPort, Host, PortLease
from instances.models import Instance, Route


class PoolEmpty(Exception):
    """Raised if a host has no free port."""


def next_port(*, first: int, last: int, cursor: int, unavailable_ports: Set[int]) -> int | None:
    """Returns the first free port after `cursor`, wrapping around; None if there is none. Pure.

    A released port thus stays unused as long as possible: clients of a deleted instance that still connect must not
    soon reach another tenant's instance.
    """
    size = last - first + 1
    start = cursor + 1 if first <= cursor < last else first
    for step in range(size):
        port = first + (start - first + step) % size
        if port not in unavailable_ports:
            return port
    return None


def lease(instance: Instance, brokers: Iterable[Broker]) -> list[PortLease]:
    """Returns leases of all its routes for exactly these brokers: existing ones are kept, missing ones created. Call in
    a transaction, with the instance's row locked.

    A route gets its former port on a broker that the instance had left, unless that port is leased to another route.

    Raises `PoolEmpty` if a host has no free port.
    """
    assert transaction.get_connection().in_atomic_block
    existing_leases = list(PortLease.objects.filter(instance=instance, route__isnull=False))
    retained = {(row.broker_id, row.route_id): row for row in existing_leases}
    leaving_broker_ids = {row.broker_id for row in existing_leases if row.is_leaving}
    in_order = sorted(brokers, key=lambda broker: broker.number)
    required = [(broker, route) for broker in in_order for route in instance.routes.order_by("pk")]
    unleased = [(broker, route) for broker, route in required if (broker.pk, route.pk) not in retained]
    # Hosts are locked in a fixed order, so that concurrent placements do not deadlock.
    host_ids = sorted({broker.host_id for broker, _ in unleased})
    hosts = {host.pk: host for host in Host.objects.select_for_update().filter(pk__in=host_ids).order_by("pk")}
    for broker, route in unleased:
        port = _port_for(route, broker, hosts[broker.host_id])
        retained[broker.pk, route.pk] = PortLease.objects.create(
            instance=instance, route=route, broker=broker, host=hosts[broker.host_id], port=port,
            is_leaving=broker.pk in leaving_broker_ids,
        )  # fmt: skip
    return [retained[broker.pk, route.pk] for broker, route in required]


def lease_new_routes(instance: Instance) -> bool:
    """Leases ports for new routes on all of the instance's brokers; True if there were any. Call in a transaction, with
    the instance's row locked. Raises `PoolEmpty` if a host has no free port.
    """
    leases = PortLease.objects.filter(instance=instance)
    count = leases.filter(route__isnull=False).count()
    brokers = Broker.objects.filter(port_leases__in=leases).select_related("host").distinct()
    return len(lease(instance, brokers)) > count


def release_closed_routes(instance: Instance) -> int:
    """Releases the ports of deleted routes; returns their number. Call when every broker has confirmed the deletion."""
    return PortLease.objects.filter(instance=instance, route=None).delete()[0]


def replace_ports(leases: Iterable[PortLease]) -> None:
    """Replaces the ports of leases whose brokers cannot open them, by ports that none of the leases had.

    Call in a transaction. Raises `PoolEmpty` if a host has no free port.
    """
    assert transaction.get_connection().in_atomic_block
    rows = list(leases)
    host_ids = {row.host_id for row in rows}
    hosts = {host.pk: host for host in Host.objects.select_for_update().filter(pk__in=host_ids).order_by("pk")}
    former_ports = {host_id: {row.port for row in rows if row.host_id == host_id} for host_id in hosts}
    for row in rows:
        row.port = _take_port(hosts[row.host_id], excluded=former_ports[row.host_id])
        row.save(update_fields=["port"])


def release_as_former(leases: QuerySet[PortLease]) -> None:
    """Releases ports, and stores them as former ports, in case the instance returns to the brokers. Call in a
    transaction, with the instance's row locked.
    """
    assert transaction.get_connection().in_atomic_block
    former_rows = [
        FormerPort(
            instance_id=row.instance_id, route_id=row.route_id, broker_id=row.broker_id, host_id=row.host_id,
            port=row.port,
        )
        for row in leases
        if row.route_id is not None
    ]  # fmt: skip
    FormerPort.objects.bulk_create(former_rows)
    leases.delete()


def release(instance: Instance) -> int:
    """Releases all ports of an instance permanently; returns their number."""
    FormerPort.objects.filter(instance=instance).delete()
    return PortLease.objects.filter(instance=instance).delete()[0]


def _port_for(route: Route, broker: Broker, host: Host) -> int:
    former = FormerPort.objects.filter(route=route, broker=broker).first()
    port = None
    if former is not None:
        former.delete()
        if former.host_id == host.pk and host.port_first <= former.port <= host.port_last:
            port = former.port if former.port not in _leased_ports_of(host) else None
    return port or _take_port(host)


def _leased_ports_of(host: Host) -> set[int]:
    tenant_ports = set(PortLease.objects.filter(host=host).values_list("port", flat=True))
    return tenant_ports | {port for pair in host.brokers.values_list("internal_port", "admin_port") for port in pair}


def _take_port(host: Host, excluded: Set[int] = frozenset()) -> int:
    """Returns the next free port of a locked host that is not in `excluded`; a former port of an instance only if there
    is no other.
    """
    unavailable_ports = (
        _leased_ports_of(host) | excluded
    )  # read before the former ports: a port released in between is among these
    former_ports = set(FormerPort.objects.filter(host=host).values_list("port", flat=True))
    bounds = {"first": host.port_first, "last": host.port_last, "cursor": host.port_cursor}
    port = next_port(**bounds, unavailable_ports=unavailable_ports | former_ports) or next_port(
        **bounds, unavailable_ports=unavailable_ports
    )
    if port is None:
        raise PoolEmpty(f"host {host.name} has no free port")
    FormerPort.objects.filter(host=host, port=port).delete()
    host.port_cursor = port
    host.save(update_fields=["port_cursor"])
    return port
