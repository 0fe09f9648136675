"""Estimate of demand: the rate that clients would reach without their limit. Pure.

Demand cannot be counted, because a throttled client sends nothing while it waits. It is estimated from the time without
waiting: a client that moved A bytes in an interval and waited for the fraction f of it would have moved A / (1 - f)
without the limit. That is exact for one client that sends its next request as soon as the last one is answered. With
many clients there is a waiting one almost all the time, and f only shows that demand is much higher; the time without
waiting is therefore taken to be at least one sixteenth of the interval. A share that is too small by a larger factor
reaches the demand in two steps.

While a large request is paid for over several intervals, nothing is admitted in them; a client that waited for the
fraction f of an interval counts as having used its share for that time.
"""

from __future__ import annotations

from typing import Final

# The time without waiting is taken to be at least the interval divided by this.
FREE_DIVISOR: Final = 16


def estimate_demand_bps(admitted_bps: int, waited_ms: int, interval_ms: int, share_bps: int) -> int:
    """Returns the estimated demand, at least `admitted_bps`.

    `waited_ms` is the part of the interval in which a client waited for this limit, with `share_bps` in force.
    """
    if waited_ms <= 0:
        return admitted_bps
    waited_ms = min(waited_ms, interval_ms)
    moved_bps = max(admitted_bps, share_bps * waited_ms // interval_ms)
    free_ms = max(interval_ms - waited_ms, -(-interval_ms // FREE_DIVISOR))
    return max(admitted_bps, moved_bps * interval_ms // free_ms)
