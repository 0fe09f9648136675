"""Reads: a tenant's ledger and balances, and the credit of all tenants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple, cast

from django.db.models import Q, QuerySet, Sum, Value
from django.db.models.functions import Coalesce

from billing.models import Invoice, LedgerEntry, LedgerKind
from billing.models.money import MoneyField
from tenants.models import Tenant

ZERO = Decimal(0)
ZERO_SUM = Value(ZERO, output_field=MoneyField())


class Balance(NamedTuple):
    """Sums in one currency. `balance` is the amount that the tenant owes: the open amounts less the credit."""

    currency: str
    balance: Decimal
    open_amount: Decimal
    credit: Decimal


class TenantCredit(NamedTuple):
    """Credit of one tenant in one currency."""

    tenant_id: str
    name: str
    slug: str
    currency: str
    credit: Decimal


def entries_of(tenant: Tenant, currency: str | None = None) -> QuerySet[LedgerEntry]:
    """Returns the entries of a statement, without transfers, whose two entries cancel out."""
    entries = LedgerEntry.objects.filter(tenant=tenant).exclude(kind=LedgerKind.TRANSFER)
    if currency is not None:
        entries = entries.filter(currency=currency)
    return entries.select_related("invoice", "document").defer("invoice__inputs", "document__inputs")


def settlements_of(invoice: Invoice) -> QuerySet[LedgerEntry]:
    """Returns the entries that changed the open amount of an invoice after it was issued, oldest first."""
    entries = LedgerEntry.objects.filter(invoice=invoice).exclude(kind=LedgerKind.INVOICE)
    return entries.select_related("document").defer("document__inputs").order_by("pk")


def balances(tenant: Tenant, at: datetime | None = None) -> list[Balance]:
    """Returns the balances of all entries or of those posted until `at`: one per currency, ordered by currency code."""
    entries = LedgerEntry.objects.filter(tenant=tenant)
    if at is not None:
        entries = entries.filter(posted_at__lte=at)
    rows = (
        entries.order_by()
        .values_list("currency")
        .annotate(
            balance_=Coalesce(Sum("amount"), ZERO_SUM),
            of_invoices=Coalesce(Sum("amount", filter=Q(invoice__isnull=False)), ZERO_SUM),
            of_no_invoice=Coalesce(Sum("amount", filter=Q(invoice=None)), ZERO_SUM),
        )
    )
    return [Balance(currency, all_, open_, -of_no_invoice) for currency, all_, open_, of_no_invoice in sorted(rows)]


def credits_of_tenants(text: str = "") -> QuerySet[LedgerEntry, dict[str, Any]]:
    """Returns rows for `as_credits` of tenants with credit, the largest amount first; with `text` only tenants whose
    name or slug contains it.
    """
    entries = LedgerEntry.objects.filter(invoice=None)
    if text:
        entries = entries.filter(Q(tenant__name__icontains=text) | Q(tenant__slug__icontains=text))
    rows = (
        entries.order_by().values("tenant_id", "tenant__name", "tenant__slug", "currency").annotate(sum=Sum("amount"))
    )
    rows = rows.filter(sum__lt=0).order_by("sum", "tenant_id", "currency")
    return cast("QuerySet[LedgerEntry, dict[str, Any]]", rows)


def as_credits(rows: Iterable[Mapping[str, object]]) -> list[TenantCredit]:
    """Converts rows of `credits_of_tenants`."""
    return [
        TenantCredit(
            str(row["tenant_id"]), str(row["tenant__name"]), str(row["tenant__slug"]), str(row["currency"]),
            -Decimal(str(row["sum"])),
        )
        for row in rows
    ]  # fmt: skip
