"""Decisions about the warning before an idle stop, and about the stop itself: pure."""

from __future__ import annotations

import enum
from datetime import datetime, timedelta
from typing import Final

NEVER: Final = 0
# Minimum time between the mail and the stop.
WARNING_PERIOD_MIN: Final = timedelta(days=1)


class IdleStep(enum.Enum):
    NOTHING = enum.auto()
    WARN = enum.auto()
    STOP = enum.auto()


def idle_since(phase_since: datetime, last_used: datetime | None) -> datetime:
    """Returns the time of the last use; entering the phase, at `phase_since`, counts as a use."""
    return phase_since if last_used is None else max(phase_since, last_used)


def step(unused_since: datetime, known_until: datetime, stop_days: int, warned_at: datetime | None) -> IdleStep:
    """Returns the step that is due for an instance unused since `unused_since`.

    Usage after `known_until` is not known yet. `warned_at` is the time of the warning about this idle period.
    """
    if stop_days == NEVER:
        return IdleStep.NOTHING
    stop = timedelta(days=stop_days)
    if warned_at is None:
        return IdleStep.WARN if known_until - unused_since >= stop - WARNING_PERIOD_MIN else IdleStep.NOTHING
    is_due = known_until - unused_since >= stop and known_until - warned_at >= WARNING_PERIOD_MIN
    return IdleStep.STOP if is_due else IdleStep.NOTHING
