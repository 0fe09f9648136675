"""Pacing of a byte rate limit over short times, in addition to Kafka's window. Pure; the caller provides the clock.

Kafka's window (`quotas.rates`) lets an idle client send the bytes of ten seconds at once. A pace prevents that: each
byte takes 1/limit seconds, and a client that is ahead of the clock is delayed. A burst after idle time is limited to
the bytes of `burst_ms`.
"""

from __future__ import annotations

from math import ceil

from quotas.throttle import DELAY_MS_MAX

BURST_MS = 150
# A single fetch is limited to the bytes of this time, so that no consumer is delayed for longer.
FETCH_MS_MAX = 1_000
# Delay for a limit of zero, as with Kafka's window.
BLOCKED_MS = 11_000


class Pace:
    """Pace of one counter. At the time `due_ms`, everything charged so far is paid for at the current limit."""

    __slots__ = ("burst_ms", "due_ms")

    def __init__(self, burst_ms: int = BURST_MS) -> None:
        assert burst_ms >= 0, "burst_ms must not be negative"
        self.burst_ms = burst_ms
        self.due_ms = float("-inf")

    def charge(self, amount: int, limit_per_s: float, now_ms: int) -> int:
        """Charges `amount` and returns the delay in whole milliseconds."""
        if amount <= 0:
            return self.debt_ms(now_ms)
        if limit_per_s <= 0:
            return BLOCKED_MS
        earliest_ms = now_ms - self.burst_ms
        due_ms = self.due_ms if self.due_ms > earliest_ms else float(earliest_ms)
        self.due_ms = due_ms + amount * 1000 / limit_per_s
        return self.debt_ms(now_ms)

    def cancel_debt(self, now_ms: int) -> None:
        """Cancels the remaining debt; called if the client was delayed for another reason."""
        if self.due_ms > now_ms:
            self.due_ms = float(now_ms)

    def convert_debt(self, previous_limit_per_s: float, limit_per_s: float, now_ms: int) -> None:
        """Shortens the debt after a limit was raised.

        The debt is a number of bytes, so a client whose limit is a thousand times higher pays it in a thousandth of the
        time (QUO-7). A lowered limit does not change the debt; it applies from the next charge on.
        """
        if 0 < previous_limit_per_s < limit_per_s and self.due_ms > now_ms:
            self.due_ms = now_ms + (self.due_ms - now_ms) * previous_limit_per_s / limit_per_s

    def debt_ms(self, now_ms: int) -> int:
        """Returns the delay in whole milliseconds until the client may send again."""
        debt_ms = self.due_ms - now_ms
        return 0 if debt_ms <= 0 else min(ceil(debt_ms), DELAY_MS_MAX)


def fetch_cap_bytes(limit_per_s: float) -> int:
    """Returns the maximum size of one fetch in bytes at this pace."""
    return int(limit_per_s * FETCH_MS_MAX / 1000)
