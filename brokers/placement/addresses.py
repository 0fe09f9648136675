"""The addresses tenants are told: of each route, on the brokers that its instance is to keep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from brokers.models import PortLease
from instances.models import Instance, Route


def advertised(lease: PortLease, route: Route) -> str:
    """`host:port`; an address of version 6 stands in brackets."""
    host = route.advertised_host or lease.host.advertised_host
    return f"[{host}]:{lease.port}" if ":" in host else f"{host}:{lease.port}"


def endpoints_of(leases: Iterable[PortLease]) -> dict[int, dict[int, str]]:
    """By route's key, by broker id, in their order. The leases come with their routes, brokers and hosts."""
    result: dict[int, dict[int, str]] = defaultdict(dict)
    for lease in sorted(leases, key=lambda each: each.broker.number):
        if lease.route is not None:
            result[lease.route.pk][lease.broker.number] = advertised(lease, lease.route)
    return result


def write(instance: Instance) -> list[str]:
    """Into the rows of the routes, and of the (locked) instance, whose changed fields are to be saved."""
    rows = PortLease.objects.filter(instance=instance, is_leaving=False).select_related("route", "broker", "host")
    known = endpoints_of(rows)
    instance.endpoints = {}
    for route in reversed(instance.routes_in_order):
        endpoints = {str(number): address for number, address in known[route.pk].items()}
        if endpoints != route.endpoints:
            Route.objects.filter(pk=route.pk).update(endpoints=endpoints)
        instance.endpoints = endpoints
    return ["endpoints"]
