"""Budgets of tenants and their alerts."""

from __future__ import annotations

from decimal import Decimal

from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from billing.models.money import MoneyField
from tenants.ids import TypedIdField
from tenants.models import Tenant, Versioned

NAME_CHARS_MAX = 64
SMALLEST = Decimal("0.001")


class Budget(Versioned):
    """Monthly amount (UTC) before tax in the tenant's currency, for one instance or for all."""

    id = TypedIdField("bud")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="budgets", verbose_name=_("tenant"))
    name = models.CharField(_("name"), max_length=NAME_CHARS_MAX)
    instance_id = models.CharField(_("instance"), max_length=16, blank=True, default="")
    amount = MoneyField(_("amount"), max_digits=13, validators=(MinValueValidator(SMALLEST),))

    class Meta:
        ordering = ("created_at", "id")
        verbose_name = _("budget")
        verbose_name_plural = _("budgets")
        constraints = (
            models.UniqueConstraint(fields=("tenant", "name"), name="budget_name_once"),
            models.CheckConstraint(condition=Q(amount__gt=0), name="budget_positive"),
        )

    def __str__(self) -> str:
        return f"{self.name} {self.amount}"


class BudgetAlert(models.Model):
    """Alert that a threshold of a budget was passed in a month; `mark` is a percentage, 0 stands for the forecast."""

    id = TypedIdField("alr")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="budget_alerts", verbose_name=_("tenant"))
    budget_id = models.CharField(_("budget"), max_length=16)
    budget_name = models.CharField(_("name"), max_length=NAME_CHARS_MAX)
    instance_id = models.CharField(_("instance"), max_length=16, blank=True, default="")
    month = models.DateTimeField(_("month"))
    mark = models.PositiveSmallIntegerField(_("mark"))
    amount = MoneyField(_("budget"), max_digits=13)
    spent = MoneyField(_("spent"))
    forecast = MoneyField(_("forecast"))
    at = models.DateTimeField(_("time"))
    sent_to = models.PositiveSmallIntegerField(_("mails sent"), default=0)

    class Meta:
        ordering = ("-at", "id")
        verbose_name = _("budget alert")
        verbose_name_plural = _("budget alerts")
        indexes = (models.Index(fields=("tenant", "-at"), name="budget_alert_by_tenant"),)
        constraints = (
            models.UniqueConstraint(fields=("budget_id", "amount", "month", "mark"), name="budget_alert_once"),
        )

    def __str__(self) -> str:
        return f"{self.budget_name} {self.mark} %"
