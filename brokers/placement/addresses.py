"""Bootstrap addresses for tenants: one for each route of an instance on each of its brokers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from brokers.models import PortLease
from instances.models import Instance, Route


def advertised_address(lease: PortLease, route: Route) -> str:
    """Returns the advertised address of a route on a broker as `host:port`; an IPv6 address is in brackets."""
    host = route.advertised_host or lease.host.advertised_host
    return f"[{host}]:{lease.port}" if ":" in host else f"{host}:{lease.port}"


def endpoints_of(leases: Iterable[PortLease]) -> dict[int, dict[int, str]]:
    """Returns the addresses by route id and broker number, sorted by number.

    The leases must be selected with their routes, brokers and hosts.
    """
    result: dict[int, dict[int, str]] = defaultdict(dict)
    for lease in sorted(leases, key=lambda row: row.broker.number):
        if lease.route is not None:
            result[lease.route.pk][lease.broker.number] = advertised_address(lease, lease.route)
    return result


def write_endpoints(instance: Instance) -> list[str]:
    """Writes the addresses to the rows of the routes, and assigns them to the locked instance without saving it.

    Returns the names of the instance's fields that the caller must save.
    """
    leases = PortLease.objects.filter(instance=instance, is_leaving=False).select_related("route", "broker", "host")
    address_by_route = endpoints_of(leases)
    instance.endpoints = {}
    for route in reversed(instance.routes_in_order):
        endpoints = {str(number): address for number, address in address_by_route[route.pk].items()}
        if endpoints != route.endpoints:
            Route.objects.filter(pk=route.pk).update(endpoints=endpoints)
        instance.endpoints = endpoints
    return ["endpoints"]
