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


def problem_of(owed: Owed | None, amount: Decimal, currency: str) -> str:
    """Returns what an operator has to look at, empty where a payment fits. A payment closes its invoice as soon as
    nothing is left of it; what it exceeds that by becomes credit.
    """
    if owed is None:
        return PaymentProblem.UNKNOWN_INVOICE
    if owed.currency != currency:
        return PaymentProblem.OTHER_CURRENCY
    if owed.is_closed:
        return PaymentProblem.CLOSED
    return PaymentProblem.OVERPAID if amount > owed.amount else ""
