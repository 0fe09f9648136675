"""Writes: transfers between invoices and the credit balance, the closing of paid invoices, and refunds."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Q, QuerySet, Sum
from django.utils.translation import gettext_noop

from billing.dunning import services as dunning
from billing.invoices.open_amounts import with_open_amount
from billing.ledger import posting
from billing.ledger.decide import ZERO, InvoiceBalance, transfers
from billing.models import Invoice, InvoiceKind, InvoiceState, LedgerEntry, LedgerKind
from billing.models.invoices import REFERENCE_CHARS_MAX
from notifications.models import WebhookEvent
from notifications.webhooks.services import publish
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.currencies import fits, minor_unit
from tenants.errors import Conflict, Invalid, Message
from tenants.models import Tenant

CLOSED_WEBHOOK_EVENTS = {
    InvoiceState.PAID: WebhookEvent.INVOICE_PAID,
    InvoiceState.SETTLED: WebhookEvent.INVOICE_SETTLED,
    InvoiceState.WRITTEN_OFF: WebhookEvent.INVOICE_WRITTEN_OFF,
}
CLOSED_AUDIT_ACTIONS = {
    InvoiceState.PAID: "invoice.paid",
    InvoiceState.SETTLED: "invoice.settled",
    InvoiceState.WRITTEN_OFF: "invoice.written_off",
}


class FinalState(NamedTuple):
    """Final state of an invoice with its reference."""

    state: InvoiceState
    reference: str


SETTLED = FinalState(InvoiceState.SETTLED, "")


def apply_credit(
    *,
    acting: Actor,
    tenant: Tenant,
    currency: str,
    now: datetime,
    final_states: Mapping[str, FinalState] | None = None,
) -> None:
    """Makes the transfers that are due, closes invoices that are paid, and ends a suspension because of them.

    The caller must have locked the ledger. `final_states` has, by invoice id, final states other than `SETTLED`.
    """
    rows = list(_balances(tenant, currency))
    by_id = {row.pk: row for row in rows}
    balances = [
        InvoiceBalance(invoice_id=row.pk, open_amount=row.open_amount, is_open=row.state == InvoiceState.ISSUED)  # type: ignore[attr-defined]
        for row in rows
    ]
    open_amounts = {balance.invoice_id: balance.open_amount for balance in balances}
    for transfer in transfers(posting.credit_balance(tenant, currency), balances):
        _transfer(tenant, by_id[transfer.invoice_id], transfer.amount, now)
        open_amounts[transfer.invoice_id] -= transfer.amount
    for row in rows:
        if row.state == InvoiceState.ISSUED and open_amounts[row.pk] == ZERO:
            mark_closed(acting, row, (final_states or {}).get(row.pk, SETTLED), now)
    dunning.resume_if_paid(tenant, now)


def _balances(tenant: Tenant, currency: str) -> QuerySet[Invoice]:
    """Returns invoices that are open or overpaid, by due date."""
    invoices = Invoice.objects.filter(tenant=tenant, currency=currency, kind=InvoiceKind.INVOICE).defer("inputs")
    rows = with_open_amount(invoices).filter(Q(state=InvoiceState.ISSUED) | ~Q(open_amount=ZERO))
    return rows.order_by("due_at", "pk")


def _transfer(tenant: Tenant, invoice: Invoice, amount: Decimal, now: datetime) -> None:
    """Posts the two entries of a transfer, which leave the balance unchanged."""
    posting.post(tenant, invoice.currency, LedgerKind.TRANSFER, amount, now=now, reference=invoice.number)
    posting.post(
        tenant, invoice.currency, LedgerKind.TRANSFER, -amount, now=now, invoice=invoice, reference=invoice.number
    )


def mark_closed(acting: Actor, invoice: Invoice, final: FinalState, now: datetime) -> None:
    """Sets the final state of an invoice, with its audit row and its webhook."""
    invoice.state, invoice.closed_at, invoice.reference = final.state, now, final.reference
    invoice.save(update_fields=["state", "closed_at", "reference"])
    after = {"state": final.state, "reference": final.reference}
    audit.record(
        acting, CLOSED_AUDIT_ACTIONS[final.state], invoice, {"state": InvoiceState.ISSUED}, after, tenant=invoice.tenant
    )
    publish(invoice.tenant, CLOSED_WEBHOOK_EVENTS[final.state], invoice_summary(invoice) | {"id": invoice.pk}, now)


def invoice_summary(invoice: Invoice) -> dict[str, Any]:
    return {"number": invoice.number, "total": str(invoice.total), "currency": invoice.currency}


def reverse_write_off(invoice: Invoice, amount: Decimal, now: datetime) -> None:
    """Reverses the part of a write-off that is paid or credited later, so that the tenant gets no credit for it."""
    written_off = LedgerEntry.objects.filter(invoice=invoice, kind=LedgerKind.WRITE_OFF)
    written_off_amount = -(written_off.aggregate(sum=Sum("amount"))["sum"] or ZERO)
    if (reversed_amount := min(written_off_amount, amount)) > ZERO:
        posting.post(
            invoice.tenant, invoice.currency, LedgerKind.WRITE_OFF, reversed_amount, now=now, invoice=invoice,
            reference=invoice.number,
        )  # fmt: skip


@transaction.atomic
def refund(
    *, acting: Actor, tenant: Tenant, currency: str, amount: Decimal, reference: str, now: datetime
) -> LedgerEntry:
    """Records that a part of the credit balance was paid back. The reference identifies the transfer, so it is unique.

    Raises:
        Invalid: more than the credit balance, not an amount, or no reference.
        Conflict: a refund with this reference exists.
    """
    access.require(acting, Scope.OPERATOR)
    posting.lock(tenant)
    reference = reference.strip()
    if not 0 < len(reference) <= REFERENCE_CHARS_MAX:
        raise Invalid.at("/reference", gettext_noop("Say by which transfer it was paid back."), code="required")
    if LedgerEntry.objects.filter(tenant=tenant, kind=LedgerKind.REFUND, reference=reference).exists():
        raise Conflict(gettext_noop("A refund with this reference is recorded already."), code="already_refunded")
    credit = posting.credit_balance(tenant, currency)
    if not fits(amount, currency) or not ZERO < amount <= credit:
        message = Message(
            gettext_noop("Between %(least)s and the credit balance, %(credit)s %(currency)s."),
            least=minor_unit(currency), credit=credit, currency=currency,
        )  # fmt: skip
        raise Invalid.at("/amount", message, code="out_of_range")
    entry = posting.post(tenant, currency, LedgerKind.REFUND, amount, now=now, reference=reference)
    after = {"amount": str(amount), "currency": currency, "reference": reference}
    audit.record(acting, "ledger.refunded", tenant, None, after, tenant=tenant)
    return entry
