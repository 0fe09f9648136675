"""Queries of overdue invoices, i.e. open invoices past their due date with an open amount, and their sums by age."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from django.db.models import Case, CharField, Count, Max, OuterRef, Q, QuerySet, Subquery, Sum, Value, When

from billing.invoices.open_amounts import OpenAmount, with_open_amount
from billing.models import Invoice, InvoiceKind, InvoiceReminder, InvoiceState

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

ZERO = Decimal(0)


class Age(StrEnum):
    """Number of full days since an invoice was due, in ranges."""

    TO_30 = "0-30"
    TO_60 = "31-60"
    TO_90 = "61-90"
    OVER_90 = "over-90"


# Last full day of each range except the oldest.
LAST_DAYS = ((Age.TO_30, 30), (Age.TO_60, 60), (Age.TO_90, 90))


class OverdueAnnotations(TypedDict):
    """Annotations of an invoice: open amount, and number and time of the last reminder (None without one)."""

    open_amount: Decimal
    last_reminder: int | None
    reminded_at: datetime | None


class AgeSum(NamedTuple):
    """Open amount of one age in one currency."""

    currency: str
    age: Age
    invoices: int
    open_amount: Decimal


class Receivables(NamedTuple):
    """Open amounts in one currency by age, in the order of `Age`, and in total."""

    currency: str
    ages: tuple[AgeSum, ...]

    @property
    def invoices(self) -> int:
        return sum(age_sum.invoices for age_sum in self.ages)

    @property
    def open_amount(self) -> Decimal:
        return sum((age_sum.open_amount for age_sum in self.ages), ZERO)


def age_of(due_at: datetime, now: datetime) -> Age:
    """Returns the age of an invoice that was due before `now`. Pure."""
    days = (now - due_at).days
    return next((age for age, last_day in LAST_DAYS if days <= last_day), Age.OVER_90)


def due_between(age: Age, now: datetime) -> tuple[datetime | None, datetime]:
    """Returns the range of due dates of an age: after the first instant (None: unbounded), up to the second. Pure."""
    last_day = dict(LAST_DAYS).get(age)
    earlier = [days for _other_age, days in LAST_DAYS if last_day is None or days < last_day]
    youngest = timedelta(days=max(earlier) + 1) if earlier else timedelta()
    return None if last_day is None else now - timedelta(days=last_day + 1), now - youngest


def overdue(
    now: datetime, *, search_text: str = "", age: Age | None = None
) -> QuerySet[WithAnnotations[Invoice, OverdueAnnotations]]:
    """Returns overdue invoices, earliest due date first; only invoices of `age` if it is given.

    With `search_text`, only invoices whose number or whose tenant's name or slug contains it.
    """
    reminders = InvoiceReminder.objects.filter(invoice=OuterRef("pk")).order_by().values("invoice")
    invoices = _overdue_invoices(now, search_text, age).select_related("tenant").defer("inputs")
    return invoices.annotate(
        last_reminder=Subquery(reminders.annotate(last=Max("number")).values("last")),
        reminded_at=Subquery(reminders.annotate(last=Max("sent_at")).values("last")),
    ).order_by("due_at", "pk")


def _overdue_invoices(
    now: datetime, search_text: str, age: Age | None
) -> QuerySet[WithAnnotations[Invoice, OpenAmount]]:
    invoices = Invoice.objects.filter(kind=InvoiceKind.INVOICE, state=InvoiceState.ISSUED, due_at__lt=now)
    if age is not None:
        invoices = invoices.filter(_has_age(age, now))
    if search_text:
        invoices = invoices.filter(
            Q(tenant__name__icontains=search_text)
            | Q(tenant__slug__icontains=search_text)
            | Q(number__icontains=search_text)
        )
    return with_open_amount(invoices).filter(open_amount__gt=ZERO)


def _has_age(age: Age, now: datetime) -> Q:
    later_than, latest = due_between(age, now)
    due_in_time = Q(due_at__lte=latest)
    return due_in_time if later_than is None else due_in_time & Q(due_at__gt=later_than)


def open_invoices() -> QuerySet[Invoice]:
    """Returns open invoices of all tenants with their `open_amount`."""
    invoices = Invoice.objects.filter(kind=InvoiceKind.INVOICE, state=InvoiceState.ISSUED)
    return with_open_amount(invoices.select_related("tenant").defer("inputs"))


def sums_by_age(now: datetime, search_text: str = "") -> list[AgeSum]:
    """Returns the open amounts by currency and age, without empty ones."""
    age_case = Case(*(When(_has_age(age, now), then=Value(age.value)) for age in Age), output_field=CharField())
    rows = (
        _overdue_invoices(now, search_text, None)
        .order_by()
        .annotate(age=age_case)
        .values_list("currency", "age")
        .annotate(Count("pk"), Sum("open_amount"))
    )
    return [AgeSum(currency, Age(age), count, amount) for currency, age, count, amount in rows]


def receivables(age_sums: Iterable[AgeSum]) -> list[Receivables]:
    """Groups the sums by currency in alphabetical order, with an entry for each age. Pure."""
    sums_by_key = {(age_sum.currency, age_sum.age): age_sum for age_sum in age_sums}
    currencies = sorted({currency for currency, _ in sums_by_key})
    return [
        Receivables(currency, tuple(sums_by_key.get((currency, age), AgeSum(currency, age, 0, ZERO)) for age in Age))
        for currency in currencies
    ]
