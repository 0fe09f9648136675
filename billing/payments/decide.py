"""Effect of a payment on its invoice: pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from billing.models.payments import PaymentProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class PayableInvoice:
    """State of an invoice: `amount` is what remains after credit notes and earlier payments."""

    amount: Decimal
    currency: str
    is_closed: bool


def problem_of(invoice: PayableInvoice | None, amount: Decimal, currency: str) -> str:
    """Returns the problem that an operator must look at; empty if the payment fits.

    A payment closes its invoice as soon as nothing remains open; any excess becomes credit.
    """
    if invoice is None:
        return PaymentProblem.UNKNOWN_INVOICE
    if invoice.currency != currency:
        return PaymentProblem.OTHER_CURRENCY
    if invoice.is_closed:
        return PaymentProblem.CLOSED
    return PaymentProblem.OVERPAID if amount > invoice.amount else ""
