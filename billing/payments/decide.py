"""What a payment does to its invoice: pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from billing.models.payments import PaymentProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Owed:
    """An invoice as it stands: `amount` is what credit notes and earlier payments leave of it."""

    amount: Decimal
    currency: str
    is_closed: bool


@dataclass(frozen=True, slots=True)
class Effect:
    """`problem` is what an operator has to look at, empty where there is nothing."""

    closes: bool
    problem: str


def effect(owed: Owed | None, amount: Decimal, currency: str) -> Effect:
    """A payment closes its invoice as soon as nothing is left of it. What it exceeds that by has to be paid back."""
    if owed is None:
        return Effect(False, PaymentProblem.UNKNOWN_INVOICE)
    if owed.is_closed:
        return Effect(False, PaymentProblem.CLOSED)
    if owed.currency != currency:
        return Effect(False, PaymentProblem.OTHER_CURRENCY)
    return Effect(amount >= owed.amount, PaymentProblem.OVERPAID if amount > owed.amount else "")
