"""Replication throttle: the rate at which throttled replicas are copied (QUO-60 to QUO-62). Pure.

While the rate is above the limit, a leader returns no records for a throttled replica, and a follower leaves it out of
its fetches. Only bytes of throttled replicas count, so replicas that keep up with their leaders are never delayed.

Batches are copied whole and may be larger than a low limit allows in all windows together. The excess is owed until it
is paid for by waiting, even after its window is dropped.
"""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_MS: Final = 1_000
WINDOWS: Final = 11
UNLIMITED: Final = 2**63 - 1
# Maximum delay; the limit may have changed by then.
DELAY_MS_MAX: Final = 1_000
# A replica gets at most the limit of one second divided by this at once; a larger batch is sent alone.
CHUNKS_PER_S: Final = 2


class ReplicationThrottle:
    """Replication throttle of one direction of one broker.

    The rate is the number of bytes copied since the oldest sample, divided by that time or by one window if that is
    longer (QUO-62).
    """

    __slots__ = ("_limit", "_owed_bytes", "_samples", "_total_bytes")

    def __init__(self, limit_bytes_per_s: int = UNLIMITED) -> None:
        self._limit = limit_bytes_per_s
        # Start of each window, the bytes copied in it, and the owed part of these.
        self._samples: deque[list[int]] = deque()
        self._total_bytes = 0
        # Bytes owed from windows before the oldest sample.
        self._owed_bytes = 0

    @property
    def limit_bytes_per_s(self) -> int:
        return self._limit

    @limit_bytes_per_s.setter
    def limit_bytes_per_s(self, limit: int) -> None:
        """Sets another limit, against which the bytes in the windows count at once (QUO-7).

        A lower limit scales the debt down, so that paying it takes the same time.
        """
        previous_limit, self._limit = self._limit, limit
        if limit < previous_limit:
            self._owed_bytes = self._owed_bytes * limit // previous_limit
            for sample in self._samples:
                sample[2] = sample[2] * limit // previous_limit

    @property
    def is_limited(self) -> bool:
        return self._limit < UNLIMITED

    @property
    def chunk_bytes(self) -> int:
        """Maximum number of bytes of one replica to copy at once."""
        return max(1, self._limit // CHUNKS_PER_S)

    def record(self, copied_bytes: int, now_ms: int) -> None:
        """Records that `copied_bytes` bytes of throttled replicas were copied."""
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= WINDOW_MS:
            samples.append([now_ms, 0, 0])
        newest = samples[-1]
        newest[1] += copied_bytes
        newest[2] += copied_bytes
        self._total_bytes += copied_bytes
        self._purge(now_ms)

    def _purge(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= WINDOWS * WINDOW_MS:
            began_ms, copied_bytes, owed_bytes = samples.popleft()
            self._total_bytes -= copied_bytes
            until_ms = samples[0][0] if samples else now_ms
            self._owed_bytes = max(0, self._owed_bytes + owed_bytes - self._limit * (until_ms - began_ms) // 1_000)
            if self._owed_bytes and not samples:
                samples.append([now_ms, 0, 0])

    def delay_ms(self, now_ms: int) -> int:
        """Returns the time to copy nothing, in milliseconds; 0 while the rate is within the limit."""
        self._purge(now_ms)
        if not self._samples or not self.is_limited:
            return 0
        elapsed_ms = max(now_ms - self._samples[0][0], WINDOW_MS)
        excess_ms = -(-(self._total_bytes + self._owed_bytes) * 1_000 // max(self._limit, 1)) - elapsed_ms
        return min(excess_ms, DELAY_MS_MAX) if excess_ms > 0 else 0

    def is_exceeded(self, now_ms: int) -> bool:
        return self.delay_ms(now_ms) > 0
