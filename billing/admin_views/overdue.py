"""Operator page of overdue invoices, its CSV export, and the page that marks an invoice as paid."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods

from billing.admin_views.base import MAY_CLOSE, money_page, page_of, query, render_page, search_text
from billing.invoices import issuing
from billing.models import InvoiceState
from billing.models.invoices import REFERENCE_CHARS_MAX
from billing.reporting import overdue
from billing.reporting.overdue import Age
from tenants import csv_files
from tenants.errors import DomainError
from tenants.operator import acting_operator
from tenants.wording import localized

AGES = (
    (Age.TO_30, gettext_lazy("0 to 30 days")),
    (Age.TO_60, gettext_lazy("31 to 60 days")),
    (Age.TO_90, gettext_lazy("61 to 90 days")),
    (Age.OVER_90, gettext_lazy("Over 90 days")),
)
HEAD = (
    "number", "tenant", "name", "due", "days_overdue", "open_amount", "currency", "reminders", "suspended",
)  # fmt: skip


def _age(request: HttpRequest) -> Age | None:
    value = request.GET.get("age", "")
    return Age(value) if value in list(Age) else None


@money_page()
@require_GET
def overdue_page(request: HttpRequest) -> HttpResponse:
    """Lists overdue invoices, the earliest due date first."""
    now, text, age = timezone.now().astimezone(UTC), search_text(request), _age(request)
    sums = overdue.sums_by_age(now, text)
    count = sum(age_sum.invoices for age_sum in sums if age is None or age_sum.age == age)
    rows = page_of(request, overdue.overdue(now, search_text=text, age=age), count)
    context: dict[str, Any] = {
        "rows": rows,
        "lines": [(invoice, (now - invoice.due_at).days) for invoice in rows],
        "debts": overdue.receivables(sums),
        "ages": AGES,
        "age": age,
        "words": text,
        "address": query(age=age or "", q=text),
        "without_age": query(q=text),
    }
    return render_page(request, "overdue", _("Overdue"), context)


@money_page()
@require_GET
def overdue_csv(request: HttpRequest) -> HttpResponse:
    """Exports all rows of the current filter as CSV."""
    now = timezone.now().astimezone(UTC)

    def lines() -> Iterator[tuple[Any, ...]]:
        invoices = overdue.overdue(now, search_text=search_text(request), age=_age(request))
        for invoice in invoices.iterator(chunk_size=500):
            yield (
                csv_files.inert(invoice.number), csv_files.inert(invoice.tenant.slug),
                csv_files.inert(invoice.tenant.name), invoice.due_at.isoformat(), (now - invoice.due_at).days,
                invoice.open_amount, invoice.currency,
                invoice.last_reminder or 0, int(invoice.tenant.is_suspended),
            )  # fmt: skip

    return csv_files.response(_file_name(now), HEAD, lines(), for_excel=csv_files.is_for_excel(request))  # type: ignore[return-value]


def _file_name(now: datetime) -> str:
    return f"overdue-{now:%Y-%m-%d}.csv"


@money_page(MAY_CLOSE)
@require_http_methods(["GET", "POST"])
def mark_paid(request: HttpRequest, invoice_id: str) -> HttpResponse:
    """Marks an invoice as paid; a reference of the payment is required."""
    invoice = get_object_or_404(overdue.open_invoices(), pk=invoice_id)
    if request.method == "POST":
        try:
            issuing.close(
                acting=acting_operator(request).within(invoice.tenant), invoice=invoice, state=InvoiceState.PAID,
                reference=request.POST.get("reference", ""), now=timezone.now(),
            )  # fmt: skip
        except DomainError as refusal:
            sentences = [error.detail for error in refusal.errors] or [refusal.detail or refusal.title]
            messages.error(request, " ".join(localized(sentence) for sentence in sentences))
        else:
            messages.success(request, _("%(number)s is paid.") % {"number": invoice.number})
            return redirect("admin:billing_overdue")
    context = {"invoice": invoice, "reference_chars_max": REFERENCE_CHARS_MAX}
    return render_page(request, "mark_paid", _("Mark as paid"), context)
