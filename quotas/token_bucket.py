"""A token bucket, as Kafka measures the rate of changes by the controller (QUO-40…42). Pure; the caller owns the clock.

What begins while there are tokens left is done in full, so the tokens may be below zero after it: what comes next waits
until that is paid for.
"""

from __future__ import annotations

from math import floor

from quotas.pacing import BLOCKED_MS
from quotas.throttle import DELAY_MS_MAX


class TokenBucket:
    """Full at first. Times are milliseconds of a clock that never runs backwards."""

    __slots__ = ("_burst", "_per_s", "_tokens", "_updated_ms")

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = float(burst)
        self._updated_ms = 0

    def change(self, per_s: float, burst: float) -> None:
        """What holds since the last charge: what is owed by then stays, and is paid for at this rate (QUO-7)."""
        self._per_s, self._burst = per_s, burst
        self._tokens = min(self._tokens, burst)

    def is_exhausted(self, now_ms: int) -> bool:
        """Whether something done before has to be paid for first. A rate of zero lets nothing begin."""
        self._refill(now_ms)
        return self._tokens < 0 or self._per_s <= 0

    def wait_ms(self, now_ms: int) -> int:
        """Until everything charged so far is paid for."""
        self._refill(now_ms)
        if self._per_s <= 0:
            return BLOCKED_MS
        if self._tokens >= 0:
            return 0
        wait_ms = -self._tokens * 1000 / self._per_s
        return DELAY_MS_MAX if wait_ms >= DELAY_MS_MAX else floor(wait_ms + 0.5)

    def charge(self, cost: float, now_ms: int) -> None:
        self._refill(now_ms)
        self._tokens -= cost

    def _refill(self, now_ms: int) -> None:
        if now_ms > self._updated_ms:
            self._tokens = min(self._burst, self._tokens + (now_ms - self._updated_ms) * self._per_s / 1000)
            self._updated_ms = now_ms
