"""Brokers that recently did not answer in time: they are queried last, with a short timeout.

A stopped process accepts connections and does not answer, so every page that needs one of several brokers would wait
for it again. The addresses are stored in the memory of each web process and worker; a response removes the entry
immediately.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from brokers.limits import SILENCE_REMEMBERED_S

Address = tuple[str, int]


class UnresponsiveBrokers:
    """Addresses of brokers, with the time (monotonic seconds) until which they count as unresponsive."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until_s: dict[Address, float] = {}

    def mark_unresponsive(self, address: Address) -> None:
        """Records that the broker did not answer in time."""
        self._until_s[address] = self._clock() + SILENCE_REMEMBERED_S

    def mark_responsive(self, address: Address) -> None:
        """Records that the broker answered."""
        self._until_s.pop(address, None)

    def is_unresponsive(self, address: Address) -> bool:
        """True if the broker was recently unresponsive."""
        return self._until_s.get(address, 0.0) > self._clock()

    def clear_all(self) -> None:
        self._until_s.clear()


unresponsive_brokers = UnresponsiveBrokers()
