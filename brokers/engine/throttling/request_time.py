"""Limit on the event-loop time of an instance's requests other than Produce and Fetch, which are charged in bytes
(QUO-21, per instance).

An instance may use a quarter of a broker's event loop for them. Time beyond that is paid for by waiting: a long request
waits between two of its steps, other requests after their response, which has the delay as `throttle_time_ms`.
"""

from __future__ import annotations

from typing import Final

from brokers.engine.throttling.charging import Rule
from quotas.pacing import Pace

RULE: Final = Rule("request_time", "request_time", None, None)
US_PER_S: Final = 1_000_000
# Percentage of one broker's event loop that an instance may use.
REQUEST_TIME_PERCENT: Final = 25
# Maximum burst after idle time, for clients that send many requests when they start.
REQUEST_TIME_BURST_MS: Final = 400
# Percentage at which time of a thread is charged: it leaves the event loop free while it decompresses.
THREAD_TIME_PERCENT: Final = 50


class RequestTime:
    """Request time of one instance on this broker. `used_us` is the total that was charged."""

    __slots__ = ("_pace", "used_us")

    def __init__(self, burst_ms: int = REQUEST_TIME_BURST_MS) -> None:
        self._pace = Pace(burst_ms)
        self.used_us = 0

    def charge(self, spent_us: int, now_ms: int) -> int:
        """Charges event-loop time and returns the delay in milliseconds. `now_ms` is monotonic."""
        self.used_us += spent_us
        return self._pace.charge(spent_us, US_PER_S * REQUEST_TIME_PERCENT / 100, now_ms)

    def charge_thread(self, spent_us: int, now_ms: int) -> int:
        """Charges time that a thread took and returns the delay in milliseconds. `now_ms` is monotonic."""
        return self.charge(spent_us * THREAD_TIME_PERCENT // 100, now_ms)

    def debt_ms(self, now_ms: int) -> int:
        """Returns the time until all charged time is paid for, in milliseconds."""
        return self._pace.debt_ms(now_ms)
