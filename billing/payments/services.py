"""Writes: a payment that a provider reported, and what it does to its invoice."""

from __future__ import annotations

from datetime import datetime

import structlog
from django.db import transaction
from django.utils.translation import gettext_noop

from billing.invoices import issuing
from billing.invoices.open_amounts import with_open_amount
from billing.models import Invoice, InvoiceKind, InvoiceState, Payment
from billing.models.invoices import REFERENCE_CHARS_MAX
from billing.payments.decide import Owed, effect
from billing.payments.reported import Reported
from tenants import access, audit
from tenants.actors import Actor, system_actor
from tenants.choices import Scope
from tenants.errors import Conflict

log = structlog.get_logger(__name__)


@transaction.atomic
def receive(reported: Reported, now: datetime) -> Payment:
    """The payment as it is recorded; the one there is, if it was reported before. Never refused: money that came is
    recorded, with what an operator has to look at.
    """
    # One payment of an invoice after the other, and a closing of it before or after both.
    found = Invoice.objects.filter(kind=InvoiceKind.INVOICE, number=reported.invoice_number)
    invoice = found.select_for_update().defer("inputs").first()
    known = Payment.objects.filter(provider_id=reported.payment_id).first()
    if known is not None:
        return known
    found_effect = effect(_owed(invoice), reported.amount, reported.currency)
    payment, is_new = Payment.objects.get_or_create(
        provider_id=reported.payment_id,
        defaults={
            "invoice": invoice, "invoice_number": reported.invoice_number, "amount": reported.amount,
            "currency": reported.currency, "problem": found_effect.problem, "received_at": now,
        },
    )  # fmt: skip
    if is_new and found_effect.problem:
        log.warning("payment_needs_operator", payment=payment.pk, problem=found_effect.problem)
    if is_new and found_effect.closes and invoice is not None:
        issuing.close(
            acting=system_actor("payments"), invoice=invoice, state=InvoiceState.PAID,
            reference=f"payment {reported.payment_id}"[:REFERENCE_CHARS_MAX], now=now,
        )  # fmt: skip
    return payment


@transaction.atomic
def handle(*, acting: Actor, payment: Payment, now: datetime) -> Payment:
    """An operator looked after its problem, in the bank or elsewhere. What it counts for stays.

    Raises:
        Conflict: it has no problem, or was looked after.
    """
    access.require(acting, Scope.OPERATOR)
    locked = Payment.objects.select_for_update().get(pk=payment.pk)
    if not locked.problem or locked.handled_at is not None:
        raise Conflict(gettext_noop("There is nothing to look after."), code="nothing_to_do")
    locked.handled_at = now
    locked.save(update_fields=["handled_at"])
    tenant = None if locked.invoice is None else locked.invoice.tenant
    after = {"provider_id": locked.provider_id, "problem": locked.problem}
    audit.record(acting, "payment.handled", locked, None, after, tenant=tenant)
    return locked


def _owed(invoice: Invoice | None) -> Owed | None:
    if invoice is None:
        return None
    found = with_open_amount(Invoice.objects.filter(pk=invoice.pk)).values_list("open_amount", flat=True)
    return Owed(amount=found.get(), currency=invoice.currency, is_closed=invoice.state != InvoiceState.ISSUED)
