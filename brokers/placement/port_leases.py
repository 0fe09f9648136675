"""The ports tenants connect to: one per route and broker, out of the pool of the broker's host (CKA-2).

Two instances never share a port: the choice is made under the host's row lock, with a unique constraint behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from django.db import transaction
from django.db.models import QuerySet

from brokers.models import Broker, FormerPort, Host, PortLease
from instances.models import Instance, Route


class PoolEmpty(Exception):
    """A host has no port left to give."""


def next_port(*, first: int, last: int, cursor: int, taken: Set[int]) -> int | None:
    """The first free port behind `cursor`, wrapping round: what was given back rests as long as possible. Pure.

    So clients of a deleted instance that still knock do not soon knock at a stranger's admin client.
    """
    size = last - first + 1
    start = cursor + 1 if first <= cursor < last else first
    for step in range(size):
        port = first + (start - first + step) % size
        if port not in taken:
            return port
    return None


def lease(instance: Instance, brokers: Iterable[Broker]) -> list[PortLease]:
    """Leases of all its routes for exactly these brokers: existing ones are kept, missing ones made. Call in a
    transaction, with the instance's row locked.

    On a broker that it had left, a route gets the port it had there, unless somebody has that by now.

    Raises `PoolEmpty` when a host has no free port.
    """
    assert transaction.get_connection().in_atomic_block
    present = list(PortLease.objects.filter(instance=instance, route__isnull=False))
    kept = {(result.broker_id, result.route_id): result for result in present}
    leaving = {result.broker_id for result in present if result.is_leaving}
    in_order = sorted(brokers, key=lambda broker: broker.number)
    wanted = [(broker, route) for broker in in_order for route in instance.routes.order_by("pk")]
    missing = [(broker, route) for broker, route in wanted if (broker.pk, route.pk) not in kept]
    # Locked in one order for everybody, so that two placements never wait for each other.
    host_ids = sorted({broker.host_id for broker, _ in missing})
    hosts = {host.pk: host for host in Host.objects.select_for_update().filter(pk__in=host_ids).order_by("pk")}
    for broker, route in missing:
        port = _port_for(route, broker, hosts[broker.host_id])
        kept[broker.pk, route.pk] = PortLease.objects.create(
            instance=instance, route=route, broker=broker, host=hosts[broker.host_id], port=port,
            is_leaving=broker.pk in leaving,
        )  # fmt: skip
    return [kept[broker.pk, route.pk] for broker, route in wanted]


def lease_new_routes(instance: Instance) -> bool:
    """Ports for routes that were opened since, on all of the instance's brokers; whether there were any. Call in a
    transaction, with the instance's row locked. Raises `PoolEmpty` when a host has no free port.
    """
    leases = PortLease.objects.filter(instance=instance)
    count = leases.filter(route__isnull=False).count()
    brokers = Broker.objects.filter(port_leases__in=leases).select_related("host").distinct()
    return len(lease(instance, brokers)) > count


def release_closed_routes(instance: Instance) -> int:
    """Give back the ports of routes that are deleted, once every broker knows; how many they were."""
    return PortLease.objects.filter(instance=instance, route=None).delete()[0]


def replace(leases: Iterable[PortLease]) -> None:
    """Another port for each of these leases, which hold theirs until then: it is not chosen again.

    Call in a transaction. Raises `PoolEmpty` when a host has no free port.
    """
    assert transaction.get_connection().in_atomic_block
    result = list(leases)
    host_ids = {item.host_id for item in result}
    hosts = {host.pk: host for host in Host.objects.select_for_update().filter(pk__in=host_ids).order_by("pk")}
    for item in result:
        item.port = _take(hosts[item.host_id])
        item.save(update_fields=["port"])


def give_back(leases: QuerySet[PortLease]) -> None:
    """Give ports back that the instance may want again. Call in a transaction, with the instance's row locked."""
    assert transaction.get_connection().in_atomic_block
    left = [
        FormerPort(
            instance_id=item.instance_id, route_id=item.route_id, broker_id=item.broker_id, host_id=item.host_id,
            port=item.port,
        )
        for item in leases
        if item.route_id is not None
    ]  # fmt: skip
    FormerPort.objects.bulk_create(left)
    leases.delete()


def release(instance: Instance) -> int:
    """Give all ports of an instance back for good; returns how many."""
    FormerPort.objects.filter(instance=instance).delete()
    return PortLease.objects.filter(instance=instance).delete()[0]


def _port_for(route: Route, broker: Broker, host: Host) -> int:
    former = FormerPort.objects.filter(route=route, broker=broker).first()
    port = None
    if former is not None:
        former.delete()
        if former.host_id == host.pk and host.port_first <= former.port <= host.port_last:
            port = former.port if former.port not in _taken(host) else None
    return port or _take(host)


def _taken(host: Host) -> set[int]:
    taken = set(PortLease.objects.filter(host=host).values_list("port", flat=True))
    return taken | {port for pair in host.brokers.values_list("internal_port", "admin_port") for port in pair}


def _take(host: Host) -> int:
    """The next free port of a locked host; one that an instance may come back to only when there is no other."""
    taken = _taken(host)  # before the former ones: what is given back in between is among these
    former = set(FormerPort.objects.filter(host=host).values_list("port", flat=True))
    bounds = {"first": host.port_first, "last": host.port_last, "cursor": host.port_cursor}
    port = next_port(**bounds, taken=taken | former) or next_port(**bounds, taken=taken)
    if port is None:
        raise PoolEmpty(f"host {host.name} has no free port")
    FormerPort.objects.filter(host=host, port=port).delete()
    host.port_cursor = port
    host.save(update_fields=["port_cursor"])
    return port
