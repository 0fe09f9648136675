"""Reports of a payment provider by Standard Webhooks (standardwebhooks.com): signature and content. Pure."""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from notifications.webhooks.signing import signature
from tenants.currencies import fits

TOLERANCE_S = 300
SIGNATURES_MAX = 8
ID_CHARS_MAX = 100
CURRENCY_CHARS = 3
AMOUNT_MAX = Decimal(10) ** 11
SUCCEEDED = "payment.succeeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPayment:
    """Successful payment: `amount` of `currency` for the invoice with this number."""

    payment_id: str
    invoice_number: str
    amount: Decimal
    currency: str


def is_signed(headers: Mapping[str, str], body: bytes, secrets: Sequence[str], now_s: float) -> bool:
    """True if the message has a signature by one of the secrets, and a time within five minutes of `now_s` (Unix time).

    Signatures are compared in constant time.
    """
    message_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not (
        0 < len(message_id) <= ID_CHARS_MAX and message_id.isascii() and timestamp.isascii() and timestamp.isdigit()
    ):
        return False
    if len(timestamp) > len(str(int(now_s))) or abs(now_s - int(timestamp)) > TOLERANCE_S:
        return False
    signatures = headers.get("webhook-signature", "").encode("utf-8", "replace").split()[:SIGNATURES_MAX]
    valid_signatures = [signature(secret, message_id, int(timestamp), body).encode() for secret in secrets]
    return any(hmac.compare_digest(given, valid) for given in signatures for valid in valid_signatures)


def parse_payment(body: bytes) -> ReportedPayment | None:
    """Parses the payment; None for an event of another type.

    Raises:
        ValueError: the message states what is wrong.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("The body is JSON.") from None
    if not isinstance(document, dict):
        raise ValueError("The body is an object.")
    if document.get("type") != SUCCEEDED:
        return None
    data = document.get("data")
    if not isinstance(data, dict):
        raise ValueError("`data` is an object.")
    currency = _currency(data)
    return ReportedPayment(
        payment_id=_text(data, "payment_id", ID_CHARS_MAX),
        invoice_number=_text(data, "invoice", 32),
        amount=_amount(data.get("amount"), currency),
        currency=currency,
    )


def _text(data: Mapping[str, Any], name: str, chars_max: int) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= chars_max or not value.isprintable():
        raise ValueError(f"`{name}` is a text of 1 to {chars_max} characters.")
    return value


def _currency(data: Mapping[str, Any]) -> str:
    """Returns the code in capitals; some providers write `eur`."""
    currency = _text(data, "currency", CURRENCY_CHARS)
    if len(currency) != CURRENCY_CHARS or not (currency.isascii() and currency.isalpha()):
        raise ValueError("`currency` is a code of three letters, such as EUR.")
    return currency.upper()


def _amount(value: Any, currency: str) -> Decimal:
    try:
        amount = Decimal(value) if isinstance(value, str) and len(value) <= 16 else None
    except InvalidOperation:
        amount = None
    if amount is None or not amount.is_finite() or not 0 < amount < AMOUNT_MAX or not fits(amount, currency):
        raise ValueError("`amount` is a number above zero with the decimals of its currency, as a text.")
    return amount
