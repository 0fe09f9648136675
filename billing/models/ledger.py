"""Ledger: every amount that a tenant owes or is owed, in posting order."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from billing.models.invoices import REFERENCE_CHARS_MAX, Invoice
from billing.models.money import MoneyField
from billing.models.payments import Payment
from tenants.models import Tenant


class LedgerKind(models.TextChoices):
    """Kinds of entries. The two entries of a transfer move an amount between an invoice and the credit balance."""

    INVOICE = "invoice", _("Invoice")
    CREDIT_NOTE = "credit_note", _("Credit note")
    PAYMENT = "payment", _("Payment")
    REFUND = "refund", _("Refund")
    WRITE_OFF = "write_off", _("Write-off")
    TRANSFER = "transfer", _("Transfer")


class LedgerEntry(models.Model):
    """Entry of the ledger of a tenant in one currency. Entries are never changed or deleted (migration
    `0023_ledger_from_documents`).

    A positive `amount` increases what the tenant owes. `balance` is the sum of all entries up to this one. `invoice` is
    the invoice whose open amount the entry changes; without one it changes the credit balance. `document` is the
    invoice or the credit note that was issued.
    """

    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="ledger_entries", verbose_name=_("tenant")
    )
    currency = models.CharField(_("currency"), max_length=3)
    kind = models.CharField(_("kind"), max_length=12, choices=LedgerKind.choices)
    amount = MoneyField(_("amount"))
    balance = MoneyField(_("balance"), max_digits=17)
    invoice = models.ForeignKey(
        Invoice, on_delete=models.PROTECT, null=True, blank=True, related_name="ledger_entries",
        verbose_name=_("invoice"),
    )  # fmt: skip
    document = models.ForeignKey(
        Invoice, on_delete=models.PROTECT, null=True, blank=True, related_name="+", verbose_name=_("document")
    )
    payment = models.ForeignKey(
        Payment, on_delete=models.PROTECT, null=True, blank=True, related_name="+", verbose_name=_("payment")
    )
    reference = models.CharField(_("reference"), max_length=REFERENCE_CHARS_MAX, blank=True, default="")
    posted_at = models.DateTimeField(_("posted"))

    class Meta:
        ordering = ("tenant", "currency", "id")
        verbose_name = _("ledger entry")
        verbose_name_plural = _("ledger")
        indexes = (models.Index(fields=("tenant", "currency", "-id"), name="ledger_by_tenant"),)
        constraints = (
            models.UniqueConstraint(
                fields=("document",), condition=Q(document__isnull=False), name="ledger_document_once"
            ),
            models.UniqueConstraint(
                fields=("payment",), condition=Q(payment__isnull=False), name="ledger_payment_once"
            ),
            models.UniqueConstraint(
                fields=("tenant", "reference"), condition=Q(kind="refund"), name="ledger_refund_once"
            ),
            models.CheckConstraint(
                condition=(
                    Q(kind="invoice", document__isnull=False, invoice__isnull=False)
                    | Q(kind="credit_note", document__isnull=False, invoice__isnull=False, amount__lte=0)
                    | Q(kind="payment", amount__lt=0)
                    | Q(kind="refund", invoice=None, amount__gt=0)
                    | Q(kind="write_off", invoice__isnull=False)
                    | Q(kind="transfer")
                ),
                name="ledger_entry_of_its_kind",
            ),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.amount} {self.currency}"
