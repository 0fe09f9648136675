"""Console pages of invoices: the open amount, issued documents, and each line down to its hours."""

from __future__ import annotations

from datetime import UTC

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from billing import access as billing_access
from billing import call_limits, downloads
from billing.forms import CouponForm
from billing.invoices import expansion, replays
from billing.invoices.charging import draft
from billing.invoices.notes import notes_of
from billing.invoices.periods import month_of
from billing.invoices.printing import period_hours
from billing.invoices.recompute import recompute
from billing.lake.replay import LakeBroken
from billing.ledger import posting
from billing.ledger.selectors import settlements_of
from billing.payments.links import pay_url
from billing.rating.hours import NoPrice
from tenants import access, csv_files
from tenants.api.pages import page_of_rows
from tenants.choices import Scope
from tenants.errors import Conflict, DomainError, RateLimited
from tenants.limits import PAGE_SIZE_DEFAULT
from tenants.views.base import console_page, render_page, wording
from tenants.wording import localized

LINES_SHOWN_MAX = 500
DISCOUNTS_SHOWN_MAX = 50
SETTLEMENTS_SHOWN_MAX = 100
HEAD = (
    "invoice", "position", "kind", "instance_id", "plan", "meter", "from", "until", "quantity", "unit", "unit_price",
    "amount", "currency", "hours", "period_hours", "tax_percent",
)  # fmt: skip


@console_page(Scope.BILLING_READ)
@require_GET
def invoices_page(request: HttpRequest) -> HttpResponse:
    """Lists invoices, latest first, 50 on a page, after the draft of the current month."""
    tenant, now = access.tenant_of(request.actor), timezone.now().astimezone(UTC)  # type: ignore[attr-defined]
    rows, next_token = page_of_rows(
        billing_access.invoices_of(tenant), order=("-issued_at", "-number"), page_size=PAGE_SIZE_DEFAULT,
        page_token=request.GET.get("page_token") or None, binding="invoices page",
    )  # fmt: skip
    try:
        current_draft = draft(tenant, now)
    except NoPrice:
        current_draft = None
    names = billing_access.names_of(tenant) if current_draft and current_draft.unpriced else {}
    context = {
        "rows": [(invoice, invoice.shown_state(now)) for invoice in rows],
        "next_token": next_token, "is_first": "page_token" not in request.GET,
        "open_amount": billing_access.open_amount(tenant),
        "credit": posting.credit_balance(tenant, tenant.currency),
        "unpriced": [
            names.get(instance_id, instance_id) for instance_id in (current_draft.unpriced if current_draft else ())
        ],
        "draft": current_draft, "month": month_of(now), "currency": tenant.currency,
        "discounts": billing_access.discounts_in_force(tenant, now)[:DISCOUNTS_SHOWN_MAX], "coupon_form": CouponForm(),
    }  # fmt: skip
    return render_page(request, "billing/invoices.html", context, section="invoices", crumbs=[(_("Invoices"), None)])


@console_page(Scope.BILLING_READ)
@require_GET
def invoice_page(request: HttpRequest, invoice_id: str) -> HttpResponse:
    """Shows one invoice with its lines, and with `?recompute` the result of recomputing it."""
    invoice = billing_access.invoice(request.actor, invoice_id)  # type: ignore[attr-defined]
    lines = list(billing_access.lines_of(invoice)[:LINES_SHOWN_MAX])
    names = billing_access.names_of(invoice.tenant)
    result, replay, problem = None, None, ""
    if "recompute" in request.GET:
        try:
            call_limits.charge_recomputation(invoice.tenant)
            result = recompute(invoice, lake_rows_max=call_limits.REPLAYED_ROWS_MAX)
            result, replay = replays.merge_replay(invoice, result, timezone.now())
        except RateLimited as error:
            problem = localized(error.detail)
        except (NoPrice, LakeBroken) as error:
            problem = str(error)
    context = {
        "invoice": invoice, "state": invoice.shown_state(), "recomputed": result, "trouble": problem,
        "replay": replay,
        "lines": [(line, names.get(line.instance_id, line.instance_id)) for line in lines],
        "more": billing_access.lines_of(invoice).count() - len(lines), "period_hours": period_hours(invoice),
        "has_inputs": bool(invoice.inputs) if result else True, "pay_url": pay_url(invoice),
        "settlements": settlements_of(invoice)[:SETTLEMENTS_SHOWN_MAX], "notes": notes_of(invoice),
    }  # fmt: skip
    crumbs = [(_("Invoices"), "/invoices/"), (invoice.number, None)]
    return render_page(request, "billing/invoice.html", context, section="invoices", crumbs=crumbs)


