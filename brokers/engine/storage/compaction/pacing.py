"""I/O throttling of a run (CMP-28): reads and writes share one rate limit, measured over short intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

INTERVAL_S: Final = 0.3


class Pacer:
    """Rate limiter: `spend` waits if the last interval exceeded the limit; `clock` returns seconds."""

    def __init__(self, bytes_per_s: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        """Starts the first interval; a `bytes_per_s` of 0 means no limit."""
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._interval_began_s = clock()
        self._bytes = 0
        self.total_bytes = 0
        self.waited_s = 0.0

    def spend(self, byte_count: int) -> None:
        """Accounts for `byte_count` bytes read or written, and waits if the limit is exceeded."""
        self.total_bytes += byte_count
        if not self._bytes_per_s:
            return
        self._bytes += byte_count
        elapsed_s = self._clock() - self._interval_began_s
        due_s = self._bytes / self._bytes_per_s
        if elapsed_s < INTERVAL_S and due_s < INTERVAL_S:
            return
        if due_s > elapsed_s:
            self._sleep(due_s - elapsed_s)
            self.waited_s += due_s - elapsed_s
        self._interval_began_s = self._clock()
        self._bytes = 0
