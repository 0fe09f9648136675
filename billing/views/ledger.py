"""Account statement: the ledger of a tenant in one currency, as a page and as CSV."""

from __future__ import annotations

import re
from decimal import Decimal

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET

from billing.ledger import selectors
from billing.ledger.selectors import Balance
from billing.models.plans import CURRENCY_PATTERN
from tenants import access, csv_files
from tenants.api.pages import page_of_rows
from tenants.choices import Scope
from tenants.limits import PAGE_SIZE_DEFAULT
from tenants.models import Tenant
from tenants.views.base import console_page, render_page

HEAD = ("posted_at", "kind", "number", "invoice", "reference", "amount", "balance", "currency")


@console_page(Scope.BILLING_READ)
@require_GET
def ledger_page(request: HttpRequest) -> HttpResponse:
    """Shows the balance and the entries, latest first, 50 on a page."""
    tenant = access.tenant_of(request.actor)  # type: ignore[attr-defined]
    currency = _currency(request, tenant)
    rows, next_token = page_of_rows(
        selectors.entries_of(tenant, currency), order=("-id",), page_size=PAGE_SIZE_DEFAULT,
        page_token=request.GET.get("page_token") or None, binding=f"ledger page {currency}",
    )  # fmt: skip
    balances = selectors.balances(tenant)
    zero = Decimal(0)
    context = {
        "rows": rows, "next_token": next_token, "is_first": "page_token" not in request.GET, "currency": currency,
        "balance": next(
            (balance for balance in balances if balance.currency == currency), Balance(currency, zero, zero, zero)
        ),
        "currencies": sorted({tenant.currency, *(balance.currency for balance in balances)}),
    }  # fmt: skip
    crumbs = [(_("Invoices"), "/invoices/"), (_("Account statement"), None)]
    return render_page(request, "billing/ledger.html", context, section="invoices", crumbs=crumbs)


@console_page(Scope.BILLING_READ)
@require_GET
def ledger_csv(request: HttpRequest) -> HttpResponse:
    """Exports all entries of the currency as CSV, oldest first."""
    tenant = access.tenant_of(request.actor)  # type: ignore[attr-defined]
    currency = _currency(request, tenant)
    rows = selectors.entries_of(tenant, currency).order_by("id").iterator(chunk_size=500)
    lines = (
        (
            row.posted_at.isoformat(), row.kind, row.document.number if row.document else "",
            row.invoice.number if row.invoice else "", csv_files.inert(row.reference), row.amount, row.balance,
            row.currency,
        )
        for row in rows
    )  # fmt: skip
    return csv_files.response(f"ledger-{currency}.csv", HEAD, lines, for_excel=csv_files.is_for_excel(request))  # type: ignore[return-value]


def _currency(request: HttpRequest, tenant: Tenant) -> str:
    """Returns the requested currency, or the tenant's if it is invalid."""
    requested = request.GET.get("currency", "")
    return requested if re.fullmatch(CURRENCY_PATTERN, requested) else tenant.currency
