"""Decides when a delivery is retried, and when it has succeeded or failed. Pure."""

from __future__ import annotations

from datetime import timedelta

# Delays after the first, second, … attempt; after the last attempt the delivery has failed.
RETRY_DELAYS = tuple(timedelta(seconds=seconds) for seconds in (10, 60, 300, 1_800, 7_200, 21_600, 43_200, 86_400))
ATTEMPTS_MAX = len(RETRY_DELAYS) + 1
# Number of consecutive failed deliveries after which the endpoint is turned off.
FAILED_IN_A_ROW_MAX = 5


def retry_delay(attempts: int) -> timedelta | None:
    """Returns the delay after this number of attempts; None if the delivery is given up."""
    return RETRY_DELAYS[attempts - 1] if attempts < ATTEMPTS_MAX else None


def is_success(status: int) -> bool:
    """True for a status of 200 to 299."""
    return 200 <= status < 300
