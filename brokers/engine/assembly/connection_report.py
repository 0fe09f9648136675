"""Connections of an instance for the control plane, in pages: making a page takes one turn of the event loop.

The report has only data that each connection stores for its own work.
"""

from __future__ import annotations

from itertools import chain
from operator import attrgetter
from typing import Any, Final

from brokers.contract.usage import NAME_CHARACTERS_MAX, counted_name
from brokers.engine.access.principals import Principal
from brokers.engine.network import closing
from brokers.engine.network.connection import Connection
from brokers.engine.network.listener import Listeners

CONNECTIONS_PER_PAGE: Final = 250
# Number, address, user, client id, software and its version, route, age in ms, number of requests, and 1 while the
# connection is not authenticated.
ConnectionRow = list[Any]


def connections_page(
    listeners: Listeners, instance_id: str, *, after: int, started_at_ms: int, now_ms: int
) -> dict[str, Any]:
    """Returns the connections with numbers above `after`, in order. `next` is the last number if there are more."""
    # Sorting is faster than a heap here: the connections of a listener are in order already.
    connections = sorted(
        (connection for connection in _connections(listeners, instance_id) if connection.number > after),
        key=attrgetter("number"),
    )
    page = connections[:CONNECTIONS_PER_PAGE]
    now_s = listeners.loop.time()
    return {
        "now_ms": now_ms,
        "started_at_ms": started_at_ms,
        "connections": [_row(connection, now_s) for connection in page],
        "next": page[-1].number if len(connections) > len(page) else None,
    }


def close_connection(listeners: Listeners, instance_id: str, number: int) -> bool:
    """Closes one connection of the instance. Returns False if there is none of this number."""
    for connection in _connections(listeners, instance_id):
        if connection.number == number:
            listeners.close_connection(connection, closing.CLOSED_BY_OWNER)
            return True
    return False


def _connections(listeners: Listeners, instance_id: str) -> list[Connection]:
    """Returns the connections of all routes of the instance that have finished their handshake."""
    group = listeners.group_of(instance_id)
    if group is None or group.is_protected:
        return []
    every = chain.from_iterable(listener.connections for listener in group.listeners)
    return [connection for connection in every if isinstance(connection, Connection)]


def _cut(name: str) -> str:
    """Truncates a client's name before it is normalised, since clients may choose names of up to 32 kB."""
    return counted_name(name[:NAME_CHARACTERS_MAX])


def _row(connection: Connection, now_s: float) -> ConnectionRow:
    session: Any = connection.session
    user = client_id = software = version = route = ""
    is_unknown = 1
    if isinstance(getattr(session, "principal", None), Principal):
        user, client_id, route = session.principal.user, session.client_id, session.route_name
        software, version = session.software
        is_unknown = 0
    return [
        connection.number, connection.peer_host, _cut(user), _cut(client_id),
        software, version, route,
        round((now_s - connection.started_s) * 1_000), connection.inbound.frame_count, is_unknown,
    ]  # fmt: skip
