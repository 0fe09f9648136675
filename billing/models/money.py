"""Database columns of amounts; migrations name the field by this place."""

from tenants.money_field import AMOUNT_DIGITS_MAX, MoneyField

__all__ = ["AMOUNT_DIGITS_MAX", "MoneyField"]
