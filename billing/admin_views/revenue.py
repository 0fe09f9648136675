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

from billing.admin_views.base import money_page, page_of, parse_month, query, render_page, search_text
from billing.invoices.periods import month_of
from billing.rating.terms import Period
from billing.reporting import revenue
from billing.reporting.revenue import Grouping, RevenueRow
from tenants import csv_files

ALL_MONTHS = "all"
HEAD = ("month", "by", "key", "name", "currency", "invoiced", "credited", "revenue")


@dataclass(frozen=True, slots=True, kw_only=True)
class RevenueFilters:
    """Parsed query. `period` is one month, or the last twelve months if `month` is `ALL_MONTHS`."""

    month: str
    period: Period
    months: list[Period]
    by: Grouping
    search_text: str
    currency: str

    def rows(self, period: Period) -> list[RevenueRow]:
        read_rows = revenue.rows_by_plan if self.by == "plan" else revenue.rows_by_tenant
        return revenue.sort_rows(read_rows(period, self.search_text, self.currency))


def parse_filters(request: HttpRequest, now: datetime) -> RevenueFilters:
    """Parses the query; the default is the previous month, by tenant, in all currencies."""
    months = revenue.months_until(now)
    text = request.GET.get("month", "")
    start = parse_month(text)
    if text == ALL_MONTHS:
        period = Period(start=months[-1].start, end=months[0].end)
    else:
        period = month_of(start) if start is not None and start <= now else months[1]
        text = f"{period.start:%Y-%m}"
    currency = request.GET.get("currency", "")
    return RevenueFilters(
        month=text,
        period=period,
        months=months,
        by="plan" if request.GET.get("by") == "plan" else "tenant",
        search_text=search_text(request),
        currency=currency if currency.isalpha() and currency.isascii() and len(currency) == 3 else "",
    )


@money_page()
@require_GET
def revenue_page(request: HttpRequest) -> HttpResponse:
    """Shows revenue, the largest first, with bars of the last twelve months."""
    now = timezone.now().astimezone(UTC)
    filters = parse_filters(request, now)
    rows = filters.rows(filters.period)
    tenant_text = filters.search_text if filters.by == "tenant" else ""
    by_month = revenue.revenue_by_month(filters.months, tenant_text, filters.currency)
    context: dict[str, Any] = {
        "asked": filters,
        "rows": page_of(request, rows),
        "totals": revenue.totals(rows),
        "charts": revenue.charts(by_month, filters.months),
        "running": revenue.running_rates(),
        "currencies": revenue.currencies_in(Period(start=filters.months[-1].start, end=filters.months[0].end)),
        "address": query(month=filters.month, by=filters.by, q=filters.search_text, currency=filters.currency),
        "without_by": query(month=filters.month, q=filters.search_text, currency=filters.currency),
    }
    return render_page(request, "revenue", _("Revenue"), context)


@money_page()
@require_GET
def revenue_csv(request: HttpRequest) -> HttpResponse:
    """Exports all rows of the current filter as CSV; for twelve months, the rows of each month one after the other."""
    filters = parse_filters(request, timezone.now().astimezone(UTC))
    periods = reversed(filters.months) if filters.month == ALL_MONTHS else [filters.period]

    def lines() -> Iterator[tuple[Any, ...]]:
        for period in periods:
            for row in filters.rows(period):
                names = filters.by, csv_files.inert(row.key), csv_files.inert(row.name), row.currency
                yield f"{period.start:%Y-%m}", *names, row.invoiced, row.credited, row.revenue

    name = f"revenue-{filters.month}-{filters.by}.csv"
    return csv_files.response(name, HEAD, lines(), for_excel=csv_files.is_for_excel(request))  # type: ignore[return-value]
