"""Seller, billing profiles of tenants and their individual terms: taxes and discounts."""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime
from decimal import Decimal

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, validate_email
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django_countries import countries

from billing.models.money import MoneyField
from tenants.currencies import fits, minor_digits
from tenants.models import Tenant

ADDRESS_CHARS_MAX = 400
COUNTRY_CHARS = 2
ADDRESS_LINES_MAX = 8
EMAILS_MAX = 5
EMAIL_CHARS_MAX = 254
EMAILS_SEPARATOR = ", "
PURCHASE_ORDER_CHARS_MAX = 60
BANK_NAME_CHARS_MAX = 80
BANK_ACCOUNT_CHARS_MAX = 42
BANK_CODE_CHARS_MAX = 11
# An IBAN begins with a country and two check digits; other account numbers are not checked.
IBAN = re.compile(r"[A-Z]{2}[0-9]{2}[A-Z0-9]{11,30}")
NAME_CHARS_MAX = 120
TAX_ID_CHARS_MAX = 32
NUMBER_PREFIX_CHARS_MAX = 12
# Prefix, a letter for credit notes and the year.
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


def emails_in(text: str) -> list[str]:
    """Returns the addresses in a comma-separated text."""
    return [address.strip() for address in text.split(",") if address.strip()]


def validate_emails(text: str) -> None:
    """Raises `ValidationError` for too many addresses or an invalid one."""
    addresses = emails_in(text)
    if len(addresses) > EMAILS_MAX:
        raise ValidationError(_("At most %(n)d addresses.") % {"n": EMAILS_MAX}, code="too_many")
    for address in addresses:
        validate_email(address)
        if len(address) > EMAIL_CHARS_MAX:
            raise ValidationError(_("An address is too long."), code="too_long")


def validate_country(code: str) -> None:
    """Raises `ValidationError` if the code is not a two-letter country code of ISO 3166-1."""
    if code not in countries:
        raise ValidationError(_("Not a country's code of two letters, such as DE."), code="not_a_country")


def validate_bank_account(text: str) -> None:
    """Raises `ValidationError` for an IBAN whose check digits are wrong."""
    validate_line(text)
    account = text.replace(" ", "").upper()
    if IBAN.fullmatch(account):
        digits = "".join(str(int(char, 36)) for char in account[4:] + account[:4])
        if int(digits) % 97 != 1:
            raise ValidationError(_("The check digits of this IBAN are wrong."), code="wrong_iban")


