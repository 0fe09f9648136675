"""Reads: a tenant's ledger, its balances, and the credit of all tenants."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from django.db.models import Q, QuerySet, Sum, Value
from django.db.models.functions import Coalesce

from billing.models import Invoice, LedgerEntry, LedgerKind
from billing.models.money import MoneyField
from tenants.models import Tenant

ZERO = Decimal(0)
NOTHING = Value(ZERO, output_field=MoneyField())


class Balance(NamedTuple):
    """Sums of one currency: `balance` is what the tenant owes, the open amounts less the credit."""

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
    """Entries as a statement shows them. Transfers are left out: the two of each cancel out."""
    found = LedgerEntry.objects.filter(tenant=tenant).exclude(kind=LedgerKind.TRANSFER)
    if currency is not None:
        found = found.filter(currency=currency)
    return found.select_related("invoice", "document").defer("invoice__inputs", "document__inputs")


def settlements_of(invoice: Invoice) -> QuerySet[LedgerEntry]:
    """Entries that changed the open amount of an invoice since it was issued, in their order."""
    found = LedgerEntry.objects.filter(invoice=invoice).exclude(kind=LedgerKind.INVOICE)
    return found.select_related("document").defer("document__inputs").order_by("pk")


def balances(tenant: Tenant, at: datetime | None = None) -> list[Balance]:
    """Balances of each currency by name, at the end of all entries or of those posted until `at`."""
    found = LedgerEntry.objects.filter(tenant=tenant)
    if at is not None:
        found = found.filter(posted_at__lte=at)
    rows = (
        found.order_by()
        .values_list("currency")
        .annotate(
            balance_=Coalesce(Sum("amount"), NOTHING),
            of_invoices=Coalesce(Sum("amount", filter=Q(invoice__isnull=False)), NOTHING),
            of_none=Coalesce(Sum("amount", filter=Q(invoice=None)), NOTHING),
        )
    )
    return [Balance(currency, all_, open_, -of_none) for currency, all_, open_, of_none in sorted(rows)]


def credits_of_tenants(words: str = "") -> QuerySet[LedgerEntry, TenantCredit]:
    """Tenants with credit, the most first; of those whose name has the words in it."""
    found = LedgerEntry.objects.filter(invoice=None)
    if words:
        found = found.filter(Q(tenant__name__icontains=words) | Q(tenant__slug__icontains=words))
    rows = found.order_by().values("tenant_id", "tenant__name", "tenant__slug", "currency").annotate(sum=Sum("amount"))
    return rows.filter(sum__lt=0).order_by("sum", "tenant_id", "currency")  # type: ignore[return-value]


def as_credits(rows: Iterable[dict[str, object]]) -> list[TenantCredit]:
    """Rows of `credits_of_tenants`."""
    return [
        TenantCredit(
            str(row["tenant_id"]), str(row["tenant__name"]), str(row["tenant__slug"]), str(row["currency"]),
            -Decimal(str(row["sum"])),
        )
        for row in rows
    ]  # fmt: skip
