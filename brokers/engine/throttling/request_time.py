"""How long an instance's requests may keep a broker busy: all but those of Produce and Fetch, which are paid for in
bytes (QUO-21, per instance).

An instance may use a quarter of a broker's time for them. Whoever used more waits until it is paid for: a long request
between two of its pieces, others after their answer, which says how long (`throttle_time_ms`).
"""

from __future__ import annotations

from typing import Final

from brokers.engine.throttling.charging import Rule
from quotas.pacing import Pace

RULE: Final = Rule("request_time", "request_time", None, None)
US_PER_S: Final = 1_000_000
# Of one broker's event loop.
REQUEST_TIME_PERCENT: Final = 25
# Unused time is worth so long at most: a client that starts asks for many things at once.
REQUEST_TIME_BURST_MS: Final = 400
# A thread that checks or converts batches leaves the loop to others while it inflates.
THREAD_TIME_PERCENT: Final = 50


class RequestTime:
    """Of one instance on this broker. `used_us`: all that was charged."""

    __slots__ = ("_pace", "used_us")

    def __init__(self, burst_ms: int = REQUEST_TIME_BURST_MS) -> None:
        self._pace = Pace(burst_ms)
        self.used_us = 0

    def charge(self, spent_us: int, now_ms: int) -> int:
        """How long to wait, in milliseconds. `now_ms` is monotonic."""
        self.used_us += spent_us
        return self._pace.charge(spent_us, US_PER_S * REQUEST_TIME_PERCENT / 100, now_ms)

    def charge_thread(self, spent_us: int, now_ms: int) -> int:
        """The same of time that a thread took."""
        return self.charge(spent_us * THREAD_TIME_PERCENT // 100, now_ms)

    def debt_ms(self, now_ms: int) -> int:
        """How long to wait before anything more."""
        return self._pace.debt_ms(now_ms)
