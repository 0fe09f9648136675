"""Waiting for a condition with a deadline, instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
POLL_S = 0.02


def eventually(condition: Callable[[], Result], *, within_s: float = 10.0, what: str = "the condition") -> Result:
    """Calls `condition` until its result is true, and returns the result.

    Raises:
        AssertionError: time ran out; the last exception of `condition`, if any, is its cause.
    """
    deadline = time.monotonic() + within_s
    failure: Exception | None = None
    while True:
        try:
            result = condition()
            failure = None
        except (AssertionError, OSError, LookupError) as error:
            failure = error
        else:
            if result:
                return result
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {within_s:g} s for {what} in vain") from failure
        time.sleep(POLL_S)
