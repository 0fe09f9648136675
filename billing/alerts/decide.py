"""What becomes of a rule when its figure is read: pure. A figure that is not known changes no state.

ok -> pending: the figure reached the threshold. pending -> firing: it was at or above it for so long, as far as that is
known. firing -> resolved: it was below nine tenths of the threshold for so long. Only time between two readings that
are known and close to each other counts, so that what nobody measured makes no alert and ends none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

# Readings further apart say nothing about the time between them.
GAP_MAX = timedelta(minutes=3)
# A firing ends after the rule's own duration, but no later than so long below.
RESOLVE_AFTER_MAX = timedelta(minutes=5)
# One rule fires no more often.
FIRES_EVERY = timedelta(minutes=15)
# A firing ends below so many tenths of the threshold.
RESOLVE_BELOW_TENTHS = 9
TENTHS = 10
NOTHING = timedelta(0)


class AlertState(StrEnum):
    OK = "ok"
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """When a rule fires: `threshold` in the unit of its figure."""

    threshold: int
    lasts: timedelta

    @property
    def resolves_after(self) -> timedelta:
        return min(self.lasts, RESOLVE_AFTER_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A figure. `value` None: not known. `is_lower_bound`: somebody did not answer, so it may be more."""

    value: int | None
    is_lower_bound: bool = False


UNKNOWN = Reading(value=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A rule between two readings. `since`: when it came into its state. `held`: how long the figure was seen where the
    next state is. `value` is the last known one, `is_unknown` says that the last reading was none.
    """

    state: AlertState = AlertState.OK
    since: datetime | None = None
    held: timedelta = NOTHING
    value: int | None = None
    is_unknown: bool = True
    evaluated_at: datetime | None = None
    fired_at: datetime | None = None

    @property
    def fires(self) -> bool:
        return self.state is AlertState.FIRING


def advance(before: Progress, terms: Terms, reading: Reading, now: datetime) -> Progress:
    """After a reading at `now`. The same reading again, or one from before, changes nothing."""
    if before.evaluated_at is not None and now <= before.evaluated_at:
        return before
    value = reading.value
    is_high = value is not None and value >= terms.threshold
    if value is None or (reading.is_lower_bound and not is_high):
        return replace(before, is_unknown=True, evaluated_at=now)
    after = replace(before, value=value, is_unknown=False, evaluated_at=now)
    seen = _seen(before, now)
    if before.fires:
        return _firing(after, before, terms, seen, now)
    if not is_high:
        return after if before.state is not AlertState.PENDING else _in(after, _rest(before), now)
    if before.state is not AlertState.PENDING:
        return _in(after, AlertState.PENDING, now)
    return _pending(replace(after, held=before.held + seen), terms, now)


def _pending(rule: Progress, terms: Terms, now: datetime) -> Progress:
    rests = rule.fired_at is not None and now - rule.fired_at < FIRES_EVERY
    if rule.held < terms.lasts or rests:
        return rule
    return replace(_in(rule, AlertState.FIRING, now), fired_at=now)


def _firing(after: Progress, before: Progress, terms: Terms, seen: timedelta, now: datetime) -> Progress:
    if not _is_below(after.value, terms):
        return replace(after, held=NOTHING)
    held = before.held + seen if _is_below(before.value, terms) else NOTHING
    return _in(after, AlertState.RESOLVED, now) if held >= terms.resolves_after else replace(after, held=held)


def _is_below(value: int | None, terms: Terms) -> bool:
    """Low enough for a firing to end."""
    return value is not None and value * TENTHS < terms.threshold * RESOLVE_BELOW_TENTHS


def _rest(before: Progress) -> AlertState:
    """Where a rule goes that was about to fire and did not."""
    return AlertState.OK if before.fired_at is None else AlertState.RESOLVED


def _seen(before: Progress, now: datetime) -> timedelta:
    """How much of the time since the last reading counts."""
    if before.evaluated_at is None or before.is_unknown:
        return NOTHING
    elapsed = now - before.evaluated_at
    return elapsed if elapsed <= GAP_MAX else NOTHING


def _in(rule: Progress, state: AlertState, now: datetime) -> Progress:
    return replace(rule, state=state, since=now, held=NOTHING)
