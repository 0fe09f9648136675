"""What the listeners of one instance share over all its routes: one voice, one memory, one count of connections."""

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

# Of the connections of who has most, so many are looked at for the one that was quiet longest.
CANDIDATES_MAX: Final = 64


class Member(Protocol):
    """A listener, as its group sees it."""

    connections: dict[OwnedConnection, None]


class Closer(Protocol):
    """Whoever closes connections for one of the reasons of `endings`, and calls back in the next turn of the loop."""

    def end(self, connection: OwnedConnection, reason: str) -> None: ...

    def call_soon(self, callback: Callable[[], object]) -> object: ...


class GroupSpec(NamedTuple):
    """Description of a group when its first listener opens.

    An instance without `tenant` is its own tenant; `connections_max` 0 is the default of the broker.
    """

    name: str
    tenant: str | None = None
    connections_max: int = 0
    is_protected: bool = False


class ListenerGroup:
    """`name` is the instance's id, or that of the listener inside the cluster, which is alone in its group.

    `is_protected`: its connections are the cluster's own. They are refused and closed for nobody else's (QUO-50), queue
    for nobody, and come as fast as they like.
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
        """Without `fair_turns` it is protected."""
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
        """Connections of all its listeners."""
        return sum(len(listener.connections) for listener in self.listeners)

    def on_entered(self, address: str) -> None:
        """One more connection is among them, from there."""
        self.addresses.add(address)
        self.connections_peak = max(self.connections_peak, self.count)

    def take_peak(self) -> int:
        """The most that were open at once since it was taken last."""
        peak, self.connections_peak = self.connections_peak, self.count
        return peak

    def connections(self) -> Iterator[OwnedConnection]:
        return chain.from_iterable(listener.connections for listener in self.listeners)

    def on_excess(self) -> None:
        """Answers that nobody reads take too much memory. Called inside somebody's request: others are closed later."""
        if not self._is_relieving:
            self._is_relieving = True
            self._closer.call_soon(self._relieve)

    def _relieve(self) -> None:
        """Who took nothing for longest goes first, then who holds most; who holds all of it alone stays."""
        self._is_relieving = False
        holding = [connection for connection in self.connections() if connection.unsent_bytes]
        holding.sort(key=lambda connection: (connection.idle_ticks, connection.unsent_bytes), reverse=True)
        for connection in holding[:-1]:
            if not self.unsent.are_too_many:
                break
            self._closer.end(connection, endings.UNREAD_ANSWERS)

    def quietest(self) -> OwnedConnection:
        """Of some of the connections the one that was quiet longest. Those looked at come last the next time."""
        largest = max(self.listeners, key=lambda listener: len(listener.connections))
        candidates = list(islice(largest.connections, CANDIDATES_MAX))
        for connection in candidates:
            del largest.connections[connection]
            largest.connections[connection] = None
        return max(candidates, key=lambda connection: connection.idle_ticks)
