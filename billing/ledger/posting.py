"""Writes: single ledger entries, and the lock that protects all posting."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from django.db.models import Sum

from billing.models import Invoice, LedgerEntry, LedgerKind, Payment
from tenants.models import Tenant

ZERO = Decimal(0)


def lock(tenant: Tenant) -> None:
    """Locks a tenant's ledger until the transaction ends. It must be locked before invoices and payments."""
    Tenant.objects.select_for_update(no_key=True).get(pk=tenant.pk)


def post(
    tenant: Tenant,
    currency: str,
    kind: LedgerKind,
    amount: Decimal,
    *,
    now: datetime,
    invoice: Invoice | None = None,
    document: Invoice | None = None,
    payment: Payment | None = None,
    reference: str = "",
) -> LedgerEntry:
    """Posts one entry. The caller must have locked the ledger (`lock`)."""
    return LedgerEntry.objects.create(
        tenant=tenant, currency=currency, kind=kind, amount=amount, balance=balance(tenant, currency) + amount,
        invoice=invoice, document=document, payment=payment, reference=reference, posted_at=now,
    )  # fmt: skip


def balance(tenant: Tenant, currency: str) -> Decimal:
    """Returns the amount that the tenant owes in this currency; negative if the seller owes it."""
    last = LedgerEntry.objects.filter(tenant=tenant, currency=currency).order_by("-pk").first()
    return ZERO if last is None else last.balance


def credit_balance(tenant: Tenant, currency: str) -> Decimal:
    """Returns the credit balance, which is used for later invoices or refunded; not negative after transfers."""
    of_no_invoice = LedgerEntry.objects.filter(tenant=tenant, currency=currency, invoice=None)
    return -(of_no_invoice.aggregate(sum=Sum("amount"))["sum"] or ZERO)


def open_amount(invoice: Invoice) -> Decimal:
    """Returns the sum of the invoice's entries."""
    return LedgerEntry.objects.filter(invoice=invoice).aggregate(sum=Sum("amount"))["sum"] or ZERO
