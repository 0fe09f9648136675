"""State shared by the listeners of one instance over all its routes: turns, memory limits and connection counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Final, NamedTuple, Protocol

from brokers.contract.connections import UNSENT_BYTES_PER_TENANT_MAX
from brokers.engine.network import closing
from brokers.engine.network.admission import Addresses, AddressRates, CreationPace, Limits
from brokers.engine.network.buffers import (
    UNREAD_BYTES_PER_INSTANCE_MAX,
    UNREAD_BYTES_PER_TENANT_MAX,
    UnreadBytes,
    UnsentBytes,
)
from brokers.engine.network.entry_queue import EntryQueue
from brokers.engine.network.interfaces import OwnedConnection
from brokers.engine.scheduling.fair_turns import FairTurns, InstanceTurns, TenantTurns

# Number of connections of the largest listener that are examined for the longest idle one.
CANDIDATES_MAX: Final = 64


class Closer(Protocol):
    """Closes connections for one of the reasons in `closing`, and schedules callbacks."""

    def close_connection(self, connection: OwnedConnection, reason: str) -> None: ...
    def call_soon(self, callback: Callable[[], object]) -> object: ...


class GroupSpec(NamedTuple):
    """Description of a group when its first listener opens.

    An instance without `tenant` is its own tenant; a `connections_max` of 0 is the broker's default.
    """

    name: str
    tenant: str | None = None
    connections_max: int = 0
    is_protected: bool = False


def close_slow_readers(closer: Closer, connections: Iterable[OwnedConnection], unsent: UnsentBytes) -> None:
    """Closes connections with unsent bytes until `unsent` is within its limit: first the longest idle, among these the
    one with most bytes. The last connection with unsent bytes stays open.
    """
    slow_readers = [connection for connection in connections if connection.unsent_bytes]
    slow_readers.sort(key=lambda connection: (connection.idle_sweeps, connection.unsent_bytes), reverse=True)
    for connection in slow_readers[:-1]:
        if not unsent.is_over_limit:
            break
        closer.close_connection(connection, closing.UNREAD_RESPONSES)


class TenantGroups:
    """Groups of one tenant's instances on this broker, and the limits that they share."""

    __slots__ = ("_closer", "_is_closing_scheduled", "groups", "pace", "turns", "unread", "unsent")

    def __init__(self, turns: TenantTurns, closer: Closer, limits: Limits, broker_unread: UnreadBytes) -> None:
        self.turns = turns
        self._closer = closer
        self._is_closing_scheduled = False
        self.groups: dict[ListenerGroup, None] = {}
        self.pace = CreationPace(limits.creations_per_tenant_per_s_max)
        self.unread = UnreadBytes(broker_unread, UNREAD_BYTES_PER_TENANT_MAX)
        self.unsent = UnsentBytes(self.on_excess, UNSENT_BYTES_PER_TENANT_MAX)

    @property
    def count(self) -> int:
        """Returns the number of connections of all instances."""
        return sum(group.count for group in self.groups)

    def on_excess(self) -> None:
        """Schedules closing, because unread responses take too much memory; called inside a request."""
        if not self._is_closing_scheduled:
            self._is_closing_scheduled = True
            self._closer.call_soon(self._close_slow_readers)

    def _close_slow_readers(self) -> None:
        self._is_closing_scheduled = False
        close_slow_readers(self._closer, chain.from_iterable(group.connections() for group in self.groups), self.unsent)


class ListenerGroup:
    """Listeners that share limits. `name` is the instance's id, or that of the internal listener, which is alone in its
    group.

    The connections of a group that `is_protected` are the cluster's own. They are never refused or closed in favour of
    others (QUO-50), never queued, and have no rate limit.
    """

    __slots__ = (
        "_closer", "_is_closing_scheduled", "address_rates", "addresses", "connections_max", "connections_peak",
        "entry_queue", "is_protected", "listeners", "name", "pace", "tenant", "turns", "unread", "unsent",
    )  # fmt: skip

    entry_queue: EntryQueue

    def __init__(
        self,
        name: str,
        closer: Closer,
        limits: Limits,
        broker_unread: UnreadBytes,
        fair_turns: FairTurns | None,
        connections_max: int = 0,
        tenant: TenantGroups | None = None,
    ) -> None:
        """Creates the group, which is protected without `fair_turns`."""
        self.name = name
        self._closer = closer
        self._is_closing_scheduled = False
        self.is_protected = fair_turns is None
        self.connections_max = connections_max or limits.connections_per_listener_max
        self.connections_peak = 0
        self.addresses = Addresses()
        self.address_rates = AddressRates()
        self.pace = CreationPace(limits.creations_per_listener_per_s_max)
        self.unread = UnreadBytes(broker_unread if tenant is None else tenant.unread, UNREAD_BYTES_PER_INSTANCE_MAX)
        # None for a protected group.
        self.tenant = tenant
        self.turns = InstanceTurns(fair_turns, None if tenant is None else tenant.turns, name)
        self.unsent = UnsentBytes(None if fair_turns is None else self.on_excess)
        self.listeners: list[closing.ConnectionHolder] = []
        if tenant is not None:
            tenant.groups[self] = None
            self.unsent.move_to(tenant.unsent)

    @property
    def count(self) -> int:
        """Returns the number of connections of all its listeners."""
        return sum(len(listener.connections) for listener in self.listeners)

    def move_to(self, tenant: TenantGroups) -> None:
        """Moves the instance to another tenant."""
        assert self.tenant is not None, "it has no tenant"
        del self.tenant.groups[self]
        self.tenant = tenant
        tenant.groups[self] = None
        self.turns.move_to(tenant.turns)
        self.unread.move_to(tenant.unread)
        self.unsent.move_to(tenant.unsent)

    def on_entered(self, address: str) -> None:
        """Counts a new connection from the address."""
        self.addresses.add(address)
        self.connections_peak = max(self.connections_peak, self.count)

    def pop_connections_peak(self) -> int:
        """Returns the maximum number of open connections since the last call."""
        peak, self.connections_peak = self.connections_peak, self.count
        return peak

    def connections(self) -> Iterator[OwnedConnection]:
        return chain.from_iterable(listener.connections for listener in self.listeners)

    def on_excess(self) -> None:
        """Schedules closing, because unread responses take too much memory; called inside a request."""
        if not self._is_closing_scheduled:
            self._is_closing_scheduled = True
            self._closer.call_soon(self._close_slow_readers)

    def _close_slow_readers(self) -> None:
        self._is_closing_scheduled = False
        close_slow_readers(self._closer, self.connections(), self.unsent)

    def find_longest_idle(self) -> OwnedConnection:
        """Returns the longest idle of `CANDIDATES_MAX` connections, which are examined last the next time."""
        largest = max(self.listeners, key=lambda listener: len(listener.connections))
        candidates = list(islice(largest.connections, CANDIDATES_MAX))
        for connection in candidates:
            del largest.connections[connection]
            largest.connections[connection] = None
        return max(candidates, key=lambda connection: connection.idle_sweeps)
