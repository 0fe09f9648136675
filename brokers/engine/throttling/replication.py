"""How fast throttled replicas are copied (QUO-60 to QUO-62). Pure: the clock is handed in.

A leader answers such a replica with nothing, a follower leaves it out of its requests, for as long as more was copied
than the limit allows. Only bytes of throttled replicas count, so that what keeps up with its leader is never held up.
"""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_MS: Final = 1_000
WINDOWS: Final = 11
UNLIMITED: Final = 2**63 - 1
# Nobody is told to come back later than this: by then the rate may be another.
DELAY_MS_MAX: Final = 1_000


class ReplicationThrottle:
    """One direction of one broker. The rate is what was copied since the oldest sample, over at least one window
    (QUO-62).
    """

    __slots__ = ("_samples", "_total", "limit_bytes_per_s")

    def __init__(self, limit_bytes_per_s: int = UNLIMITED) -> None:
        self.limit_bytes_per_s = limit_bytes_per_s
        # Start of each window, and the bytes in it.
        self._samples: deque[list[int]] = deque()
        self._total = 0

    @property
    def is_limited(self) -> bool:
        return self.limit_bytes_per_s < UNLIMITED

    def record(self, count: int, now_ms: int) -> None:
        """`count` bytes of throttled replicas were copied."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= WINDOW_MS:
            samples.append([now_ms, 0])
        samples[-1][1] += count
        self._total += count
        self._purge(now_ms)

    def _purge(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= WINDOWS * WINDOW_MS:
            self._total -= samples.popleft()[1]

    def delay_ms(self, now_ms: int) -> int:
        """How long to copy nothing more; 0 while the rate is within the limit."""
        self._purge(now_ms)
        if not self._samples or not self.is_limited:
            return 0
        elapsed_ms = max(now_ms - self._samples[0][0], WINDOW_MS)
        excess_ms = -(-self._total * 1_000 // max(self.limit_bytes_per_s, 1)) - elapsed_ms
        return min(excess_ms, DELAY_MS_MAX) if excess_ms > 0 else 0

    def is_exceeded(self, now_ms: int) -> bool:
        return self.delay_ms(now_ms) > 0
