"""Token bucket with which Kafka measures the rate of changes by the controller (QUO-40…42). Pure.

The caller provides the clock. An operation that begins while tokens are left is executed completely, so the number of
tokens may become negative. The next operation is refused or delayed until the number is zero again.
"""

from __future__ import annotations

from math import floor

from quotas.pacing import BLOCKED_MS
from quotas.throttle import DELAY_MS_MAX


class TokenBucket:
    """Token bucket, initially full, to which `per_s` tokens a second are added up to `burst`.

    Times are milliseconds of a monotonic clock.
    """

    __slots__ = ("_burst", "_per_s", "_tokens", "_updated_ms")

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = float(burst)
        self._updated_ms = 0

    def change(self, per_s: float, burst: float) -> None:
        """Changes rate and burst from the last charge on; the debt stays and is paid at the new rate (QUO-7)."""
        self._per_s, self._burst = per_s, burst
        self._tokens = min(self._tokens, burst)

    def is_exhausted(self, now_ms: int) -> bool:
        """True if an earlier operation must be paid for first. A rate of zero blocks all operations."""
        self._refill(now_ms)
        return self._tokens < 0 or self._per_s <= 0

    def wait_ms(self, now_ms: int) -> int:
        """Returns the time in milliseconds until everything charged so far is paid for."""
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
