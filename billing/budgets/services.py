"""Writes: budgets of tenants, and their evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import structlog
from django.db import transaction
from django.utils.translation import gettext_noop

from billing.invoices.charging import Draft, draft
from billing.invoices.periods import month_of
from billing.models import Budget
from billing.rating.hours import NoPrice
from billing.rating.terms import Bill
from instances.models import Instance
from notifications.budgets.alerts import BudgetCosts, report
from tenants import access, audit
from tenants.actors import Actor
from tenants.choices import Scope
from tenants.containment import contained
from tenants.currencies import fits, minor_digits
from tenants.errors import Conflict, Invalid, Message, QuotaExceeded
from tenants.models import Tenant
from tenants.uniqueness import raise_if_taken

log = structlog.get_logger(__name__)

BUDGETS_PER_TENANT_MAX = 50
CHANGEABLE = ("name", "amount")
NAME_CONSTRAINT = "budget_name_once"


@transaction.atomic
def create_budget(*, acting: Actor, name: str, amount: Decimal, instance_id: str = "") -> Budget:
    """Creates a budget.

    Raises:
        QuotaExceeded: the tenant has `BUDGETS_PER_TENANT_MAX` budgets.
        Invalid: the instance is unknown, or the amount has too many decimals.
        Conflict: the name is in use.
    """
    access.require(acting, Scope.BILLING_WRITE)
    tenant = Tenant.objects.select_for_update().get(pk=access.tenant_of(acting).pk)
    if Budget.objects.filter(tenant=tenant).count() >= BUDGETS_PER_TENANT_MAX:
        raise QuotaExceeded(Message(gettext_noop("A tenant has at most %(n)s budgets."), n=BUDGETS_PER_TENANT_MAX))
    if instance_id and not Instance.objects.filter(tenant=tenant, pk=instance_id).exists():
        raise Invalid.at("/instance_id", gettext_noop("There is no such instance."), code="not_found")
    _require_fits(amount, tenant)
    _require_name_free(tenant, name)
    budget = Budget.objects.create(tenant=tenant, name=name, amount=amount, instance_id=instance_id)
    audit.record(acting, "budget.created", budget, None, _audit_values(budget))
    return budget


@transaction.atomic
def change_budget(*, acting: Actor, budget: Budget, changes: Mapping[str, Any]) -> Budget:
    """Changes a locked budget. A new amount resets its alerts of the month."""
    access.require(acting, Scope.BILLING_WRITE)
    before = _audit_values(budget)
    if changes.get("amount", budget.amount) != budget.amount:
        _require_fits(changes["amount"], budget.tenant)
    if changes.get("name", budget.name) != budget.name:
        _require_name_free(budget.tenant, changes["name"])
    for field in CHANGEABLE:
        setattr(budget, field, changes.get(field, getattr(budget, field)))
    if _audit_values(budget) != before:
        with raise_if_taken(NAME_CONSTRAINT, _name_taken()):
            budget.save_changes(list(CHANGEABLE))
        audit.record(acting, "budget.changed", budget, *audit.difference(before, _audit_values(budget)))
    return budget


@transaction.atomic
def delete_budget(*, acting: Actor, budget: Budget) -> None:
    """Deletes a budget; its alerts stay."""
    access.require(acting, Scope.BILLING_WRITE)
    audit.record(acting, "budget.deleted", budget, _audit_values(budget), None)
    budget.delete()


def evaluate(now: datetime) -> int:
    """Evaluates the budgets of all tenants and returns the number of new alerts. Safe to run concurrently."""
    alerts = 0
    tenants = Tenant.objects.filter(pk__in=Budget.objects.values("tenant_id")).order_by("pk")
    for tenant in tenants.iterator(chunk_size=500):
        with contained("budgets_failed", tenant=tenant.pk):
            alerts += _evaluate_all(tenant, now)
    return alerts


def _evaluate_all(tenant: Tenant, now: datetime) -> int:
    try:
        bills = draft(tenant, now)
    except NoPrice as error:
        log.warning("budget_not_evaluated", tenant=tenant.pk, reason=str(error))
        return 0
    return sum(_evaluate(budget, bills, now) for budget in Budget.objects.filter(tenant=tenant))


def spent(bill: Bill, instance_id: str) -> Decimal:
    """Returns the costs of one instance, or of the whole bill, before tax."""
    if not instance_id:
        return bill.subtotal
    return sum((line.amount for line in bill.lines if line.instance_id == instance_id), Decimal(0))


def _evaluate(budget: Budget, bills: Draft, now: datetime) -> int:
    so_far, forecast = (spent(bill, budget.instance_id) for bill in (bills.so_far, bills.forecast))
    costs = BudgetCosts(
        budget_id=budget.pk, budget_name=budget.name, instance_id=budget.instance_id, amount=budget.amount,
        month=month_of(now).start, spent=so_far, forecast=forecast,
    )  # fmt: skip
    return report(budget.tenant, costs, now)


def _require_fits(amount: Decimal, tenant: Tenant) -> None:
    if not fits(amount, tenant.currency):
        message = Message(
            gettext_noop("Amounts in %(currency)s have at most %(n)s decimals."),
            currency=tenant.currency, n=minor_digits(tenant.currency),
        )  # fmt: skip
        raise Invalid.at("/amount", message, code="too_many_decimals")


def _require_name_free(tenant: Tenant, name: str) -> None:
    if Budget.objects.filter(tenant=tenant, name=name).exists():
        raise _name_taken()


def _name_taken() -> Conflict:
    return Conflict(gettext_noop("There is a budget of this name."), code="name_taken")


def _audit_values(budget: Budget) -> dict[str, Any]:
    return {"name": budget.name, "amount": str(budget.amount), "instance_id": budget.instance_id}