class Seller(models.Model):
    """Seller that issues the invoices: a single row. Its data is copied into each invoice at issue."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=ONLY_SELLER, editable=False)
    name = models.CharField(_("name"), max_length=NAME_CHARS_MAX, default="Penstock", validators=(validate_line,))
    address = models.CharField(
        _("address"), max_length=ADDRESS_CHARS_MAX, blank=True, default="", validators=(validate_address,)
    )
    country = models.CharField(
        _("country"), max_length=COUNTRY_CHARS, blank=True, default="", validators=(validate_country,),
        help_text=_("Two letters, by ISO 3166. Electronic invoices need it."),
    )  # fmt: skip
    tax_id = models.CharField(
        _("tax id"), max_length=TAX_ID_CHARS_MAX, blank=True, default="", validators=(validate_line,)
    )
    number_prefix = models.SlugField(_("prefix of numbers"), max_length=NUMBER_PREFIX_CHARS_MAX, default="PS")
    bank_name = models.CharField(
        _("bank"), max_length=BANK_NAME_CHARS_MAX, blank=True, default="", validators=(validate_line,)
    )
    bank_account = models.CharField(
        _("IBAN or account number"), max_length=BANK_ACCOUNT_CHARS_MAX, blank=True, default="",
        validators=(validate_bank_account,), help_text=_("Stands on invoices, with their number as the reference."),
    )  # fmt: skip
    bank_code = models.CharField(
        _("BIC or bank code"), max_length=BANK_CODE_CHARS_MAX, blank=True, default="", validators=(validate_line,)
    )
    payment_days = models.PositiveSmallIntegerField(_("days to pay"), default=PAYMENT_DAYS_DEFAULT)
    first_reminder_days = models.PositiveSmallIntegerField(
        _("first reminder, days overdue"), default=FIRST_REMINDER_DAYS_DEFAULT, help_text=_("0: none")
    )
    second_reminder_days = models.PositiveSmallIntegerField(
        _("second reminder, days overdue"), default=SECOND_REMINDER_DAYS_DEFAULT, help_text=_("0: none")
    )
    # Off by default: older invoices may have been paid without a record of it.
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
        """Checks that the steps of dunning follow one another."""
        super().clean()
        steps = [self.first_reminder_days, self.second_reminder_days, self.suspend_days]
        set_steps = [days for days in steps if days]
        if set_steps != sorted(set(set_steps)):
            raise ValidationError(_("The second reminder comes after the first, the suspension after both."))


def validate_fits(name: str, amount: Decimal | None, currency: str) -> None:
    """Raises `ValidationError` for an amount with more decimals than its currency."""
    if amount is not None and currency and not fits(amount, currency):
        text_values = {"currency": currency, "n": minor_digits(currency)}
        raise ValidationError({name: _("Amounts in %(currency)s have at most %(n)s decimals.") % text_values})


class InvoiceSeries(models.Model):
    """Last number of a series of invoice numbers. The row stays locked until the transaction that
    takes a number ends, so that there are no gaps.
    """

    prefix = models.CharField(max_length=SERIES_CHARS_MAX, primary_key=True)
    last_number = models.PositiveIntegerField(default=0)

    class Meta:
        verbose_name = _("series of numbers")
        verbose_name_plural = _("series of numbers")

    def __str__(self) -> str:
        return f"{self.prefix}: {self.last_number}"


class BillingProfile(models.Model):
    """Billing details of a tenant. A tenant without a profile pays no tax and has no minimum."""

    tenant = models.OneToOneField(
        Tenant, on_delete=models.PROTECT, primary_key=True, related_name="billing_profile", verbose_name=_("tenant")
    )
    legal_name = models.CharField(
        _("name"), max_length=NAME_CHARS_MAX, blank=True, default="", validators=(validate_line,)
    )
    address = models.CharField(
        _("address"), max_length=ADDRESS_CHARS_MAX, blank=True, default="", validators=(validate_address,)
    )
    country = models.CharField(
        _("country"), max_length=COUNTRY_CHARS, blank=True, default="", validators=(validate_country,),
        help_text=_("Two letters, by ISO 3166. Electronic invoices need it."),
    )  # fmt: skip
    tax_id = models.CharField(
        _("tax id"), max_length=TAX_ID_CHARS_MAX, blank=True, default="", validators=(validate_line,)
    )
    email = models.CharField(
        _("invoices go to"), max_length=EMAILS_MAX * (EMAIL_CHARS_MAX + len(EMAILS_SEPARATOR)), blank=True, default="",
        validators=(validate_emails,), help_text=_("Up to 5 addresses, with commas between them."),
    )  # fmt: skip
    purchase_order = models.CharField(
        _("purchase order"), max_length=PURCHASE_ORDER_CHARS_MAX, blank=True, default="", validators=(validate_line,)
    )
    tax_percent = models.DecimalField(
        _("tax, percent"), max_digits=5, decimal_places=2, default=0, validators=PERCENT,
        help_text=_("Before the first change of tax that the tenant has, if it has one."),
    )  # fmt: skip
    reverse_charge = models.BooleanField(
        _("reverse charge"), default=False, help_text=_("The tenant owes the tax; the invoice says so.")
    )
    minimum = MoneyField(_("minimum per month"), max_digits=13, default=0, validators=(MinValueValidator(Decimal(0)),))
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

    @property
    def emails(self) -> list[str]:
        """Addresses that receive invoices."""
        return emails_in(self.email)

    def clean(self) -> None:
        super().clean()
        validate_fits("minimum", self.minimum, self.tenant.currency if self.tenant_id else "")
        if self.minimum and self.minimum_from is None:
            self.minimum_from = timezone.now().date().replace(day=1)
        if self.reverse_charge and self.tenant_id and self._is_taxed_from(timezone.now()):
            text = _("The tenant is taxed by a change of tax. Add a change to zero that is in force, then set this.")
            raise ValidationError({"reverse_charge": text})

    def _is_taxed_from(self, now: datetime) -> bool:
        """True if changes tax an hour from `now` on."""
        changes = TaxChange.objects.filter(tenant=self.tenant_id)
        in_force = changes.filter(effective_from__lte=now).order_by("effective_from").last()
        is_taxed_now = in_force is not None and in_force.percent > 0
        return is_taxed_now or changes.filter(effective_from__gt=now, percent__gt=0).exists()


class TaxChange(models.Model):
    """Change of a tenant's tax rate from an instant on; earlier hours keep their rate.

    A change can be neither added before invoiced hours nor removed once its hours are invoiced (`billing.tax`).
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="tax_changes", verbose_name=_("tenant"))
    effective_from = models.DateTimeField(_("effective from"), help_text=_("In UTC. Full hours are taxed alike."))
    percent = models.DecimalField(_("tax, percent"), max_digits=5, decimal_places=2, validators=PERCENT)

    class Meta:
        ordering = ("tenant", "effective_from")
        verbose_name = _("change of tax")
        verbose_name_plural = _("changes of tax")
        constraints = (
            models.UniqueConstraint(fields=("tenant", "effective_from"), name="tax_change_once"),
            models.CheckConstraint(condition=Q(percent__gte=0, percent__lte=100), name="tax_change_percent"),
        )

    def __str__(self) -> str:
        return f"{self.percent} % {self.effective_from:%Y-%m-%d %H:%M}"


class Discount(models.Model):
    """Discount on the bill of each period that begins in `[starts_at, ends_at)`: a percentage, an amount, or both.

    It was agreed with the tenant, or comes from a coupon that the tenant redeemed.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="discounts", verbose_name=_("tenant"))
    coupon = models.ForeignKey(
        "billing.Coupon", on_delete=models.PROTECT, null=True, blank=True, editable=False, related_name="discounts",
        verbose_name=_("coupon"),
    )  # fmt: skip
    code = models.CharField(_("code"), max_length=DISCOUNT_CODE_CHARS_MAX)
    percent = models.DecimalField(_("percent"), max_digits=5, decimal_places=2, default=0, validators=PERCENT)
    amount = MoneyField(_("amount"), max_digits=13, default=0, validators=(MinValueValidator(Decimal(0)),))
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

    def clean(self) -> None:
        super().clean()
        validate_fits("amount", self.amount, self.tenant.currency if self.tenant_id else "")
