"""Console pages of usage and costs of the account: the month so far, and its breakdown."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from billing import access as billing_access
from billing import call_limits, costs, metered, selectors
from billing.costs import OTHERS, UNUSED, CostRow, Costs
from billing.forms import CostForm
from billing.invoices.charging import Draft, draft
from billing.invoices.periods import month_before, month_of
from billing.rating.hours import NoPrice
from billing.rating.terms import Period
from instances.selectors import counted_instances
from tenants import access, csv_files
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.errors import RateLimited
from tenants.limits import PAGE_SIZE_MAX
from tenants.models import Tenant
from tenants.views.base import console_page, render_page
from tenants.wording import localized

ROWS_SHOWN_MAX = 200
MONTHS_OFFERED = 6


@console_page(Scope.USAGE_READ)
@require_GET
def account_usage_page(request: HttpRequest) -> HttpResponse:
    """Shows a month (UTC): bytes of all counted instances, the amount due and its breakdown."""
    acting: Actor = request.actor  # type: ignore[attr-defined]
    tenant, now = access.tenant_of(acting), timezone.now().astimezone(UTC)
    month, by, form = _parse_query(request, now)
    may_see_price = access.permits(acting, Scope.BILLING_READ)
    instances = list(counted_instances(tenant)[:PAGE_SIZE_MAX])
    until = min(now, month.end)
    totals = metered.usage_totals_of([instance.pk for instance in instances], start=month.start, end=until)
    quotes = selectors.quotes_of(instances, tenant.currency) if may_see_price else {}
    month_costs, running, problem = _costs_and_draft(tenant, month, by, now) if may_see_price else (None, None, "")
    names = billing_access.names_of(tenant) if month_costs and month_costs.unpriced else {}
    context = {
        "month": month, "months": _months(now), "by": by, "groups": form.fields["by"].choices,  # type: ignore[attr-defined]
        "is_this_month": month.end > now, "may_see_price": may_see_price, "trouble": problem,
        "instances": len(instances), "currency": tenant.currency,
        "produce_bytes": sum(total.produce_bytes for total in totals.values()),
        "consume_bytes": sum(total.consume_bytes for total in totals.values()),
        "per_hour": sum((quote.per_hour for quote in quotes.values()), Decimal(0)) if quotes else None,
        "draft": running, "costs": month_costs,
        "rows": _labelled_rows(month_costs, tenant)[:ROWS_SHOWN_MAX] if month_costs else [],
        "more": max(0, len(month_costs.rows) - ROWS_SHOWN_MAX) if month_costs else 0,
        "unpriced": [(id, names.get(id, id)) for id in month_costs.unpriced] if month_costs else [],
        "moved": [(instance, totals[instance.pk]) for instance in instances] if not may_see_price else [],
    }  # fmt: skip
    return render_page(
        request, "billing/account_usage.html", context, section="account-usage", crumbs=[(_("Usage & cost"), None)]
    )


@console_page(Scope.BILLING_READ)
@require_GET
def costs_csv(request: HttpRequest) -> HttpResponse:
    """Exports all rows of the page's table as CSV, or returns a text with the reason why there are none."""
    tenant, now = access.tenant_of(request.actor), timezone.now().astimezone(UTC)  # type: ignore[attr-defined]
    month, by, _form = _parse_query(request, now)
    try:
        month_costs = _costs(tenant, month, by, now)
    except RateLimited as error:
        return HttpResponse(localized(error.detail), status=429, content_type="text/plain; charset=utf-8")
    except NoPrice as error:
        return HttpResponse(str(error), status=409, content_type="text/plain; charset=utf-8")
    lines = (
        (
            csv_files.inert(label),
            row.instance_id,
            row.bytes,
            row.amount,
            tenant.currency,
            int(row.is_allocated),
            "" if row.hours is None else row.hours,
        )
        for row, label, _percent in _labelled_rows(month_costs, tenant)
    )
    name = f"costs-{month.start:%Y-%m}-{by}.csv"
    head = (by, "instance_id", "bytes", "amount", "currency", "is_allocated", "hours")
    return csv_files.response(name, head, lines, for_excel=csv_files.is_for_excel(request))  # type: ignore[return-value]


def _parse_query(request: HttpRequest, now: datetime) -> tuple[Period, costs.GroupBy, CostForm]:
    """Parses the query; the default is this month, by instance."""
    form = CostForm(request.GET)
    query: dict[str, Any] = form.cleaned_data if form.is_valid() else {}
    month = month_of(now)
    if query.get("month"):
        requested = month_of(datetime.strptime(query["month"], "%Y-%m").replace(tzinfo=UTC))
        month = requested if requested.start <= now else month
    return month, query.get("by") or "instance", form


def _months(now: datetime) -> list[Period]:
    result = [month_of(now)]
    while len(result) < MONTHS_OFFERED:
        result.append(month_before(result[-1]))
    return result


def _costs_and_draft(
    tenant: Tenant, month: Period, by: costs.GroupBy, now: datetime
) -> tuple[Costs | None, Draft | None, str]:
    """Returns the costs of the month, its draft if it is running, and the reason if neither is available."""
    is_running = month.end > now
    try:
        month_costs = _costs(tenant, month, by, now)
        return month_costs, draft(tenant, now) if is_running else None, ""
    except NoPrice as error:
        return None, None, str(error)
    except RateLimited as error:
        return None, None, localized(error.detail)


def _costs(tenant: Tenant, month: Period, by: costs.GroupBy, now: datetime) -> Costs:
    """Returns the costs of a month until now. Raises `NoPrice` and `RateLimited`."""
    call_limits.charge_costs(tenant)
    return costs.costs(tenant, month.start, min(now, month.end), by, now)


def _labelled_rows(month_costs: Costs, tenant: Tenant) -> list[tuple[CostRow, str, float]]:
    """Returns rows with their labels and their share of the total in percent."""
    names = billing_access.names_of(tenant)
    total = sum((row.amount for row in month_costs.rows), Decimal(0))
    return [
        (
            row,
            _label(row, names, month_costs.rows),
            float(max(row.amount, Decimal(0)) / total * 100) if total > 0 else 0.0,
        )
        for row in month_costs.rows
    ]


def _label(row: CostRow, names: dict[str, str], rows: Sequence[CostRow]) -> str:
    if not row.key and not row.instance_id:
        return str(_("Account"))
    if row.key == row.instance_id:
        return names.get(row.key, row.key)
    labels = {OTHERS: _("All others"), UNUSED: _("Not used")}
    return str(labels.get(row.key, row.key))
