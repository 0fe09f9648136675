"""Reads: who owes what since when. An invoice is overdue that is open and due, and of which credit notes and payments
leave something.
"""

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
    """Full days since an invoice was due."""

    TO_30 = "0-30"
    TO_60 = "31-60"
    TO_90 = "61-90"
    OVER_90 = "over-90"


# The last full day of each age but the oldest.
LAST_DAYS = ((Age.TO_30, 30), (Age.TO_60, 60), (Age.TO_90, 90))


class Reminded(TypedDict):
    """What is added to an invoice: what is open of it, and the number of the last reminder and when it was sent, None
    where there is none.
    """

    open_amount: Decimal
    last_reminder: int | None
    reminded_at: datetime | None


class AgeSum(NamedTuple):
    """What is open of one age in one currency."""

    currency: str
    age: Age
    invoices: int
    open_amount: Decimal


class Debt(NamedTuple):
    """What is open in one currency: by age, in the order of `Age`, and in all."""

    currency: str
    ages: tuple[AgeSum, ...]

    @property
    def invoices(self) -> int:
        return sum(each.invoices for each in self.ages)

    @property
    def open_amount(self) -> Decimal:
        return sum((each.open_amount for each in self.ages), ZERO)


def age_of(due_at: datetime, now: datetime) -> Age:
    """Of an invoice that was due before `now`. Pure."""
    days = (now - due_at).days
    return next((age for age, last in LAST_DAYS if days <= last), Age.OVER_90)


def due_between(age: Age, now: datetime) -> tuple[datetime | None, datetime]:
    """When invoices of this age were due: later than the first instant (None: whenever), at the second one at the
    latest. Pure.
    """
    last = dict(LAST_DAYS).get(age)
    earlier = [days for other, days in LAST_DAYS if last is None or days < last]
    youngest = timedelta(days=max(earlier) + 1) if earlier else timedelta()
    return None if last is None else now - timedelta(days=last + 1), now - youngest


def overdue(now: datetime, *, words: str = "", age: Age | None = None) -> QuerySet[WithAnnotations[Invoice, Reminded]]:
    """What was due first comes first; of tenants whose name, or of invoices whose number has the words in it."""
    sent = InvoiceReminder.objects.filter(invoice=OuterRef("pk")).order_by().values("invoice")
    found = _open(now, words, age).select_related("tenant").defer("inputs")
    return found.annotate(
        last_reminder=Subquery(sent.annotate(last=Max("number")).values("last")),
        reminded_at=Subquery(sent.annotate(last=Max("sent_at")).values("last")),
    ).order_by("due_at", "pk")


def _open(now: datetime, words: str, age: Age | None) -> QuerySet[WithAnnotations[Invoice, OpenAmount]]:
    found = Invoice.objects.filter(kind=InvoiceKind.INVOICE, state=InvoiceState.ISSUED, due_at__lt=now)
    if age is not None:
        found = found.filter(_is_of(age, now))
    if words:
        found = found.filter(
            Q(tenant__name__icontains=words) | Q(tenant__slug__icontains=words) | Q(number__icontains=words)
        )
    return with_open_amount(found).filter(open_amount__gt=ZERO)


def _is_of(age: Age, now: datetime) -> Q:
    later_than, latest = due_between(age, now)
    within = Q(due_at__lte=latest)
    return within if later_than is None else within & Q(due_at__gt=later_than)


def open_invoices() -> QuerySet[Invoice]:
    """Of all tenants, each with its `open_amount`."""
    found = Invoice.objects.filter(kind=InvoiceKind.INVOICE, state=InvoiceState.ISSUED)
    return with_open_amount(found.select_related("tenant").defer("inputs"))


def sums(now: datetime, words: str = "") -> list[AgeSum]:
    """What is open, by currency and age; nothing where nothing is."""
    of_age = Case(*(When(_is_of(age, now), then=Value(age.value)) for age in Age), output_field=CharField())
    rows = (
        _open(now, words, None)
        .order_by()
        .annotate(age=of_age)
        .values_list("currency", "age")
        .annotate(Count("pk"), Sum("open_amount"))
    )
    return [AgeSum(currency, Age(age), count, amount) for currency, age, count, amount in rows]


def debts(found: Iterable[AgeSum]) -> list[Debt]:
    """Of each currency, in alphabetical order, with an entry for each age. Pure."""
    by_key = {(each.currency, each.age): each for each in found}
    currencies = sorted({currency for currency, _ in by_key})
    return [
        Debt(currency, tuple(by_key.get((currency, age), AgeSum(currency, age, 0, ZERO)) for age in Age))
        for currency in currencies
    ]
