"""How fast connections come from each address of an instance's clients (QUO-52). Pure."""

from __future__ import annotations

from typing import Final

from quotas import throttle
from quotas.rates import WINDOW_COUNT, WINDOW_MS, Rate

# Addresses of one instance with a counter of their own; whoever comes beyond shares one.
ADDRESSES_MAX: Final = 1_000
# After that a counter has nothing in it.
FORGOTTEN_MS: Final = (WINDOW_COUNT + 1) * WINDOW_MS
# Of counters that are forgotten, those that one new address takes out.
FORGOTTEN_AT_ONCE: Final = 2


class AddressRates:
    """The counters of one instance, those used last at the end."""

    __slots__ = ("_counters", "_others")

    def __init__(self) -> None:
        self._counters: dict[str, tuple[Rate, int]] = {}
        self._others = Rate()

    def __len__(self) -> int:
        return len(self._counters)

    def charge(self, address: str, limit_per_s: float, now_ms: int) -> int:
        """One more came from there. 0: it may come in; otherwise it does not count, and waits so many milliseconds for
        its end.
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
