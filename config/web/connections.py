"""Open connections by client, and the choice of one to close when a new one arrives. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from config.web.deadlines import ConnectionPhase
from config.web.limits import CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX


class Held(Protocol):
    """Attributes of a connection that are used here."""

    client: str
    is_proxy: bool
    phase: ConnectionPhase
    since_s: float

    @property
    def held_bytes(self) -> int: ...


One = TypeVar("One", bound=Held)


class Connections(Generic[One]):
    """Connections with limits. A new connection is accepted unless all others are working: idle or slow ones are
    closed.

    Connections of trusted proxies carry many clients and count towards the total only.
    """

    def __init__(self, *, total_max: int = CONNECTIONS_MAX, per_address_max: int = CONNECTIONS_PER_ADDRESS_MAX) -> None:
        self._total_max = total_max
        self._per_address_max = per_address_max
        self._by_client: dict[str, set[One]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[One]:
        for held in list(self._by_client.values()):
            yield from list(held)

    def add(self, one: One) -> None:
        self._by_client.setdefault(one.client, set()).add(one)
        self._count += 1

    def remove(self, one: One) -> None:
        """Removes a connection; idempotent."""
        held = self._by_client.get(one.client)
        if held is None or one not in held:
            return
        held.remove(one)
        self._count -= 1
        if not held:
            del self._by_client[one.client]

    def is_over(self, client: str, *, is_proxy: bool) -> bool:
        """True if a connection must be closed after `client` has opened one more."""
        if self._count > self._total_max:
            return True
        return not is_proxy and len(self._by_client.get(client, ())) > self._per_address_max

    def victim(self, newcomer: One) -> One | None:
        """Returns the connection to close for `newcomer`: one of its client, or of the client with most.

        None stands for the newcomer itself.
        """
        own = self._by_client.get(newcomer.client, set())
        if newcomer.is_proxy or len(own) <= self._per_address_max:
            own = self.most()
        return self.stalest(own, newcomer)

    def most(self) -> set[One]:
        """Returns the connections of the client with most of them; of proxies only if there are no others."""
        return max(self._by_client.values(), key=lambda held: (not next(iter(held)).is_proxy, len(held)), default=set())

    @staticmethod
    def stalest(held: set[One], newcomer: One | None = None) -> One | None:
        """Returns the first connection to close: idle ones, then the one longest in its phase; never a working one."""
        idle = (one for one in held if one is not newcomer and one.phase is not ConnectionPhase.WORK)
        return min(idle, key=lambda one: (min(one.phase, ConnectionPhase.HEAD), one.since_s), default=None)

    def heaviest(self) -> One | None:
        """Returns the connection with the most buffered bytes that is not working; of several the one longest in its
        phase.
        """
        others = (one for one in self if one.phase is not ConnectionPhase.WORK and one.held_bytes)
        return max(others, key=lambda one: (one.held_bytes, -one.since_s), default=None)
