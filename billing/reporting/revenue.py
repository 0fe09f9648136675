"""Reads: revenue before tax, i.e. invoices less credit notes, by tenant or plan, month and currency.

An amount belongs to the month that it charges, regardless of the time of issue. Rows are summed by the database;
further computations are pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal, NamedTuple

from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import Coalesce, TruncMonth

from billing.invoices.open_amounts import ZERO_SUM
from billing.invoices.periods import month_before, month_of
from billing.models import Invoice, InvoiceKind, InvoiceLine, Plan
from billing.rating.quotes import HOURS_PER_MONTH, quote
from billing.rating.terms import Period
from billing.selectors import price_of, with_prices
from instances.lifecycle.phases import COUNTED
from instances.models import Instance
from tenants.currencies import rounded

MONTHS_SHOWN = 12
# Maximum number of currencies with bars, those with the most revenue first.
CHARTS_MAX = 3
# Height of the box of a bar in units.
BAR_HEIGHT_MAX = 100
ZERO = Decimal(0)
Grouping = Literal["tenant", "plan"]


class RevenueRow(NamedTuple):
    """Revenue of one tenant or plan in one currency.

    `key` is the id of a tenant or the code of a plan, empty for lines without a plan: discounts, minimums and credit
    notes. `credited` is zero or negative.
    """

    key: str
    name: str
    detail: str
    currency: str
    invoiced: Decimal
    credited: Decimal

    @property
    def revenue(self) -> Decimal:
        return self.invoiced + self.credited


class Total(NamedTuple):
    """Sums of all rows of one currency."""

    currency: str
    rows: int
    invoiced: Decimal
    credited: Decimal

    @property
    def revenue(self) -> Decimal:
        return self.invoiced + self.credited


class Bar(NamedTuple):
    """Bar of one month with a height up to `BAR_HEIGHT_MAX`; 0 without positive revenue."""

    month: datetime
    revenue: Decimal
    height: int


class Chart(NamedTuple):
    """Chart with one bar for each month, the oldest first."""

    currency: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRate:
    """Hourly cost of the sizes sold at the moment in one currency, without traffic and discounts."""

    currency: str
    per_hour: Decimal

    @property
    def per_month(self) -> Decimal:
        return rounded(self.per_hour * HOURS_PER_MONTH, self.currency)


def months_until(now: datetime, count: int = MONTHS_SHOWN) -> list[Period]:
    """Returns the last months, the current one first. Pure."""
    result = [month_of(now)]
    while len(result) < count:
        result.append(month_before(result[-1]))
    return result


def rows_by_tenant(period: Period, search_text: str = "", currency: str = "") -> list[RevenueRow]:
    """Returns the revenue by tenant, optionally only of tenants whose name or slug contains `search_text`."""
    rows = (
        _invoices(period, search_text, currency)
        .values_list("tenant_id", "tenant__name", "tenant__slug", "currency")
        .annotate(**_sums_by_kind("subtotal", "kind"))
    )
    return [RevenueRow(*row) for row in rows]


def rows_by_plan(period: Period, search_text: str = "", currency: str = "") -> list[RevenueRow]:
    """Returns the revenue by plan, optionally only of plans whose code contains `search_text`.

    Together the rows are the total charged, because each line belongs to one plan or to none.
    """
    lines = InvoiceLine.objects.filter(invoice__period_start__gte=period.start, invoice__period_start__lt=period.end)
    if currency:
        lines = lines.filter(invoice__currency=currency)
    if search_text:
        lines = lines.filter(plan__icontains=search_text)
    names = dict(Plan.objects.values_list("code", "name"))
    rows = (
        lines.order_by().values_list("plan", "invoice__currency").annotate(**_sums_by_kind("amount", "invoice__kind"))
    )
    return [RevenueRow(plan, names.get(plan, plan), plan, currency_, *sums) for plan, currency_, *sums in rows]


def _invoices(period: Period, search_text: str, currency: str) -> QuerySet[Invoice]:
    invoices = Invoice.objects.filter(period_start__gte=period.start, period_start__lt=period.end).order_by()
    if currency:
        invoices = invoices.filter(currency=currency)
    if search_text:
        invoices = invoices.filter(Q(tenant__name__icontains=search_text) | Q(tenant__slug__icontains=search_text))
    return invoices


def _sums_by_kind(amount: str, kind: str) -> dict[str, Coalesce]:
    """Aggregates the amounts of invoices and of credit notes."""

    def sum_of(invoice_kind: InvoiceKind) -> Coalesce:
        return Coalesce(Sum(amount, filter=Q(**{kind: invoice_kind})), ZERO_SUM)

    return {"invoiced": sum_of(InvoiceKind.INVOICE), "credited": sum_of(InvoiceKind.CREDIT_NOTE)}


def currencies_in(period: Period) -> list[str]:
    """Returns the currencies in which something was invoiced."""
    rows = Invoice.objects.filter(period_start__gte=period.start, period_start__lt=period.end).order_by()
    return sorted(rows.values_list("currency", flat=True).distinct())


def sort_rows(rows: Iterable[RevenueRow]) -> list[RevenueRow]:
    """Sorts rows by currency, the largest revenue first. Pure."""
    return sorted(rows, key=lambda row: (row.currency, -row.revenue, row.name, row.key))


def totals(rows: Iterable[RevenueRow]) -> list[Total]:
    """Returns the totals by currency in alphabetical order. Pure."""
    sums: dict[str, Total] = {}
    for row in rows:
        before = sums.get(row.currency, Total(row.currency, 0, ZERO, ZERO))
        sums[row.currency] = Total(
            row.currency, before.rows + 1, before.invoiced + row.invoiced, before.credited + row.credited
        )
    return [sums[currency] for currency in sorted(sums)]


def revenue_by_month(
    months: Sequence[Period], search_text: str = "", currency: str = ""
) -> dict[tuple[str, datetime], Decimal]:
    """Returns the revenue by currency and start of the month, of tenants whose name or slug contains `search_text`."""
    whole = Period(start=min(month.start for month in months), end=max(month.end for month in months))
    rows = (
        _invoices(whole, search_text, currency)
        .annotate(month=TruncMonth("period_start", tzinfo=UTC))
        .values_list("currency", "month")
        .annotate(Sum("subtotal"))
    )
    return {(currency_, month): revenue for currency_, month, revenue in rows}


def charts(by_month: dict[tuple[str, datetime], Decimal], months: Sequence[Period]) -> list[Chart]:
    """Returns charts of the currencies with the most revenue, each scaled to its highest bar. Pure."""
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for (currency, _month), revenue in by_month.items():
        sums[currency] += revenue
    shown = sorted(sums, key=lambda currency: (-sums[currency], currency))[:CHARTS_MAX]
    starts = sorted(month.start for month in months)
    return [
        Chart(currency, bars_of([(start, by_month.get((currency, start), ZERO)) for start in starts]))
        for currency in shown
    ]


def bars_of(amounts: Sequence[tuple[datetime, Decimal]]) -> tuple[Bar, ...]:
    """Scales amounts to bars. Pure."""
    highest = max((revenue for _, revenue in amounts), default=ZERO)
    return tuple(
        Bar(month, revenue, max(1, int(revenue * BAR_HEIGHT_MAX / highest)) if revenue > 0 else 0)
        for month, revenue in amounts
    )


def running_rates() -> list[RunningRate]:
    """Returns the rates by currency. The number of quotes is the number of distinct sizes."""
    sizes = (
        Instance.objects.filter(phase__in=[phase.value for phase in COUNTED], suspended_for="")
        .order_by()
        .values_list("tenant__currency", "plan", "bandwidth_mb_s", "storage_gb")
        .annotate(Count("pk"))
    )
    by_currency: dict[str, list[tuple[str, int, int, int]]] = defaultdict(list)
    for currency, *size in sizes:
        by_currency[currency].append(tuple(size))
    return [
        RunningRate(currency=currency, per_hour=_per_hour(currency, by_currency[currency]))
        for currency in sorted(by_currency)
    ]


def _per_hour(currency: str, sizes: Sequence[tuple[str, int, int, int]]) -> Decimal:
    plans = with_prices(Plan.objects.filter(code__in={plan for plan, *_ in sizes}), currency)
    prices = {plan.pk: price.size_price_list() for plan in plans if (price := price_of(plan))}
    return sum(
        (
            quote(prices[plan], bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb).per_hour * count
            for plan, bandwidth_mb_s, storage_gb, count in sizes
            if plan in prices
        ),
        ZERO,
    )
