"""Limits of an instance's requests by event-loop time (QUO-21, per instance) and by changes in ZooKeeper (QUO-40,
KIP-599), on one broker.

Produce and Fetch are charged in bytes. For all other requests an instance may use a quarter of a broker's event loop.
Time beyond that is paid for by waiting: a long request waits between two of its steps, other requests after their
response, which has the delay as `throttle_time_ms`.

A change costs the number of partitions that it creates, adds or deletes; a change of a configuration or a client quota
costs 1. A change that begins while tokens are left is carried out in full, and the next one waits until the debt is
paid. The `controller_mutation_rate` that the instance's owner sets for single clients is a separate limit.
"""

from __future__ import annotations

from typing import Final

from brokers.contract.instance_limits import CHANGES_BURST, CHANGES_PER_S_MAX
from brokers.engine.throttling.charging import Rule
from quotas.pacing import Pace
from quotas.token_bucket import TokenBucket

REQUEST_TIME_RULE: Final = Rule("request_time", "request_time", None, None)
US_PER_S: Final = 1_000_000
# Percentage of one broker's event loop that an instance may use.
REQUEST_TIME_PERCENT: Final = 25
# Maximum burst after idle time, for clients that send many requests when they start.
REQUEST_TIME_BURST_MS: Final = 400
# Percentage at which time of a thread is charged: it leaves the event loop free while it decompresses.
THREAD_TIME_PERCENT: Final = 50
# Tokens of a burst that are spent without a pause after each change.
UNPAUSED_TOKENS: Final = 100
PAUSE_MS_MAX: Final = 50
CHANGE_RATE_RULE: Final = Rule("change_rate", "change_rate", None, None)


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


class ChangeRate(TokenBucket):
    """Token bucket of an instance's changes. Times are monotonic milliseconds."""

    __slots__ = ()

    def __init__(self, per_s: float = CHANGES_PER_S_MAX, burst: float = CHANGES_BURST) -> None:
        super().__init__(per_s, burst)

    def pause_ms(self, began_ms: int, ended_ms: int) -> int:
        """Returns the pause after a change in milliseconds, which lets other instances proceed.

        It is 0 for the first `UNPAUSED_TOKENS` of a burst, then the duration of the change, up to `PAUSE_MS_MAX`.
        """
        if self._tokens > self._burst - UNPAUSED_TOKENS:
            return 0
        return max(0, min(ended_ms - began_ms, PAUSE_MS_MAX))
