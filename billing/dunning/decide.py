"""Decisions about overdue invoices: pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

NEVER = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DunningTerms:
    """Days from the due date to each step of dunning; 0 means never. The second reminder is later than the first."""

    first_reminder_days: int
    second_reminder_days: int
    suspend_days: int

    @property
    def reminders(self) -> list[int]:
        """Days of the reminders that are sent, in order; reminders are numbered from 1."""
        return [days for days in (self.first_reminder_days, self.second_reminder_days) if days != NEVER]


def reminder_due(days_overdue: int, terms: DunningTerms, sent: Collection[int]) -> int | None:
    """Returns the number of the latest due reminder; None if it or a later one is in `sent`, those sent already."""
    due = [number for number, days in enumerate(terms.reminders, start=1) if days_overdue >= days]
    latest = max(due, default=None)
    return latest if latest is not None and latest > max(sent, default=0) else None


def must_suspend(days_overdue: int, terms: DunningTerms) -> bool:
    """True if the tenant is to be suspended; `days_overdue` is that of the invoice that is overdue longest."""
    return terms.suspend_days != NEVER and days_overdue >= terms.suspend_days
