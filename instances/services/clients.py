"""Closing of client connections. A client that may still sign in reconnects immediately."""

from __future__ import annotations

from instances.access import require_reachable
from instances.clients import listing
from instances.clients.interfaces import Connection, connection_admin_client
from instances.models import Instance
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope


@audit.atomic
def close_connection(*, acting: Actor, instance: Instance, connection_id: str, dry_run: bool = False) -> Connection:
    """Closes one connection at its broker, and returns its description.

    Raises `NotFound` for an unknown connection, and `Unavailable` if its broker does not answer.
    """
    access.require(acting, Scope.CLIENTS_WRITE)
    require_reachable(instance)
    connection = listing.connection_detail(instance, connection_id)
    before = {
        "client_id": connection.client_id,
        "user": connection.user,
        "address": connection.address,
        "broker": connection.broker_id,
        "since_ms": connection.since_ms,
    }
    target = ("connection", f"{instance.pk}/{connection.id}")
    entry = audit.record(acting, "connection.closed", target, before, None, tenant=instance.tenant)
    if not dry_run:
        with audit.in_doubt(entry):
            connection_admin_client.implementation.close(instance.pk, connection.id)
        listing.invalidate(instance.pk)
    return connection