@console_page(Scope.BILLING_READ)
@require_http_methods(["GET", "POST"])
def replay_part(request: HttpRequest, invoice_id: str) -> HttpResponse:
    """Starts the replay of an invoice in the worker; GET returns its progress as a part of the invoice's page."""
    acting = request.actor  # type: ignore[attr-defined]
    invoice, now = billing_access.invoice(acting, invoice_id), timezone.now()
    if request.method == "POST":
        try:
            call_limits.charge_recomputation(invoice.tenant)
            replays.start(acting=acting, invoice=invoice, now=now)
        except DomainError as error:
            messages.error(request, wording(error))
            return redirect("page-invoice", invoice.pk)
        return redirect(f"{reverse('page-invoice', args=[invoice.pk])}?recompute")
    context = {"invoice": invoice, "replay": replays.replay_status(invoice, now), "is_part": True}
    return render(request, "billing/invoice_replay.html", context)


@console_page(Scope.BILLING_READ)
@require_GET
def line_page(request: HttpRequest, invoice_id: str, position: int) -> HttpResponse:
    """Shows the hours of a line."""
    invoice = billing_access.invoice(request.actor, invoice_id)  # type: ignore[attr-defined]
    line = billing_access.line(invoice, position)
    hours = expansion.hours_of(line)
    crumbs = [(_("Invoices"), "/invoices/"), (invoice.number, f"/invoices/{invoice.pk}/"), (str(line.position), None)]
    context = {"invoice": invoice, "line": line, "hours": hours, "period_hours": period_hours(invoice)}
    return render_page(request, "billing/invoice_line.html", context, section="invoices", crumbs=crumbs)


@console_page(Scope.BILLING_READ)
@require_GET
def invoice_csv(request: HttpRequest, invoice_id: str) -> HttpResponse:
    """Exports all lines as CSV, in UTC."""
    invoice = billing_access.invoice(request.actor, invoice_id)  # type: ignore[attr-defined]
    lines = (
        (
            invoice.number, line.position, line.kind, line.instance_id, line.plan, csv_files.inert(line.meter),
            line.start.isoformat(), line.end.isoformat(), line.quantity, line.unit, line.unit_price, line.amount,
            invoice.currency, "" if line.hours is None else line.hours, period_hours(invoice),
            invoice.tax_percent if line.tax_percent is None else line.tax_percent,
        )
        for line in billing_access.lines_of(invoice).iterator(chunk_size=500)
    )  # fmt: skip
    return csv_files.response(f"{invoice.number}.csv", HEAD, lines, for_excel=csv_files.is_for_excel(request))  # type: ignore[return-value]


@console_page(Scope.BILLING_READ)
@require_GET
def invoice_pdf(request: HttpRequest, invoice_id: str) -> HttpResponse:
    """Returns the PDF in the language of the page."""
    invoice = billing_access.invoice(request.actor, invoice_id)  # type: ignore[attr-defined]
    try:
        return downloads.invoice_pdf(invoice, get_language() or "en")
    except RateLimited as error:
        return HttpResponse(localized(error.detail), status=429, content_type="text/plain; charset=utf-8")


@console_page(Scope.BILLING_READ)
@require_GET
def invoice_xml(request: HttpRequest, invoice_id: str) -> HttpResponse:
    """Returns structured data by EN 16931, or redirects to the invoice with the reason why there is none."""
    invoice = billing_access.invoice(request.actor, invoice_id)  # type: ignore[attr-defined]
    try:
        return downloads.invoice_xml(invoice)
    except RateLimited as error:
        return HttpResponse(localized(error.detail), status=429, content_type="text/plain; charset=utf-8")
    except Conflict as error:
        messages.error(request, localized(error.detail))
        return redirect("page-invoice", invoice.pk)
