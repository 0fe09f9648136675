"""How much clients would move if their limit let them: what they moved, and what had to wait. Pure.

Nobody counts what is not sent: a client that is told to wait sends nothing meanwhile. But it says how fast it is while
it does not wait. A client that moved A bytes in an interval, and waited for the part f of it, moved them in what is
left: without waiting it would have moved A / (1 - f). For one client that sends the next request as soon as the last
one is answered that is exact. Of many clients somebody waits all the time, and f says only that they want much more: so
the part without waiting counts as a sixteenth of the interval at least. A share that is too small by more than that
grows to what is wanted in two steps.

Where a large request is paid for over several intervals, nothing is admitted in them: who waited for part f of an
interval has used its share for that long.
"""

from __future__ import annotations

from typing import Final

# Of an interval, so much at least counts as free of waiting: 1 in so many parts.
FREE_PART: Final = 16


def wanted_bps(admitted_bps: int, waited_ms: int, interval_ms: int, share_bps: int) -> int:
    """At least `admitted_bps`. `waited_ms`: for how long in the interval somebody waited for this limit, with the share
    that was in force.
    """
    if waited_ms <= 0:
        return admitted_bps
    waited_ms = min(waited_ms, interval_ms)
    moved_bps = max(admitted_bps, share_bps * waited_ms // interval_ms)
    free_ms = max(interval_ms - waited_ms, -(-interval_ms // FREE_PART))
    return max(admitted_bps, moved_bps * interval_ms // free_ms)
