"""State shared by the listeners of one instance over all its routes: turns, memory limits and connection counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Final, NamedTuple, Protocol

from brokers.engine.network import endings
from brokers.engine.network.address_rates import AddressRates
from brokers.engine.network.admission import Addresses, CreationPace, Limits
from brokers.engine.network.buffers import UNREAD_BYTES_PER_INSTANCE_MAX, UnreadBytes
from brokers.engine.network.entry_queue import EntryQueue
from brokers.engine.network.fair_turns import FairTurns, InstanceTurns, TenantTurns
from brokers.engine.network.interfaces import OwnedConnection
from brokers.engine.network.unsent import UnsentBytes

# Number of connections of the largest listener among which the longest idle one is chosen.
CANDIDATES_MAX: Final = 64


class Member(Protocol):
    """A listener, as its group sees it."""

    connections: dict[OwnedConnection, None]


class Closer(Protocol):
    """Closes connections for one of the reasons in `endings`, and schedules callbacks."""

    def end(self, connection: OwnedConnection, reason: str) -> None: ...

    def call_soon(self, callback: Callable[[], object]) -> object: ...


class GroupSpec(NamedTuple):
    """Description of a group when its first listener opens.

    An instance without `tenant` is its own tenant; a `connections_max` of 0 is the broker's default.
    """

    name: str
    tenant: str | None = None
    connections_max: int = 0
    is_protected: bool = False


class ListenerGroup:
    """Listeners that share limits. `name` is the instance's id, or that of the internal listener, which is alone in its
    group.

    The connections of a group that `is_protected` are the cluster's own. They are never refused or closed in favour of
    others (QUO-50), never queued, and have no rate limit.
    """

    __slots__ = (
        "_closer",
        "_is_relieving",
        "address_rates",
        "addresses",
        "connections_max",
        "connections_peak",
        "entry_queue",
        "is_protected",
        "listeners",
        "name",
        "pace",
        "turns",
        "unread",
        "unsent",
    )

    entry_queue: EntryQueue

    def __init__(
        self,
        name: str,
        closer: Closer,
        limits: Limits,
        unread_of_all: UnreadBytes,
        fair_turns: FairTurns | None,
        connections_max: int = 0,
        tenant: TenantTurns | None = None,
    ) -> None:
        """Creates the group, which is protected without `fair_turns`."""
        self.name = name
        self._closer = closer
        self._is_relieving = False
        self.is_protected = fair_turns is None
        self.connections_max = connections_max or limits.connections_per_listener_max
        self.connections_peak = 0
        self.addresses = Addresses()
        self.address_rates = AddressRates()
        self.pace = CreationPace(limits.creations_per_listener_per_s_max)
        self.unread = UnreadBytes(unread_of_all, UNREAD_BYTES_PER_INSTANCE_MAX)
        self.turns = InstanceTurns(fair_turns, tenant, name)
        self.unsent = UnsentBytes(None if fair_turns is None else self.on_excess)
        self.listeners: list[Member] = []

    @property
    def count(self) -> int:
        """Returns the number of connections of all its listeners."""
        return sum(len(listener.connections) for listener in self.listeners)

    def on_entered(self, address: str) -> None:
        """Counts a new connection from the address."""
        self.addresses.add(address)
        self.connections_peak = max(self.connections_peak, self.count)

    def take_peak(self) -> int:
        """Returns the maximum number of open connections since the last call."""
        peak, self.connections_peak = self.connections_peak, self.count
        return peak

    def connections(self) -> Iterator[OwnedConnection]:
        return chain.from_iterable(listener.connections for listener in self.listeners)

    def on_excess(self) -> None:
        """Schedules closing, because unread responses take too much memory; called inside a request."""
        if not self._is_relieving:
            self._is_relieving = True
            self._closer.call_soon(self._relieve)

    def _relieve(self) -> None:
        """Closes the longest idle connections, then those with most bytes, but never the last one with bytes."""
        self._is_relieving = False
        holding = [connection for connection in self.connections() if connection.unsent_bytes]
        holding.sort(key=lambda connection: (connection.idle_ticks, connection.unsent_bytes), reverse=True)
        for connection in holding[:-1]:
            if not self.unsent.are_too_many:
                break
            self._closer.end(connection, endings.UNREAD_ANSWERS)

    def quietest(self) -> OwnedConnection:
        """Returns the longest idle among some connections. The ones examined come last the next time."""
        largest = max(self.listeners, key=lambda listener: len(listener.connections))
        candidates = list(islice(largest.connections, CANDIDATES_MAX))
        for connection in candidates:
            del largest.connections[connection]
            largest.connections[connection] = None
        return max(candidates, key=lambda connection: connection.idle_ticks)
