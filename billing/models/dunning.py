"""Reminders and suspensions because of overdue invoices."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from billing.models.invoices import Invoice
from tenants.models import Tenant


class InvoiceReminder(models.Model):
    """First or second reminder of an overdue invoice. The row is created before the mail is sent."""

    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="reminders", verbose_name=_("invoice"))
    number = models.PositiveSmallIntegerField(_("number"))
    sent_at = models.DateTimeField(_("sent"))

    class Meta:
        ordering = ("invoice", "number")
        verbose_name = _("reminder")
        verbose_name_plural = _("reminders")
        constraints = (models.UniqueConstraint(fields=("invoice", "number"), name="invoice_reminder_once"),)

    def __str__(self) -> str:
        return f"{self.invoice_id} {self.number}"


class UnpaidSuspension(models.Model):
    """Suspension of a tenant by the system because of an overdue invoice; it ends when nothing is overdue."""

    tenant = models.OneToOneField(
        Tenant, on_delete=models.CASCADE, primary_key=True, related_name="+", verbose_name=_("tenant")
    )
    made_at = models.DateTimeField(_("suspended"))

    class Meta:
        verbose_name = _("suspension for an unpaid invoice")
        verbose_name_plural = _("suspensions for unpaid invoices")

    def __str__(self) -> str:
        return str(self.tenant_id)
