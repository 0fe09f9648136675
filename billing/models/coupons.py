"""Coupons: discounts that tenants obtain by a code."""

from __future__ import annotations

import re
import secrets
from decimal import Decimal

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from billing.models.agreements import DISCOUNT_CODE_CHARS_MAX, PERCENT, validate_fits
from billing.models.money import MoneyField
from billing.models.plans import CURRENCY_PATTERN

CODE_CHARS_MIN = 6
MONTHS_MAX = 36
REDEMPTIONS_MAX = 1_000_000
CODE = RegexValidator(
    rf"\A[A-Z0-9][A-Z0-9-]{{{CODE_CHARS_MIN - 1},{DISCOUNT_CODE_CHARS_MAX - 1}}}\Z",
    _("6 to 32 of A-Z, 0-9 and hyphens."),
)
# Characters that are not easily confused.
ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
GROUPS, GROUP_CHARS = 3, 4


def new_code() -> str:
    """Returns a random code with 60 bits of entropy."""
    return "-".join("".join(secrets.choice(ALPHABET) for _ in range(GROUP_CHARS)) for _ in range(GROUPS))


class Coupon(models.Model):
    """Coupon that gives a tenant a `Discount` for `months` months, beginning with the current one."""

    code = models.CharField(
        _("code"), max_length=DISCOUNT_CODE_CHARS_MAX, unique=True, default=new_code, validators=(CODE,)
    )
    percent = models.DecimalField(_("percent"), max_digits=5, decimal_places=2, default=0, validators=PERCENT)
    amount = MoneyField(
        _("amount"), max_digits=13, default=0, validators=(MinValueValidator(Decimal(0)),),
        help_text=_("Of each month."),
    )  # fmt: skip
    currency = models.CharField(_("currency"), max_length=3, blank=True, default="", help_text=_("Of the amount."))
    months = models.PositiveSmallIntegerField(
        _("months"), default=1, validators=(MinValueValidator(1), MaxValueValidator(MONTHS_MAX))
    )
    redeemable_until = models.DateTimeField(_("redeemable until"), null=True, blank=True)
    redemptions_max = models.PositiveIntegerField(
        _("tenants at most"), default=1, validators=(MinValueValidator(1), MaxValueValidator(REDEMPTIONS_MAX))
    )

    class Meta:
        ordering = ("-id",)
        verbose_name = _("coupon")
        verbose_name_plural = _("coupons")
        constraints = (
            models.CheckConstraint(condition=Q(percent__gte=0, percent__lte=100, amount__gte=0), name="coupon_amounts"),
            models.CheckConstraint(condition=Q(percent__gt=0) | Q(amount__gt=0), name="coupon_is_worth_something"),
            models.CheckConstraint(condition=Q(amount=0) | ~Q(currency=""), name="coupon_amount_has_currency"),
            models.CheckConstraint(
                condition=Q(months__gte=1, months__lte=MONTHS_MAX, redemptions_max__gte=1), name="coupon_counts"
            ),
        )

    def __str__(self) -> str:
        return self.code

    def clean(self) -> None:
        """Checks that the coupon has a value, and an amount has a currency."""
        super().clean()
        if not self.percent and not self.amount:
            raise ValidationError(_("A coupon takes a percentage off, an amount, or both."))
        if self.amount and not self.currency:
            raise ValidationError({"currency": _("An amount is of a currency.")})
        if self.currency and not re.fullmatch(CURRENCY_PATTERN, self.currency):
            raise ValidationError({"currency": _("A currency is three letters, such as EUR.")})
        validate_fits("amount", self.amount, self.currency)
