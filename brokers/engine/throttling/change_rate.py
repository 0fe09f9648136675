"""How fast an instance may change what is in ZooKeeper: a token bucket (QUO-40, KIP-599), per instance and broker.

A change costs the partitions that it makes, adds or deletes; one of a configuration or a client quota costs 1. What
begins with tokens left is done in full, and the next change waits until what it took too much is paid for.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from brokers.contract.instance_limits import CHANGES_BURST, CHANGES_PER_S_MAX
from brokers.engine.throttling.charging import Rule

RULE: Final = Rule("change_rate", "change_rate", None, None)


class ChangeRate:
    """Times are monotonic milliseconds."""

    __slots__ = ("_burst", "_per_s", "_tokens", "_updated_ms")

    def __init__(self, per_s: float = CHANGES_PER_S_MAX, burst: float = CHANGES_BURST) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = float(burst)
        self._updated_ms = 0

    def wait_ms(self, now_ms: int) -> int:
        """Until the next change may begin."""
        self._refill(now_ms)
        return ceil(-self._tokens * 1000 / self._per_s) if self._tokens < 0 else 0

    def charge(self, cost: int, now_ms: int) -> None:
        self._refill(now_ms)
        self._tokens -= cost

    def _refill(self, now_ms: int) -> None:
        if now_ms > self._updated_ms:
            self._tokens = min(self._burst, self._tokens + (now_ms - self._updated_ms) * self._per_s / 1000)
            self._updated_ms = now_ms
