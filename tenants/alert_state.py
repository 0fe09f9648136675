"""State machine of alerts: pure. Alert rules, budgets and conditions of instances all change their state here.

ok -> pending: the value reached the lowest level. pending -> firing: it stayed there for `fires_after`, at once if that
is 0. firing -> resolved: it stayed below the end of its level for `resolves_after`. A firing alert has the highest
level that the value reached, until the value is below the end of that level. An unknown value changes no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum, auto

ZERO_DURATION = timedelta(0)
# Level of an alert that does not fire.
NO_LEVEL = 0


class AlertState(StrEnum):
    OK = "ok"
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class Transition(StrEnum):
    """Change of an alert that is worth a notice."""

    FIRED = auto()
    OTHER_LEVEL = auto()
    RESOLVED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertLevel:
    """Level of an alert: reached at `fires_at`, left when the value is lower than `ends_below`; None: never left."""

    number: int
    fires_at: int
    ends_below: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertTerms:
    """Terms on which an alert changes its state: its levels, lowest first, and durations.

    `fires_every` is the minimum interval between two firings. Samples that are further apart than `gap_max` say nothing
    about the time between them; without it all time counts.
    """

    levels: Sequence[AlertLevel]
    fires_after: timedelta = ZERO_DURATION
    resolves_after: timedelta = ZERO_DURATION
    fires_every: timedelta = ZERO_DURATION
    gap_max: timedelta | None = None

    def level_at(self, value: int, level: int = NO_LEVEL) -> int:
        """Returns the number of the level that a value has if the level so far is `level`."""
        reached = (
            entry.number
            for entry in self.levels
            if value >= entry.fires_at
            or (entry.number == level and (entry.ends_below is None or value >= entry.ends_below))
        )
        return max(reached, default=NO_LEVEL)


# Terms of a fact: it fires at once when it is true (1 or more) and is resolved at once when it is false (0).
FACT_TERMS = AlertTerms(levels=(AlertLevel(number=1, fires_at=1, ends_below=1),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One sample of a value.

    `value` is None if it is unknown. `is_lower_bound` is true if a source did not answer, so that it may be higher.
    """

    value: int | None
    is_lower_bound: bool = False


UNKNOWN = Sample(value=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertStatus:
    """State of an alert between two samples.

    `since` is when it entered its state. `level` is that of a firing alert. `observed_for` is how long the value was
    observed in the range of the next state. `value` is the last known value; `is_unknown` is true if the last sample
    had none.
    """

    state: AlertState = AlertState.OK
    since: datetime | None = None
    level: int = NO_LEVEL
    observed_for: timedelta = ZERO_DURATION
    value: int | None = None
    is_unknown: bool = True
    evaluated_at: datetime | None = None
    fired_at: datetime | None = None

    @property
    def fires(self) -> bool:
        return self.state is AlertState.FIRING


def pending_alert(since: datetime) -> AlertStatus:
    """Returns the state of an alert whose value has been at its level since an instant and was not sampled again."""
    return AlertStatus(state=AlertState.PENDING, since=since, is_unknown=False, evaluated_at=since)


def advance(before: AlertStatus, terms: AlertTerms, sample: Sample, now: datetime) -> AlertStatus:
    """Returns the state after a sample at `now`. A sample that is not newer than the last one changes nothing."""
    if before.evaluated_at is not None and now <= before.evaluated_at:
        return before
    value = sample.value
    is_high = value is not None and terms.level_at(value) != NO_LEVEL
    if value is None or (sample.is_lower_bound and not is_high):
        return replace(before, is_unknown=True, evaluated_at=now)
    after = replace(before, value=value, is_unknown=False, evaluated_at=now)
    observed = _observed_duration(before, terms, now)
    if before.fires:
        return _advance_firing(after, before, terms, observed, now)
    if not is_high:
        return after if before.state is not AlertState.PENDING else _enter_state(after, _state_below(before), now)
    if before.state is not AlertState.PENDING:
        return _advance_pending(_enter_state(after, AlertState.PENDING, now), value, terms, now)
    return _advance_pending(replace(after, observed_for=before.observed_for + observed), value, terms, now)


def transition(before: AlertStatus, after: AlertStatus) -> Transition | None:
    """Returns the change between two states of an alert; None if it is not worth a notice."""
    if after.fires and not before.fires:
        return Transition.FIRED
    if before.fires and not after.fires:
        return Transition.RESOLVED
    return Transition.OTHER_LEVEL if after.level != before.level else None


def _advance_pending(alert: AlertStatus, value: int, terms: AlertTerms, now: datetime) -> AlertStatus:
    is_too_soon = alert.fired_at is not None and now - alert.fired_at < terms.fires_every
    if alert.observed_for < terms.fires_after or is_too_soon:
        return alert
    return replace(_enter_state(alert, AlertState.FIRING, now), level=terms.level_at(value), fired_at=now)


def _advance_firing(
    after: AlertStatus, before: AlertStatus, terms: AlertTerms, observed: timedelta, now: datetime
) -> AlertStatus:
    assert after.value is not None
    level = terms.level_at(after.value, before.level)
    if level != NO_LEVEL:
        return replace(after, level=level, observed_for=ZERO_DURATION)
    was_low = before.value is not None and terms.level_at(before.value, before.level) == NO_LEVEL
    observed_for = before.observed_for + observed if was_low else ZERO_DURATION
    return (
        _enter_state(after, AlertState.RESOLVED, now)
        if observed_for >= terms.resolves_after
        else replace(after, observed_for=observed_for)
    )


def _state_below(before: AlertStatus) -> AlertState:
    """Returns the state of a pending alert whose value fell below the lowest level."""
    return AlertState.OK if before.fired_at is None else AlertState.RESOLVED


def _observed_duration(before: AlertStatus, terms: AlertTerms, now: datetime) -> timedelta:
    """Returns how much of the time since the last sample counts."""
    if before.evaluated_at is None or before.is_unknown:
        return ZERO_DURATION
    elapsed = now - before.evaluated_at
    return elapsed if terms.gap_max is None or elapsed <= terms.gap_max else ZERO_DURATION


def _enter_state(alert: AlertStatus, state: AlertState, now: datetime) -> AlertStatus:
    return replace(alert, state=state, since=now, level=NO_LEVEL, observed_for=ZERO_DURATION)
