"""Database field of amounts, re-exported because migrations import it from this module."""

from tenants.money_field import AMOUNT_DIGITS_MAX, MoneyField

__all__ = ["AMOUNT_DIGITS_MAX", "MoneyField"]
