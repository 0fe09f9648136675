"""Limits of connections: their number by instance, by address and of the broker (QUO-50), and the rate of new ones
(QUO-51). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quotas.pacing import Pace

# Connections of one second may arrive at once, since disconnected clients reconnect together.
CREATION_BURST_MS: Final = 1_000
# Maximum pause of accepting; then one more connection is accepted.
PACED_MS_MAX: Final = 1_000

# Causes of refused connections.
INSTANCE: Final = "instance"
ADDRESS: Final = "address"
BROKER: Final = "broker"
ROUTE: Final = "route"
ALLOW_LIST: Final = "allow_list"
ADDRESS_RATE: Final = "address_rate"
REFUSALS: Final = (INSTANCE, ADDRESS, BROKER, ROUTE, ALLOW_LIST, ADDRESS_RATE)
# Causes whose connections are charged to the instance's turn, but not to its rate of new connections.
UNPACED: Final = frozenset({ALLOW_LIST, ADDRESS_RATE})


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of connections. `sweep_ms` is the interval of `Listeners.sweep`; idle time is counted in sweeps."""

    connections_max: int
    connections_per_listener_max: int
    idle_ms_max: int
    connections_per_address_max: int
    creations_per_s_max: int
    creations_per_listener_per_s_max: int
    sweep_ms: int = 10_000


class Addresses:
    """Numbers of connections of one instance by client address."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def count(self, address: str) -> int:
        return self._counts.get(address, 0)

    def add(self, address: str) -> None:
        self._counts[address] = self._counts.get(address, 0) + 1

    def remove(self, address: str) -> None:
        left = self._counts[address] - 1
        if left:
            self._counts[address] = left
        else:
            del self._counts[address]


class CreationPace:
    """Rate limit for accepting, of one listener or of all together."""

    __slots__ = ("_pace", "_per_s")

    def __init__(self, per_s: int) -> None:
        self._pace = Pace(CREATION_BURST_MS)
        self._per_s = per_s

    def charge(self, now_ms: int) -> int:
        """Counts an accepted connection. Returns the time for which no other is accepted, in ms."""
        return min(self._pace.charge(1, self._per_s, now_ms), PACED_MS_MAX)
