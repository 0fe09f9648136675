"""Transfers between invoices and the credit balance: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

ZERO = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class InvoiceBalance:
    """Open amount of one invoice as its entries say; below zero where more was paid and credited than charged."""

    invoice_id: str
    open_amount: Decimal
    is_open: bool


@dataclass(frozen=True, slots=True)
class Transfer:
    """An amount that moves from the credit balance to an invoice; a negative one moves back."""

    invoice_id: str
    amount: Decimal


def transfers(credit: Decimal, invoices: Sequence[InvoiceBalance]) -> list[Transfer]:
    """Transfers after which no invoice has a negative open amount, and no credit is left while an invoice is open.

    `invoices` are in the order in which credit is used for them: the first one due comes first.
    """
    result = [Transfer(each.invoice_id, each.open_amount) for each in invoices if each.open_amount < ZERO]
    available = credit - sum((each.amount for each in result), ZERO)
    for invoice in invoices:
        used = min(available, invoice.open_amount)
        if invoice.is_open and used > ZERO:
            result.append(Transfer(invoice.invoice_id, used))
            available -= used
    return result
