"""I/O throttling of a run (CMP-28): reads and writes share one rate limit, measured over short intervals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

INTERVAL_S: Final = 0.3


class Pacer:
    """Rate limiter: `spend` waits if the last interval exceeded the limit; `clock` returns seconds."""

    def __init__(self, bytes_per_s: float, clock: Callable[[], float], wait: Callable[[float], None]) -> None:
        """Starts the first interval; a `bytes_per_s` of 0 means no limit."""
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._wait = wait
        self._since = clock()
        self._bytes = 0
        self.total_bytes = 0
        self.waited_s = 0.0

    def spend(self, count: int) -> None:
        """Accounts for `count` bytes read or written, and waits if the limit is exceeded."""
        self.total_bytes += count
        if not self._bytes_per_s:
            return
        self._bytes += count
        elapsed = self._clock() - self._since
        due = self._bytes / self._bytes_per_s
        if elapsed < INTERVAL_S and due < INTERVAL_S:
            return
        if due > elapsed:
            self._wait(due - elapsed)
            self.waited_s += due - elapsed
        self._since = self._clock()
        self._bytes = 0
