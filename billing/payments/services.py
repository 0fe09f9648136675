"""Writes: payments that a provider reported, and their effect on invoices."""

from __future__ import annotations

from datetime import datetime

import structlog
from django.db import transaction
from django.utils.translation import gettext_noop

from billing.ledger import posting
from billing.ledger import services as ledger
from billing.ledger.services import FinalState
from billing.models import Invoice, InvoiceKind, InvoiceState, LedgerKind, Payment
from billing.models.invoices import REFERENCE_CHARS_MAX
from billing.payments.decide import PayableInvoice, problem_of
from billing.payments.reported import ReportedPayment
from tenants import access, audit
from tenants.actors import Actor, system_actor
from tenants.choices import Scope
from tenants.errors import Conflict

log = structlog.get_logger(__name__)


@transaction.atomic
def receive(reported: ReportedPayment, now: datetime) -> Payment:
    """Records a payment once per provider id and returns it.

    A payment is never refused: an excess over the open amount, or a payment in another currency, becomes credit of the
    tenant, with a problem for an operator.
    """
    invoices = Invoice.objects.filter(kind=InvoiceKind.INVOICE, number=reported.invoice_number)
    invoice = invoices.select_related("tenant").defer("inputs").first()
    if invoice is not None:
        # Serialises the payments of a tenant; the invoice is reloaded under the lock.
        posting.lock(invoice.tenant)
        invoice.refresh_from_db(fields=["state"])
    existing = Payment.objects.filter(provider_id=reported.payment_id).first()
    if existing is not None:
        return existing
    problem = problem_of(_payable(invoice), reported.amount, reported.currency)
    payment, is_new = Payment.objects.get_or_create(
        provider_id=reported.payment_id,
        defaults={
            "invoice": invoice, "invoice_number": reported.invoice_number, "amount": reported.amount,
            "currency": reported.currency, "problem": problem, "received_at": now,
        },
    )  # fmt: skip
    if is_new and problem:
        log.warning("payment_needs_operator", payment=payment.pk, problem=problem)
    if is_new and invoice is not None:
        _post(payment, invoice, now)
    return payment


def _post(payment: Payment, invoice: Invoice, now: datetime) -> None:
    """Posts the payment to the ledger of its currency; in another currency than the invoice's, it becomes credit."""
    tenant, currency = invoice.tenant, payment.currency
    paid = invoice if currency == invoice.currency else None
    reference = f"payment {payment.provider_id}"[:REFERENCE_CHARS_MAX]
    if paid is not None:
        ledger.reverse_write_off(paid, payment.amount, now)
    posting.post(
        tenant, currency, LedgerKind.PAYMENT, -payment.amount, now=now, invoice=paid, payment=payment,
        reference=reference,
    )  # fmt: skip
    ledger.apply_credit(
        acting=system_actor("payments"), tenant=tenant, currency=currency, now=now,
        final_states={invoice.pk: FinalState(InvoiceState.PAID, reference)},
    )  # fmt: skip


@transaction.atomic
def handle(*, acting: Actor, payment: Payment, now: datetime) -> Payment:
    """Marks a payment's problem as handled by an operator. The posted amounts do not change.

    Raises:
        Conflict: the payment has no problem, or it was handled already.
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


def _payable(invoice: Invoice | None) -> PayableInvoice | None:
    if invoice is None:
        return None
    is_closed = invoice.state != InvoiceState.ISSUED
    return PayableInvoice(amount=posting.open_amount(invoice), currency=invoice.currency, is_closed=is_closed)
