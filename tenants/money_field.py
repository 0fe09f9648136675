"""Database columns of amounts of money."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.db import models

from tenants.currencies import DIGITS_STORED_MAX, plain

AMOUNT_DIGITS_MAX = 15


class MoneyField(models.DecimalField):
    """Amount in any currency: stored with three decimals, and read with two if the third is zero."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("max_digits", AMOUNT_DIGITS_MAX)
        kwargs.setdefault("decimal_places", DIGITS_STORED_MAX)
        super().__init__(*args, **kwargs)

    def from_db_value(self, value: Decimal | None, *_of: Any) -> Decimal | None:
        return None if value is None else plain(value)
