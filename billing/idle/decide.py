"""When an instance of a plan with an idle stop is warned of it, and when it is stopped: pure."""

from __future__ import annotations

import enum
from datetime import datetime, timedelta
from typing import Final

NEVER: Final = 0
# Between the mail and the stop, at least.
WARNED_FOR: Final = timedelta(days=1)


class Step(enum.Enum):
    NOTHING = enum.auto()
    WARN = enum.auto()
    STOP = enum.auto()


def idle_since(since: datetime, last_used: datetime | None) -> datetime:
    """`since`: when it began to run as it is, which is a use as well."""
    return since if last_used is None else max(since, last_used)


def step(idle: datetime, known_until: datetime, stop_days: int, warned_at: datetime | None) -> Step:
    """What is due for an instance that nobody used since `idle`. What happened after `known_until` nobody knows yet.
    `warned_at`: when it was warned of this time of idleness.
    """
    if stop_days == NEVER:
        return Step.NOTHING
    stop = timedelta(days=stop_days)
    if warned_at is None:
        return Step.WARN if known_until - idle >= stop - WARNED_FOR else Step.NOTHING
    is_due = known_until - idle >= stop and known_until - warned_at >= WARNED_FOR
    return Step.STOP if is_due else Step.NOTHING
