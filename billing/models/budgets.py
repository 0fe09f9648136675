"""Budgets of tenants."""

from __future__ import annotations

from decimal import Decimal

from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from billing.models.money import MoneyField
from notifications.models.budgets import NAME_CHARS_MAX
from tenants.ids import TypedIdField
from tenants.models import Tenant, Versioned

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
