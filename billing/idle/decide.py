"""Decisions about the warning before an idle stop, and about the stop itself: pure."""

from __future__ import annotations

import enum
from datetime import datetime, timedelta
from typing import Final

NEVER: Final = 0
# Minimum time between the mail and the stop.
WARNED_FOR: Final = timedelta(days=1)


class IdleStep(enum.Enum):
    NOTHING = enum.auto()
    WARN = enum.auto()
    STOP = enum.auto()


def idle_since(since: datetime, last_used: datetime | None) -> datetime:
    """Returns the time of the last use; `since`, the time when the instance entered its phase, counts as a use."""
    return since if last_used is None else max(since, last_used)


def step(idle: datetime, known_until: datetime, stop_days: int, warned_at: datetime | None) -> IdleStep:
    """Returns the step that is due for an instance unused since `idle`.

    Usage after `known_until` is not known yet. `warned_at` is the time of the warning about this idle period.
    """
    if stop_days == NEVER:
        return IdleStep.NOTHING
    stop = timedelta(days=stop_days)
    if warned_at is None:
        return IdleStep.WARN if known_until - idle >= stop - WARNED_FOR else IdleStep.NOTHING
    is_due = known_until - idle >= stop and known_until - warned_at >= WARNED_FOR
    return IdleStep.STOP if is_due else IdleStep.NOTHING
