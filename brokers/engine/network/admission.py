"""Who may come in: how many connections an instance, an address and the broker have (QUO-50), and how fast new ones are
accepted (QUO-51). Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quotas.pacing import Pace

# A second of creations may come at once: clients that were cut off come back together.
CREATION_BURST_MS: Final = 1_000
# The longest time that a listener is not accepted from; then one more comes in.
PACED_MS_MAX: Final = 1_000

# Why a connection is refused.
INSTANCE: Final = "instance"
ADDRESS: Final = "address"
BROKER: Final = "broker"
ROUTE: Final = "route"
ALLOW_LIST: Final = "allow_list"
ADDRESS_RATE: Final = "address_rate"
REFUSALS: Final = (INSTANCE, ADDRESS, BROKER, ROUTE, ALLOW_LIST, ADDRESS_RATE)
# They take their time of the instance's turn, and no place among its new connections.
UNPACED: Final = frozenset({ALLOW_LIST, ADDRESS_RATE})


@dataclass(frozen=True, slots=True)
class Limits:
    """`sweep_ms` is how often `Listeners.sweep` is called; idle time is counted in sweeps."""

    connections_max: int
    connections_per_listener_max: int
    idle_ms_max: int
    connections_per_address_max: int
    creations_per_s_max: int
    creations_per_listener_per_s_max: int
    sweep_ms: int = 10_000


class Addresses:
    """Connections of one instance by the address they come from."""

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
    """How fast a listener, or all of them together, may accept."""

    __slots__ = ("_pace", "_per_s")

    def __init__(self, per_s: int) -> None:
        self._pace = Pace(CREATION_BURST_MS)
        self._per_s = per_s

    def charge(self, now_ms: int) -> int:
        """One more was accepted; how long to accept no other, in milliseconds."""
        return min(self._pace.charge(1, self._per_s, now_ms), PACED_MS_MAX)
