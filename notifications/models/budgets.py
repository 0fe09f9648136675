"""Alerts of budgets. The budgets themselves belong to billing."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from tenants.ids import TypedIdField
from tenants.models import Tenant
from tenants.money_field import MoneyField

NAME_CHARS_MAX = 64


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
        db_table = "billing_budgetalert"
        ordering = ("-at", "id")
        verbose_name = _("budget alert")
        verbose_name_plural = _("budget alerts")
        indexes = (models.Index(fields=("tenant", "-at"), name="budget_alert_by_tenant"),)
        constraints = (
            models.UniqueConstraint(fields=("budget_id", "amount", "month", "mark"), name="budget_alert_once"),
        )

    def __str__(self) -> str:
        return f"{self.budget_name} {self.mark} %"
