"""Invoices and credit notes. After issue only their payment state changes, which the database enforces (migration
`0003_issued_is_immutable`). Drafts are not stored; they are computed on demand.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from billing.models.money import MoneyField
from billing.rating.terms import TaxSum
from tenants.ids import TypedIdField
from tenants.models import Tenant

REFERENCE_CHARS_MAX = 120
NOTE_CHARS_MAX = 200


class InvoiceKind(models.TextChoices):
    INVOICE = "invoice", _("Invoice")
    CREDIT_NOTE = "credit_note", _("Credit note")


class InvoiceState(models.TextChoices):
    """Stored state; an open invoice after its due date is shown as overdue.

    An invoice is settled if credit notes or the credit balance left nothing to pay, or if it charged nothing.
    """

    ISSUED = "issued", _("Open")
    PAID = "paid", _("Paid")
    SETTLED = "settled", _("Settled")
    WRITTEN_OFF = "written_off", _("Written off")


OVERDUE = "overdue"


class Invoice(models.Model):
    """Invoice or credit note.

    `inputs` are the inputs of rating (`billing.invoices.snapshot`), from which every amount can be recomputed.
    `from_balance` is the part of the total that the credit balance covered at issue. `taxes` are base and tax of each
    rate (read by `tax_sums`), empty in old invoices; `tax_percent` is None if there are several rates. `reference`
    identifies the payment.
    """

    id = TypedIdField("inv")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="invoices", verbose_name=_("tenant"))
    kind = models.CharField(_("kind"), max_length=12, choices=InvoiceKind.choices, default=InvoiceKind.INVOICE)
    number = models.CharField(_("number"), max_length=32, unique=True)
    corrects = models.ForeignKey(
        "self", on_delete=models.PROTECT, null=True, blank=True, related_name="credit_notes", verbose_name=_("corrects")
    )
    period_start = models.DateTimeField(_("from"))
    period_end = models.DateTimeField(_("until"))
    currency = models.CharField(_("currency"), max_length=3)
    subtotal = MoneyField(_("subtotal"))
    tax_percent = models.DecimalField(_("tax, percent"), max_digits=5, decimal_places=2, null=True)
    tax = MoneyField(_("tax"))
    total = MoneyField(_("total"))
    taxes = models.JSONField(_("tax by rate"), default=list)
    from_balance = MoneyField(_("taken from the credit balance"), default=0, db_default=0)
    seller = models.JSONField(_("seller"))
    buyer = models.JSONField(_("buyer"))
    note = models.CharField(_("note"), max_length=NOTE_CHARS_MAX, blank=True, default="")
    inputs = models.JSONField(_("inputs of rating"), default=dict)
    issued_at = models.DateTimeField(_("issued"))
    due_at = models.DateTimeField(_("due"))
    state = models.CharField(
        _("state"), max_length=12, choices=InvoiceState.choices, default=InvoiceState.ISSUED, db_index=True
    )
    closed_at = models.DateTimeField(_("closed"), null=True, blank=True)
    reference = models.CharField(_("reference"), max_length=REFERENCE_CHARS_MAX, blank=True, default="")

    class Meta:
        ordering = ("-period_start", "-number")
        verbose_name = _("invoice")
        verbose_name_plural = _("invoices")
        indexes = (models.Index(fields=("tenant", "-period_start"), name="invoice_by_tenant"),)
        constraints = (
            models.UniqueConstraint(
                fields=("tenant", "period_start"), condition=Q(kind="invoice"), name="invoice_once_per_period"
            ),
            models.CheckConstraint(condition=Q(period_start__lt=models.F("period_end")), name="invoice_period"),
            models.CheckConstraint(
                condition=Q(total=models.F("subtotal") + models.F("tax")), name="invoice_total_is_the_sum"
            ),
            models.CheckConstraint(
                condition=Q(state="issued", closed_at=None) | (~Q(state="issued") & Q(closed_at__isnull=False)),
                name="invoice_closed_with_time",
            ),
            models.CheckConstraint(
                condition=Q(kind="invoice", corrects=None) | Q(kind="credit_note", corrects__isnull=False),
                name="credit_note_corrects_one",
            ),
            models.CheckConstraint(
                condition=Q(from_balance=0) | Q(from_balance__gt=0, from_balance__lte=models.F("total")),
                name="invoice_from_balance_within_total",
            ),
        )

    def __str__(self) -> str:
        return self.number

    def tax_sums(self) -> list[TaxSum]:
        """Returns base and tax of each rate, the highest first."""
        if not self.taxes:
            return [TaxSum(percent=self.tax_percent or Decimal(0), base=self.subtotal, tax=self.tax)]
        return [
            TaxSum(percent=Decimal(tax["percent"]), base=Decimal(tax["base"]), tax=Decimal(tax["tax"]))
            for tax in self.taxes
        ]

    def shown_state(self, now: datetime | None = None) -> str:
        """Returns `state`, or `overdue`."""
        is_late = self.state == InvoiceState.ISSUED and self.due_at < (now or timezone.now()) and self.total > 0
        return OVERDUE if is_late else self.state


class UntakenMail(models.Model):
    """Invoice with a mail that could not be sent and is not retried, for the page on which operators close a month."""

    invoice = models.OneToOneField(Invoice, on_delete=models.CASCADE, primary_key=True, related_name="untaken_mail")
    noted_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return str(self.invoice_id)


class InvoiceLine(models.Model):
    """Line of an invoice. `kind` is usage, discount, minimum, adjustment or credit.

    `corrects` is the invoice that an adjustment or a credit refers to.
    """

    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="lines", verbose_name=_("invoice"))
    position = models.PositiveIntegerField(_("position"))
    kind = models.CharField(_("kind"), max_length=12)
    corrects = models.ForeignKey(
        Invoice, on_delete=models.PROTECT, null=True, blank=True, related_name="+", verbose_name=_("corrects")
    )
    instance_id = models.CharField(_("instance"), max_length=16, blank=True, default="")
    plan = models.CharField(_("plan"), max_length=32, blank=True, default="")
    meter = models.CharField(_("meter"), max_length=32, blank=True, default="")
    start = models.DateTimeField(_("from"))
    end = models.DateTimeField(_("until"))
    quantity = models.DecimalField(_("quantity"), max_digits=30, decimal_places=12)
    unit = models.CharField(_("unit"), max_length=16, blank=True, default="")
    unit_price = models.DecimalField(_("unit price"), max_digits=20, decimal_places=8)
    # None if no monthly term is prorated.
    hours = models.PositiveIntegerField(_("hours on the plan"), null=True, blank=True)
    amount = MoneyField(_("amount"))
    # None in old lines, which have the rate of their invoice.
    tax_percent = models.DecimalField(_("tax, percent"), max_digits=5, decimal_places=2, null=True, blank=True)

    class Meta:
        ordering = ("invoice", "position")
        verbose_name = _("line")
        verbose_name_plural = _("lines")
        constraints = (models.UniqueConstraint(fields=("invoice", "position"), name="invoice_line_once"),)

    def __str__(self) -> str:
        return f"{self.invoice_id} {self.position}: {self.amount}"
