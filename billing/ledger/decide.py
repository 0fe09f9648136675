"""Transfers between invoices and the credit balance: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

ZERO = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class InvoiceBalance:
    """Open amount of one invoice by its entries; negative if more was paid and credited than charged."""

    invoice_id: str
    open_amount: Decimal
    is_open: bool


@dataclass(frozen=True, slots=True)
class Transfer:
    """Amount that moves from the credit balance to an invoice; a negative amount moves back."""

    invoice_id: str
    amount: Decimal


def transfers(credit: Decimal, invoices: Sequence[InvoiceBalance]) -> list[Transfer]:
    """Returns transfers after which no invoice has a negative open amount, and no credit remains while an invoice is
    open.

    Credit is used for `invoices` in their order: the earliest due date comes first.
    """
    result = [Transfer(invoice.invoice_id, invoice.open_amount) for invoice in invoices if invoice.open_amount < ZERO]
    available = credit - sum((transfer.amount for transfer in result), ZERO)
    for invoice in invoices:
        used = min(available, invoice.open_amount)
        if invoice.is_open and used > ZERO:
            result.append(Transfer(invoice.invoice_id, used))
            available -= used
    return result
