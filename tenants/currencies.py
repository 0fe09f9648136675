"""Minor units of currencies by ISO 4217, and rounding to them. Pure."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Final

DIGITS_DEFAULT: Final = 2
# Decimals of the columns of invoices and payments. Currencies with more are refused where one is entered.
DIGITS_STORED_MAX: Final = 2
# The currencies in use whose minor unit is not a hundredth; a test compares the list with the one of the JDK.
_DIGITS: Final = dict.fromkeys(
    ("BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF",
     "XPF"), 0
) | dict.fromkeys(("BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"), 3)  # fmt: skip


def minor_digits(currency: str) -> int:
    """Decimals of the currency by ISO 4217: 2 of EUR, 0 of JPY, 3 of KWD."""
    return _DIGITS.get(currency, DIGITS_DEFAULT)


def amount_digits(currency: str) -> int:
    """Decimals of an amount that is stored."""
    return min(minor_digits(currency), DIGITS_STORED_MAX)


def minor_unit(currency: str) -> Decimal:
    """The smallest amount that is charged: 0.01 in EUR, 1 in JPY."""
    return Decimal(1).scaleb(-amount_digits(currency))


def rounded(amount: Decimal, currency: str = "EUR") -> Decimal:
    """Returns `amount` rounded half up to the smallest amount of the currency."""
    return amount.quantize(minor_unit(currency), ROUND_HALF_UP)
