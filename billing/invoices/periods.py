"""Billing periods are calendar months in UTC."""

from __future__ import annotations

from datetime import datetime

from billing.rating.terms import Period


def month_of(instant: datetime) -> Period:
    """Returns the month that contains an aware instant."""
    start = instant.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return Period(start=start, end=_next(start))


def month_before(period: Period) -> Period:
    start = (
        period.start.replace(month=period.start.month - 1)
        if period.start.month > 1
        else period.start.replace(year=period.start.year - 1, month=12)
    )
    return Period(start=start, end=period.start)


def _next(start: datetime) -> datetime:
    return start.replace(year=start.year + 1, month=1) if start.month == 12 else start.replace(month=start.month + 1)
