"""The ports tenants connect to: one per instance and broker, out of the pool of the broker's host (CKA-2).

Two instances never share a port: the choice is made under the host's row lock, with a unique constraint behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from django.db import transaction

from brokers.models import Broker, Host, PortLease
from instances.models import Instance


class PoolEmpty(Exception):
    """A host has no port left to give."""


def next_port(*, first: int, last: int, cursor: int, taken: Set[int]) -> int | None:
    """The first free port behind `cursor`, wrapping round: what was given back rests as long as possible. Pure.

    So clients of a deleted instance that still knock do not soon knock at a stranger's door.
    """
    size = last - first + 1
    start = cursor + 1 if first <= cursor < last else first
    for step in range(size):
        port = first + (start - first + step) % size
        if port not in taken:
            return port
    return None


def lease(instance: Instance, brokers: Iterable[Broker]) -> list[PortLease]:
    """Leases for exactly these brokers: existing ones are kept, missing ones made. Call in a transaction.

    Raises `PoolEmpty` when a host has no free port.
    """
    assert transaction.get_connection().in_atomic_block
    kept = {found.broker_id: found for found in PortLease.objects.filter(instance=instance)}
    wanted = sorted(brokers, key=lambda broker: broker.number)
    # Locked in one order for everybody, so that two placements never wait for each other.
    host_ids = sorted({broker.host_id for broker in wanted if broker.pk not in kept})
    hosts = {host.pk: host for host in Host.objects.select_for_update().filter(pk__in=host_ids).order_by("pk")}
    for broker in wanted:
        if broker.pk not in kept:
            kept[broker.pk] = _lease_one(instance, broker, hosts[broker.host_id])
    return [kept[broker.pk] for broker in wanted]


def release(instance: Instance) -> int:
    """Give all ports of an instance back; returns how many."""
    return PortLease.objects.filter(instance=instance).delete()[0]


def _lease_one(instance: Instance, broker: Broker, host: Host) -> PortLease:
    taken = set(PortLease.objects.filter(host=host).values_list("port", flat=True))
    taken |= {port for pair in host.brokers.values_list("internal_port", "admin_port") for port in pair}
    port = next_port(first=host.port_first, last=host.port_last, cursor=host.port_cursor, taken=taken)
    if port is None:
        raise PoolEmpty(f"host {host.name} has no free port")
    host.port_cursor = port
    host.save(update_fields=["port_cursor"])
    return PortLease.objects.create(instance=instance, broker=broker, host=host, port=port)
