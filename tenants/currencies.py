"""Minor units of currencies by ISO 4217, and rounding to them. Pure."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Final

DIGITS_DEFAULT: Final = 2
# Decimals of stored amounts of invoices and payments. Currencies with more are refused on input.
DIGITS_STORED_MAX: Final = 3
AMOUNT_MAX: Final = Decimal(10) ** 15
# Currencies whose minor unit is not a hundredth; a test compares the list with that of the JDK.
_DIGITS: Final = dict.fromkeys(
    ("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF",
     "XPF"), 0
) | dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3) | dict.fromkeys(
    ("CLF", "UYW"), 4
)  # fmt: skip


def minor_digits(currency: str) -> int:
    """Returns the decimals of the currency by ISO 4217: 2 for EUR, 0 for JPY, 3 for KWD."""
    return _DIGITS.get(currency, DIGITS_DEFAULT)


def amount_digits(currency: str) -> int:
    """Returns the decimals of stored amounts."""
    return min(minor_digits(currency), DIGITS_STORED_MAX)


def minor_unit(currency: str) -> Decimal:
    """Returns the smallest amount that is charged: 0.01 in EUR, 1 in JPY, 0.001 in KWD."""
    return Decimal(1).scaleb(-amount_digits(currency))


def rounded(amount: Decimal, currency: str = "EUR") -> Decimal:
    """Returns `amount` rounded half up to the smallest amount of the currency."""
    return amount.quantize(minor_unit(currency), ROUND_HALF_UP)


def fits(amount: Decimal, currency: str) -> bool:
    """True for a finite multiple of the currency's smallest amount, up to `AMOUNT_MAX`."""
    return amount.is_finite() and abs(amount) <= AMOUNT_MAX and amount == rounded(amount, currency)


def plain(amount: Decimal) -> Decimal:
    """Returns an amount for machines: with two decimals, and a third if it is not zero."""
    cents = amount.quantize(Decimal("0.01"), ROUND_HALF_UP)
    return cents if cents == amount else amount
