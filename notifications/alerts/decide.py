"""State transitions of alert rules: pure. An unknown figure changes no state.

ok -> pending: the figure reached the threshold. pending -> firing: it stayed at or above it for the rule's duration.
firing -> resolved: it stayed below nine tenths of the threshold for that duration. Only time between two known samples
that are close to each other counts, so that unmeasured time neither fires nor resolves an alert.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

# Samples further apart say nothing about the time between them.
GAP_MAX = timedelta(minutes=3)
# A firing ends after the rule's own duration below the threshold, but at the latest after this time.
RESOLVE_AFTER_MAX = timedelta(minutes=5)
# Minimum interval between two firings of one rule.
FIRES_EVERY = timedelta(minutes=15)
# A firing ends below this many tenths of the threshold.
RESOLVE_BELOW_TENTHS = 9
TENTHS = 10
NOTHING = timedelta(0)


class AlertState(StrEnum):
    OK = "ok"
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTerms:
    """Condition of a rule: `threshold` in the unit of its figure, and the duration."""

    threshold: int
    lasts: timedelta

    @property
    def resolves_after(self) -> timedelta:
        return min(self.lasts, RESOLVE_AFTER_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sample of a figure.

    `value` is None if the figure is unknown. `is_lower_bound` is true if a source did not answer, so that it may be
    higher.
    """

    value: int | None
    is_lower_bound: bool = False


UNKNOWN = Sample(value=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleState:
    """State of a rule between two samples.

    `since` is when it entered its state. `held` is how long the figure was observed in the range of the next state.
    `value` is the last known figure; `is_unknown` is true if the last sample had none.
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


def advance(before: RuleState, terms: RuleTerms, sample: Sample, now: datetime) -> RuleState:
    """Returns the state after a sample at `now`. A sample that is not newer than the last one changes nothing."""
    if before.evaluated_at is not None and now <= before.evaluated_at:
        return before
    value = sample.value
    is_high = value is not None and value >= terms.threshold
    if value is None or (sample.is_lower_bound and not is_high):
        return replace(before, is_unknown=True, evaluated_at=now)
    after = replace(before, value=value, is_unknown=False, evaluated_at=now)
    seen = _observed(before, now)
    if before.fires:
        return _firing(after, before, terms, seen, now)
    if not is_high:
        return after if before.state is not AlertState.PENDING else _in(after, _state_below(before), now)
    if before.state is not AlertState.PENDING:
        return _in(after, AlertState.PENDING, now)
    return _pending(replace(after, held=before.held + seen), terms, now)


def _pending(rule: RuleState, terms: RuleTerms, now: datetime) -> RuleState:
    is_too_soon = rule.fired_at is not None and now - rule.fired_at < FIRES_EVERY
    if rule.held < terms.lasts or is_too_soon:
        return rule
    return replace(_in(rule, AlertState.FIRING, now), fired_at=now)


def _firing(after: RuleState, before: RuleState, terms: RuleTerms, seen: timedelta, now: datetime) -> RuleState:
    if not _is_below(after.value, terms):
        return replace(after, held=NOTHING)
    held = before.held + seen if _is_below(before.value, terms) else NOTHING
    return _in(after, AlertState.RESOLVED, now) if held >= terms.resolves_after else replace(after, held=held)


def _is_below(value: int | None, terms: RuleTerms) -> bool:
    """True if the figure is low enough for a firing to end."""
    return value is not None and value * TENTHS < terms.threshold * RESOLVE_BELOW_TENTHS


def _state_below(before: RuleState) -> AlertState:
    """Returns the state of a pending rule whose figure fell below the threshold."""
    return AlertState.OK if before.fired_at is None else AlertState.RESOLVED


def _observed(before: RuleState, now: datetime) -> timedelta:
    """Returns how much of the time since the last sample counts."""
    if before.evaluated_at is None or before.is_unknown:
        return NOTHING
    elapsed = now - before.evaluated_at
    return elapsed if elapsed <= GAP_MAX else NOTHING


def _in(rule: RuleState, state: AlertState, now: datetime) -> RuleState:
    return replace(rule, state=state, since=now, held=NOTHING)
