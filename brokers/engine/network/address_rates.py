"""Rates of new connections from each address of an instance's clients (QUO-52). Pure."""

from __future__ import annotations

from typing import Final

from quotas import throttle
from quotas.rates import WINDOW_COUNT, WINDOW_MS, Rate

# Addresses of one instance with a counter of their own; all others share one.
ADDRESSES_MAX: Final = 1_000
# Age at which a counter is empty.
FORGOTTEN_MS: Final = (WINDOW_COUNT + 1) * WINDOW_MS
# Number of expired counters that one new address removes.
FORGOTTEN_AT_ONCE: Final = 2


class AddressRates:
    """Counters of one instance, the most recently used last."""

    __slots__ = ("_counters", "_others")

    def __init__(self) -> None:
        self._counters: dict[str, tuple[Rate, int]] = {}
        self._others = Rate()

    def __len__(self) -> int:
        return len(self._counters)

    def charge(self, address: str, limit_per_s: float, now_ms: int) -> int:
        """Counts a connection from the address. Returns 0 if it may enter; otherwise it is not counted, and is closed
        after the returned number of ms.
        """
        rate = self._rate(address, now_ms)
        delay_ms = throttle.charge(rate, 1, limit_per_s, now_ms)
        if not delay_ms:
            return 0
        rate.record(-1, now_ms)
        return min(delay_ms, WINDOW_MS)

    def _rate(self, address: str, now_ms: int) -> Rate:
        known = self._counters.pop(address, None)
        if known is None:
            self._forget(now_ms)
            if len(self._counters) >= ADDRESSES_MAX:
                return self._others
        rate = Rate() if known is None else known[0]
        self._counters[address] = rate, now_ms
        return rate

    def _forget(self, now_ms: int) -> None:
        for _ in range(min(FORGOTTEN_AT_ONCE, len(self._counters))):
            address = next(iter(self._counters))
            if now_ms - self._counters[address][1] < FORGOTTEN_MS:
                return
            del self._counters[address]
