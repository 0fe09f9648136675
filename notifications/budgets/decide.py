"""Decides which marks of a budget to report: thresholds in percent of its amount. Pure.

Each mark is reported once for a month and an amount.
"""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from decimal import Decimal

from tenants.alert_state import (
    FACT_TERMS,
    NO_LEVEL,
    AlertLevel,
    AlertState,
    AlertStatus,
    AlertTerms,
    Sample,
    Transition,
    advance,
    transition,
)

MARKS = (50, 80, 100)
# Mark that is reported when the month is forecast to exceed the budget.
FORECAST = 0
PERCENT = 100
# A mark that was reached stays reached until the month ends.
MARK_TERMS = AlertTerms(levels=tuple(AlertLevel(number=mark, fires_at=mark, ends_below=None) for mark in MARKS))


def marks_to_report(budget: Decimal, spent: Decimal, forecast: Decimal, reported: Set[int], now: datetime) -> list[int]:
    """Returns the marks to report, lowest first; `reported` are those that were reported before.

    A forecast is reported only before the budget is spent.
    """
    previous_status = _status(max(reported, default=NO_LEVEL))
    status = advance(previous_status, MARK_TERMS, Sample(value=int(spent * PERCENT // budget)), now)
    result = [mark for mark in MARKS if previous_status.level < mark <= status.level]
    will_exceed = forecast > budget and spent < budget
    previous_forecast_status = _status(int(FORECAST in reported))
    is_forecast_new = (
        transition(
            previous_forecast_status, advance(previous_forecast_status, FACT_TERMS, Sample(value=int(will_exceed)), now)
        )
        is Transition.FIRED
    )
    return [*result, FORECAST] if is_forecast_new else result


def _status(level: int) -> AlertStatus:
    """Returns the state of an alert that was reported up to a level."""
    return AlertStatus(state=AlertState.FIRING, level=level) if level != NO_LEVEL else AlertStatus()
