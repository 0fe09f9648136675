"""When a delivery is tried again, and when nobody tries any more: pure."""

from __future__ import annotations

from datetime import timedelta

# After the first try, the second, and so on; the last one ends it.
WAITS = tuple(timedelta(seconds=seconds) for seconds in (10, 60, 300, 1_800, 7_200, 21_600, 43_200, 86_400))
ATTEMPTS_MAX = len(WAITS) + 1
# So many deliveries in a row that came to nothing, and the endpoint is left alone until somebody turns it on again.
FAILED_IN_A_ROW_MAX = 5


def wait_after(attempts: int) -> timedelta | None:
    """After so many tries; None: it is given up."""
    return WAITS[attempts - 1] if attempts < ATTEMPTS_MAX else None


def is_taken(status: int) -> bool:
    """Any answer of 200 to 299."""
    return 200 <= status < 300
