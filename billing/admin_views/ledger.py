"""Operator page of credit balances, and the pages that record a refund and issue a credit note."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods

from billing import access
from billing.admin_views.base import MAY_CLOSE, money_page, page_of, query, render_page, search_text
from billing.invoices import issuing
from billing.ledger import posting, selectors, services
from billing.models.invoices import NOTE_CHARS_MAX, REFERENCE_CHARS_MAX
from tenants.errors import DomainError
from tenants.models import Tenant
from tenants.operator import acting_operator
from tenants.wording import localized

AMOUNT_CHARS_MAX = 16


@money_page()
@require_GET
def credits_page(request: HttpRequest) -> HttpResponse:
    """Lists tenants with credit, the largest amount first."""
    text = search_text(request)
    rows = page_of(request, selectors.credits_of_tenants(text))
    context: dict[str, Any] = {
        "rows": rows,
        "lines": selectors.as_credits(rows),
        "words": text,
        "address": query(q=text),
        "ledger": reverse("admin:billing_ledgerentry_changelist"),
    }
    return render_page(request, "credits", _("Credit balances"), context)


@money_page(MAY_CLOSE)
@require_http_methods(["GET", "POST"])
def refund_page(request: HttpRequest, tenant_id: str, currency: str) -> HttpResponse:
    """Records that credit was paid back; asks for the reference of the transfer."""
    tenant = get_object_or_404(Tenant, pk=tenant_id)
    credit = posting.credit_balance(tenant, currency)
    amount = request.POST.get("amount", str(credit))[:AMOUNT_CHARS_MAX]
    if request.method == "POST":
        try:
            entry = services.refund(
                acting=acting_operator(request).within(tenant), tenant=tenant, currency=currency,
                amount=_decimal(amount), reference=request.POST.get("reference", ""), now=timezone.now(),
            )  # fmt: skip
        except DomainError as refusal:
            sentences = [error.detail for error in refusal.errors] or [refusal.detail or refusal.title]
            messages.error(request, " ".join(localized(sentence) for sentence in sentences))
        else:
            values = {"amount": f"{entry.amount} {entry.currency}", "tenant": tenant.name}
            messages.success(request, _("Refund of %(amount)s to %(tenant)s is recorded.") % values)
            return redirect("admin:billing_credits")
    context = {
        "tenant": tenant, "currency": currency, "credit": credit, "amount": amount,
        "reference": request.POST.get("reference", ""), "reference_chars_max": REFERENCE_CHARS_MAX,
    }  # fmt: skip
    return render_page(request, "refund", _("Record a refund"), context)


@money_page(MAY_CLOSE)
@require_http_methods(["GET", "POST"])
def credit_page(request: HttpRequest, invoice_id: str) -> HttpResponse:
    """Issues a credit note; asks for the reason."""
    invoice = get_object_or_404(access.invoices_of_all(), pk=invoice_id)
    creditable = issuing.amounts_to_credit(invoice)
    amount = request.POST.get("amount", str(creditable.net))[:AMOUNT_CHARS_MAX]
    if request.method == "POST":
        try:
            credit_note = issuing.credit(
                acting=acting_operator(request).within(invoice.tenant), invoice=invoice, amount=_decimal(amount),
                note=request.POST.get("note", "")[:NOTE_CHARS_MAX], now=timezone.now(),
            )  # fmt: skip
        except DomainError as refusal:
            sentences = [error.detail for error in refusal.errors] or [refusal.detail or refusal.title]
            messages.error(request, " ".join(localized(sentence) for sentence in sentences))
        else:
            values = {"number": credit_note.number, "amount": f"{credit_note.total} {credit_note.currency}"}
            messages.success(request, _("Credit note %(number)s over %(amount)s is issued.") % values)
            return redirect("admin:billing_invoice_changelist")
    context = {
        "invoice": invoice, "left": creditable, "amount": amount, "note": request.POST.get("note", ""),
        "note_chars_max": NOTE_CHARS_MAX,
    }  # fmt: skip
    return render_page(request, "credit_note", _("Issue a credit note"), context)


def _decimal(text: str) -> Decimal:
    """Parses an amount; NaN for invalid text, which the service refuses."""
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        return Decimal("NaN")
