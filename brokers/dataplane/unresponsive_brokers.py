"""Which brokers did not answer in time a moment ago: they are asked last and waited for briefly.

A process that stands still accepts connections and says nothing, so every page that needs one of several brokers would
wait for it anew. Kept in memory of each web process and worker, by address; an answer clears it at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from brokers.limits import SILENCE_REMEMBERED_S

Address = tuple[str, int]


class UnresponsiveBrokers:
    """Addresses of brokers with the moment (monotonic seconds) until which they count as silent."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until_s: dict[Address, float] = {}

    def note(self, address: Address) -> None:
        """The broker let a request wait."""
        self._until_s[address] = self._clock() + SILENCE_REMEMBERED_S

    def clear(self, address: Address) -> None:
        """The broker answered."""
        self._until_s.pop(address, None)

    def holds(self, address: Address) -> bool:
        """Whether the broker was silent a moment ago."""
        return self._until_s.get(address, 0.0) > self._clock()

    def clear_all(self) -> None:
        self._until_s.clear()


unresponsive_brokers = UnresponsiveBrokers()
