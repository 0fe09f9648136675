"""Operator page that closes a month: checks, and actions that the worker executes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from billing.admin_views.base import MAY_ISSUE, money_page, parse_month, render_page
from billing.invoices import month_runs
from billing.invoices.month_runs import RunKind
from billing.invoices.periods import month_before, month_of
from billing.rating.terms import Period
from billing.reporting import month_checks, month_state, revenue
from tenants.errors import DomainError
from tenants.operator import acting_operator
from tenants.wording import localized


def _period(request: HttpRequest, now: datetime) -> Period:
    """Returns the requested month, or the previous month if the request has no valid one."""
    values = request.POST if request.method == "POST" else request.GET
    start = parse_month(values.get("month", ""))
    return month_of(start) if start is not None and start <= now else month_before(month_of(now))


def _now() -> datetime:
    return timezone.now().astimezone(UTC)


@money_page()
@require_GET
def month_page(request: HttpRequest) -> HttpResponse:
    """Shows every check of the month. While a run is in progress, the page polls its state every two seconds."""
    now = _now()
    period = _period(request, now)
    name = f"{period.start:%Y-%m}"
    run = month_runs.last_run(RunKind.ISSUE, name)
    late = month_runs.last_run(RunKind.LATE, name)
    context: dict[str, Any] = {
        "period": period,
        "name": name,
        "run": run,
        "late": late,
        "runs_under_way": [run_ for run_ in (run, late) if run_ is not None and run_.is_under_way(now)],
        "is_over": period.end <= now,
    }
    if request.headers.get("HX-Request"):
        if context["runs_under_way"]:
            return render_page(request, "month_work", _("Close a month"), context)
        return HttpResponse(headers={"HX-Refresh": "true"})  # the run ended, so that the checks changed, too
    state = month_state.month_state(period, now)
    context |= {
        "months": revenue.months_until(now),
        "checks": month_checks.checks(state) if state.is_over else [],
        "to_invoice": state.to_invoice,
        "issuable": month_checks.may_issue(state),
    }
    return render_page(request, "month", _("Close a month"), context)


@money_page(MAY_ISSUE)
@require_http_methods(["GET", "POST"])
def issue_month(request: HttpRequest) -> HttpResponse:
    """Shows what issuing means and how many tenants are affected, then starts it."""
    now = _now()
    period = _period(request, now)
    if request.method == "POST":
        _start(request, RunKind.ISSUE, period, now)
        return _back(period)
    state = month_state.month_state(period, now)
    failed = [check for check in month_checks.checks(state) if check.outcome == month_checks.Outcome.FAILED]
    context = {"name": f"{period.start:%Y-%m}", "state": state, "failed": failed}
    return render_page(request, "month_issue", _("Issue the month's invoices"), context)


@money_page(MAY_ISSUE)
@require_POST
def find_late_usage(request: HttpRequest) -> HttpResponse:
    """Starts a run that looks for late usage. It changes nothing, but computes a bill for each tenant."""
    now = _now()
    period = _period(request, now)
    _start(request, RunKind.LATE, period, now)
    return _back(period)


def _start(request: HttpRequest, kind: RunKind, period: Period, now: datetime) -> None:
    try:
        month_runs.start(kind, acting=acting_operator(request), month=period.start, now=now)
    except DomainError as refusal:
        messages.error(request, localized(refusal.detail or refusal.title))
    else:
        messages.success(request, _("Started. The worker does it."))


def _back(period: Period) -> HttpResponse:
    return redirect(f"{reverse('admin:billing_month')}?month={period.start:%Y-%m}")
