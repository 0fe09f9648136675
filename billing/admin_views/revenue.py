"""Operator page of revenue and its CSV export."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from billing.admin_views.base import asked_month, asked_words, money_page, page_of, query, show
from billing.invoices.periods import month_of
from billing.rating.terms import Period
from billing.reporting import revenue
from billing.reporting.revenue import Grouping, RevenueRow
from tenants import csv_files

ALL_MONTHS = "all"
HEAD = ("month", "by", "key", "name", "currency", "invoiced", "credited", "revenue")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Parsed query. `period` is one month, or the last twelve months if `month` is `ALL_MONTHS`."""

    month: str
    period: Period
    months: list[Period]
    by: Grouping
    words: str
    currency: str

    def rows(self, period: Period) -> list[RevenueRow]:
        read = revenue.rows_by_plan if self.by == "plan" else revenue.rows_by_tenant
        return revenue.ordered(read(period, self.words, self.currency))


def asked(request: HttpRequest, now: datetime) -> Asked:
    """Parses the query; the default is the previous month, by tenant, in all currencies."""
    months = revenue.months_until(now)
    text = request.GET.get("month", "")
    start = asked_month(text)
    if text == ALL_MONTHS:
        period = Period(start=months[-1].start, end=months[0].end)
    else:
        period = month_of(start) if start is not None and start <= now else months[1]
        text = f"{period.start:%Y-%m}"
    currency = request.GET.get("currency", "")
    return Asked(
        month=text,
        period=period,
        months=months,
        by="plan" if request.GET.get("by") == "plan" else "tenant",
        words=asked_words(request),
        currency=currency if currency.isalpha() and currency.isascii() and len(currency) == 3 else "",
    )


@money_page()
@require_GET
def revenue_page(request: HttpRequest) -> HttpResponse:
    """Shows revenue, the largest first, with bars of the last twelve months."""
    now = timezone.now().astimezone(UTC)
    wanted = asked(request, now)
    rows = wanted.rows(wanted.period)
    words = wanted.words if wanted.by == "tenant" else ""
    by_month = revenue.revenue_by_month(wanted.months, words, wanted.currency)
    context: dict[str, Any] = {
        "asked": wanted,
        "rows": page_of(request, rows),
        "totals": revenue.totals(rows),
        "charts": revenue.charts(by_month, wanted.months),
        "running": revenue.running_rates(),
        "currencies": revenue.currencies_in(Period(start=wanted.months[-1].start, end=wanted.months[0].end)),
        "address": query(month=wanted.month, by=wanted.by, q=wanted.words, currency=wanted.currency),
        "without_by": query(month=wanted.month, q=wanted.words, currency=wanted.currency),
    }
    return show(request, "revenue", _("Revenue"), context)


@money_page()
@require_GET
def revenue_csv(request: HttpRequest) -> HttpResponse:
    """Exports all rows of the current filter as CSV; for twelve months, the rows of each month one after the other."""
    wanted = asked(request, timezone.now().astimezone(UTC))
    periods = reversed(wanted.months) if wanted.month == ALL_MONTHS else [wanted.period]

    def lines() -> Iterator[tuple[Any, ...]]:
        for period in periods:
            for row in wanted.rows(period):
                names = wanted.by, csv_files.inert(row.key), csv_files.inert(row.name), row.currency
                yield f"{period.start:%Y-%m}", *names, row.invoiced, row.credited, row.revenue

    name = f"revenue-{wanted.month}-{wanted.by}.csv"
    return csv_files.response(name, HEAD, lines(), for_excel=csv_files.is_for_excel(request))  # type: ignore[return-value]
