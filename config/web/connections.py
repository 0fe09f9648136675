"""Open connections by client, and the choice of one to close when a new one arrives. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from config.web.deadlines import ConnectionPhase
from config.web.limits import CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX


class ConnectionLike(Protocol):
    """Attributes of a connection that are used here."""

    client: str
    is_proxy: bool
    phase: ConnectionPhase
    since_s: float

    @property
    def buffered_bytes(self) -> int: ...


ConnectionT = TypeVar("ConnectionT", bound=ConnectionLike)


class Connections(Generic[ConnectionT]):
    """Connections with limits. A new connection is accepted unless all others are working: idle or slow ones are
    closed.

    Connections of trusted proxies carry many clients and count towards the total only.
    """

    def __init__(self, *, total_max: int = CONNECTIONS_MAX, per_address_max: int = CONNECTIONS_PER_ADDRESS_MAX) -> None:
        self._total_max = total_max
        self._per_address_max = per_address_max
        self._by_client: dict[str, set[ConnectionT]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[ConnectionT]:
        for client_connections in list(self._by_client.values()):
            yield from list(client_connections)

    def add(self, connection: ConnectionT) -> None:
        self._by_client.setdefault(connection.client, set()).add(connection)
        self._count += 1

    def remove(self, connection: ConnectionT) -> None:
        """Removes a connection; idempotent."""
        client_connections = self._by_client.get(connection.client)
        if client_connections is None or connection not in client_connections:
            return
        client_connections.remove(connection)
        self._count -= 1
        if not client_connections:
            del self._by_client[connection.client]

    def exceeds_limit(self, client: str, *, is_proxy: bool) -> bool:
        """True if a connection must be closed after `client` has opened one more."""
        if self._count > self._total_max:
            return True
        return not is_proxy and len(self._by_client.get(client, ())) > self._per_address_max

    def victim(self, newcomer: ConnectionT) -> ConnectionT | None:
        """Returns the connection to close for `newcomer`: one of its client, or of the client with most.

        Returns None if the newcomer itself must be closed.
        """
        client_connections = self._by_client.get(newcomer.client, set())
        if newcomer.is_proxy or len(client_connections) <= self._per_address_max:
            client_connections = self.of_busiest_client()
        return self.stalest(client_connections, newcomer)

    def of_busiest_client(self) -> set[ConnectionT]:
        """Returns the connections of the client with most of them; of proxies only if there are no others."""
        return max(
            self._by_client.values(),
            key=lambda client_connections: (not next(iter(client_connections)).is_proxy, len(client_connections)),
            default=set(),
        )

    @staticmethod
    def stalest(connections: set[ConnectionT], newcomer: ConnectionT | None = None) -> ConnectionT | None:
        """Returns the first connection to close: idle ones, then the one longest in its phase; never a working one."""
        candidates = (
            connection
            for connection in connections
            if connection is not newcomer and connection.phase is not ConnectionPhase.WORK
        )
        return min(
            candidates,
            key=lambda connection: (min(connection.phase, ConnectionPhase.HEAD), connection.since_s),
            default=None,
        )

    def most_buffered(self) -> ConnectionT | None:
        """Returns the connection with the most buffered bytes that is not working; of several the one longest in its
        phase.
        """
        candidates = (
            connection
            for connection in self
            if connection.phase is not ConnectionPhase.WORK and connection.buffered_bytes
        )
        return max(candidates, key=lambda connection: (connection.buffered_bytes, -connection.since_s), default=None)
