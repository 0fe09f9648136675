"""Faults of one tenant's billing that an operator has to look at."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from billing.models.invoices import Invoice
from tenants.models import Tenant

DETAIL_CHARS_MAX = 300


class ActionKind(models.TextChoices):
    CLOSING = "closing", _("Its invoice could not be issued")
    LATE_USAGE = "late_usage", _("Late usage could not be charged")
    MAIL = "mail", _("A mail about an invoice could not be made")
    DUNNING = "dunning", _("Reminders could not be made")


class ActionItem(models.Model):
    """Fault of a tenant's billing, one row per kind. It is removed when a round succeeds or an operator handles it."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+", verbose_name=_("tenant"))
    kind = models.CharField(_("kind"), max_length=12, choices=ActionKind.choices)
    detail = models.CharField(_("detail"), max_length=DETAIL_CHARS_MAX, blank=True, default="")
    first_at = models.DateTimeField(_("since"))
    noted_at = models.DateTimeField(_("last seen"))

    class Meta:
        ordering = ("first_at", "id")
        verbose_name = _("action item")
        verbose_name_plural = _("action items")
        constraints = (models.UniqueConstraint(fields=("tenant", "kind"), name="action_item_once"),)

    def __str__(self) -> str:
        return f"{self.tenant}: {self.get_kind_display()}"


class UsageCheck(models.Model):
    """State of the usage in an invoice's period when the invoice was issued or last compared with its usage.

    While the state is unchanged, the invoice has no late usage.
    """

    invoice = models.OneToOneField(Invoice, on_delete=models.CASCADE, primary_key=True, related_name="usage_check")
    digest = models.CharField(max_length=64)
    checked_at = models.DateTimeField()

    def __str__(self) -> str:
        return str(self.invoice_id)
