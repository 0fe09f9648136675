"""The clock of the billing tests: a run that passes the end of a month stays in the month in which it began."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from billing.invoices.periods import month_of

MONTH_OF_RUN = month_of(datetime.now(UTC))


@pytest.fixture(autouse=True)
def clock_in_the_month_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the clock back after the month's end: modules of tests compute "last month" when they are imported."""
    real = timezone.now
    if real() >= MONTH_OF_RUN.end:
        monkeypatch.setattr(timezone, "now", lambda: real() - timedelta(days=1))
