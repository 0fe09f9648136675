"""Payments reported by a provider."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from billing.models.invoices import Invoice
from billing.models.money import MoneyField


class PaymentProblem(models.TextChoices):
    """Reasons why an operator must look at a payment.

    Money that no open invoice takes becomes credit of the tenant in the payment's currency; a payment for an unknown
    invoice is assigned to no tenant.
    """

    UNKNOWN_INVOICE = "unknown_invoice", _("No such invoice")
    CLOSED = "closed", _("The invoice was closed")
    OTHER_CURRENCY = "other_currency", _("Another currency")
    OVERPAID = "overpaid", _("More than was open")


class Payment(models.Model):
    """Payment, unique by the provider's id."""

    provider_id = models.CharField(_("provider's id"), max_length=100, unique=True)
    invoice = models.ForeignKey(
        Invoice, on_delete=models.PROTECT, null=True, blank=True, related_name="payments", verbose_name=_("invoice")
    )
    invoice_number = models.CharField(_("number of the invoice"), max_length=32)
    amount = MoneyField(_("amount"))
    currency = models.CharField(_("currency"), max_length=3)
    problem = models.CharField(
        _("problem"), max_length=16, choices=PaymentProblem.choices, blank=True, default="", db_index=True
    )
    handled_at = models.DateTimeField(_("handled"), null=True, blank=True)
    received_at = models.DateTimeField(_("received"))

    class Meta:
        ordering = ("-received_at", "-pk")
        verbose_name = _("payment")
        verbose_name_plural = _("payments")
        constraints = (models.CheckConstraint(condition=models.Q(amount__gt=0), name="payment_is_positive"),)

    def __str__(self) -> str:
        return f"{self.provider_id} {self.amount} {self.currency}"
