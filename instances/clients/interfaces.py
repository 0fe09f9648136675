"""Connections of clients as instances needs them of the app above it, as ports `brokers` plugs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from instances.interfaces import BrokerUnresponsive
from tenants.interfaces import Interface


class Connection(NamedTuple):
    """A connection of a client to one broker. `id` is never used again. Empty text is not known, such as the user of
    one that is signing in, or the software of a client that does not say; `since_ms` in ms since the epoch.
    """

    id: str
    broker_id: int
    address: str
    user: str
    client_id: str
    software: str
    software_version: str
    route: str
    since_ms: int
    requests: int
    is_signing_in: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionList:
    """Connections to all brokers of an instance; those to a silent broker are missing. `is_cut`: there are more."""

    connections: Sequence[Connection]
    silent: tuple[BrokerUnresponsive, ...]
    is_cut: bool = False


class ConnectionAdminClient(Protocol):
    """Asks brokers about connections, and has them closed."""

    def connections(self, instance_id: str, at_most: int) -> ConnectionList:
        """All connections of an instance now, up to so many."""
        ...

    def close(self, instance_id: str, connection_id: str) -> None:
        """Raises `NotFound` for a connection that is not there, `Unavailable` where its broker does not answer, and
        `OutcomeUnknown` where it does not say whether it was closed.
        """
        ...


connection_admin_client: Interface[ConnectionAdminClient] = Interface(
    "instances.clients.interfaces.connection_admin_client"
)
