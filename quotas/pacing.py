"""An even pace: the second half of a byte limit, which keeps short averages true as well. Pure; the caller owns the
clock.

Kafka's window (`quotas.rates`) lets a client that was idle send ten seconds' worth at once. A pace owes time
instead: each byte takes 1/limit seconds, and whoever is ahead of the clock waits. Idle time is worth at most
`burst_ms`.
"""

from __future__ import annotations

from math import ceil

from quotas.throttle import DELAY_MS_MAX

BURST_MS = 150
# What one fetch may bring is worth at most this long, so that no reader is silent for longer than that.
FETCH_MS_MAX = 1_000
# A limit of zero: whoever sends anything waits this long, as with Kafka's window.
BLOCKED_MS = 11_000


class Pace:
    """`due_ms`: when everything charged so far is paid for, under the limit of its time; `raised` says that there is
    more to pay with.
    """

    __slots__ = ("burst_ms", "due_ms")

    def __init__(self, burst_ms: int = BURST_MS) -> None:
        assert burst_ms >= 0, "a burst lasts some time or none"
        self.burst_ms = burst_ms
        self.due_ms = float("-inf")

    def charge(self, amount: int, limit_per_s: float, now_ms: int) -> int:
        """Takes `amount` on and answers how long to wait, in whole milliseconds."""
        if amount <= 0:
            return self.debt_ms(now_ms)
        if limit_per_s <= 0:
            return BLOCKED_MS
        earliest_ms = now_ms - self.burst_ms
        due_ms = self.due_ms if self.due_ms > earliest_ms else float(earliest_ms)
        self.due_ms = due_ms + amount * 1000 / limit_per_s
        return self.debt_ms(now_ms)

    def pay_off(self, now_ms: int) -> None:
        """Drops what is still owed: something else has paid for it."""
        if self.due_ms > now_ms:
            self.due_ms = float(now_ms)

    def raised(self, before_per_s: float, limit_per_s: float, now_ms: int) -> None:
        """What is owed is owed in bytes: whoever may send a thousand times as much has paid in a thousandth of the time
        (QUO-7). A lowered limit leaves what is owed as it is, and counts from the next charge on.
        """
        if 0 < before_per_s < limit_per_s and self.due_ms > now_ms:
            self.due_ms = now_ms + (self.due_ms - now_ms) * before_per_s / limit_per_s

    def debt_ms(self, now_ms: int) -> int:
        """How long to wait before anything more."""
        debt_ms = self.due_ms - now_ms
        return 0 if debt_ms <= 0 else min(ceil(debt_ms), DELAY_MS_MAX)


def fetch_cap_bytes(limit_per_s: float) -> int:
    """What one fetch may bring at this pace."""
    return int(limit_per_s * FETCH_MS_MAX / 1000)
