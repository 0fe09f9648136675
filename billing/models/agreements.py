"""Who sells, who pays, and what they agreed on over what the plans cost."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from tenants.models import Tenant

ADDRESS_CHARS_MAX = 400
ADDRESS_LINES_MAX = 8
NAME_CHARS_MAX = 120
TAX_ID_CHARS_MAX = 32
NUMBER_PREFIX_CHARS_MAX = 12
# With a letter for credit notes and a year behind the prefix.
SERIES_CHARS_MAX = 24
DISCOUNT_CODE_CHARS_MAX = 32
PAYMENT_DAYS_DEFAULT = 14
FIRST_REMINDER_DAYS_DEFAULT = 3
SECOND_REMINDER_DAYS_DEFAULT = 10
PERCENT = (MinValueValidator(Decimal(0)), MaxValueValidator(Decimal(100)))
ONLY_SELLER = 1
LINE_ENDS = re.compile(r"\r\n|\r|\n")


def validate_address(text: str) -> None:
    """Raises `ValidationError` for an address of too many lines, or with characters that cannot be printed."""
    lines = LINE_ENDS.split(text)
    if len(lines) > ADDRESS_LINES_MAX:
        raise ValidationError(_("At most %(n)d lines.") % {"n": ADDRESS_LINES_MAX}, code="too_many_lines")
    for line in lines:
        validate_line(line)


def validate_line(text: str) -> None:
    """Raises `ValidationError` for a text with line breaks, or with characters that cannot be printed."""
    if any(unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in text):
        raise ValidationError(_("It has characters that cannot be printed."), code="unprintable")


class Seller(models.Model):
    """The seller that issues invoices: one row. What an invoice shows is copied into it when it is issued."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=ONLY_SELLER, editable=False)
    name = models.CharField(_("name"), max_length=NAME_CHARS_MAX, default="Penstock", validators=(validate_line,))
    address = models.CharField(
        _("address"), max_length=ADDRESS_CHARS_MAX, blank=True, default="", validators=(validate_address,)
    )
    tax_id = models.CharField(
        _("tax id"), max_length=TAX_ID_CHARS_MAX, blank=True, default="", validators=(validate_line,)
    )
    number_prefix = models.SlugField(_("prefix of numbers"), max_length=NUMBER_PREFIX_CHARS_MAX, default="PS")
    payment_days = models.PositiveSmallIntegerField(_("days to pay"), default=PAYMENT_DAYS_DEFAULT)
    first_reminder_days = models.PositiveSmallIntegerField(
        _("first reminder, days overdue"), default=FIRST_REMINDER_DAYS_DEFAULT, help_text=_("0: none")
    )
    second_reminder_days = models.PositiveSmallIntegerField(
        _("second reminder, days overdue"), default=SECOND_REMINDER_DAYS_DEFAULT, help_text=_("0: none")
    )
    # Never where nobody said so: invoices of before may be paid without anybody having noted it.
    suspend_days = models.PositiveSmallIntegerField(
        _("suspension, days overdue"), default=0, help_text=_("0: never. It ends when nothing is overdue.")
    )

    class Meta:
        verbose_name = _("seller")
        verbose_name_plural = _("seller")
        constraints = (models.CheckConstraint(condition=Q(id=ONLY_SELLER), name="seller_is_one"),)

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """One step after the other."""
        super().clean()
        steps = [self.first_reminder_days, self.second_reminder_days, self.suspend_days]
        set_steps = [days for days in steps if days]
        if set_steps != sorted(set(set_steps)):
            raise ValidationError(_("The second reminder comes after the first, the suspension after both."))


class InvoiceSeries(models.Model):
    """The last number that was given in a series. Locked while one is taken, so that numbers have no gaps."""

    prefix = models.CharField(max_length=SERIES_CHARS_MAX, primary_key=True)
    last_number = models.PositiveIntegerField(default=0)

    class Meta:
        verbose_name = _("series of numbers")
        verbose_name_plural = _("series of numbers")

    def __str__(self) -> str:
        return f"{self.prefix}: {self.last_number}"


class BillingProfile(models.Model):
    """How a tenant is invoiced. A tenant without one pays no tax and has no minimum."""

    tenant = models.OneToOneField(
        Tenant, on_delete=models.PROTECT, primary_key=True, related_name="billing_profile", verbose_name=_("tenant")
    )
    legal_name = models.CharField(
        _("name"), max_length=NAME_CHARS_MAX, blank=True, default="", validators=(validate_line,)
    )
    address = models.CharField(
        _("address"), max_length=ADDRESS_CHARS_MAX, blank=True, default="", validators=(validate_address,)
    )
    tax_id = models.CharField(
        _("tax id"), max_length=TAX_ID_CHARS_MAX, blank=True, default="", validators=(validate_line,)
    )
    email = models.EmailField(_("invoices go to"), blank=True, default="")
    tax_percent = models.DecimalField(_("tax, percent"), max_digits=5, decimal_places=2, default=0, validators=PERCENT)
    reverse_charge = models.BooleanField(
        _("reverse charge"), default=False, help_text=_("The tenant owes the tax; the invoice says so.")
    )
    minimum = models.DecimalField(
        _("minimum per month"), max_digits=12, decimal_places=2, default=0, validators=(MinValueValidator(Decimal(0)),)
    )
    minimum_from = models.DateField(
        _("minimum from"), null=True, blank=True,
        help_text=_(
            "A day of the first month that it is charged for, with instances or without. Empty: the month that runs."
        ),
    )  # fmt: skip

    class Meta:
        verbose_name = _("billing profile")
        verbose_name_plural = _("billing profiles")
        constraints = (
            models.CheckConstraint(
                condition=Q(tax_percent__gte=0, tax_percent__lte=100, minimum__gte=0), name="billing_profile_amounts"
            ),
            models.CheckConstraint(
                condition=Q(reverse_charge=False) | Q(tax_percent=0), name="reverse_charge_without_tax"
            ),
        )

    def __str__(self) -> str:
        return self.legal_name or str(self.tenant)

    def clean(self) -> None:
        super().clean()
        if self.minimum and self.minimum_from is None:
            self.minimum_from = timezone.now().date().replace(day=1)


class Discount(models.Model):
    """Off the bill of each period that begins in `[starts_at, ends_at)`: a percentage, an amount, or both. Agreed with
    the tenant, or of a coupon that it redeemed.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="discounts", verbose_name=_("tenant"))
    coupon = models.ForeignKey(
        "billing.Coupon", on_delete=models.PROTECT, null=True, blank=True, editable=False, related_name="discounts",
        verbose_name=_("coupon"),
    )  # fmt: skip
    code = models.CharField(_("code"), max_length=DISCOUNT_CODE_CHARS_MAX)
    percent = models.DecimalField(_("percent"), max_digits=5, decimal_places=2, default=0, validators=PERCENT)
    amount = models.DecimalField(
        _("amount"), max_digits=12, decimal_places=2, default=0, validators=(MinValueValidator(Decimal(0)),)
    )
    starts_at = models.DateTimeField(_("from"), null=True, blank=True)
    ends_at = models.DateTimeField(_("until"), null=True, blank=True)

    class Meta:
        ordering = ("tenant", "id")
        verbose_name = _("discount")
        verbose_name_plural = _("discounts")
        constraints = (
            models.UniqueConstraint(fields=("tenant", "code"), name="discount_once"),
            models.CheckConstraint(
                condition=Q(percent__gte=0, percent__lte=100, amount__gte=0), name="discount_amounts"
            ),
        )

    def __str__(self) -> str:
        return f"{self.code} {self.percent} % {self.amount}"
