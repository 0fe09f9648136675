"""Writes: budgets of tenants and their alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import structlog
from django.db import IntegrityError, transaction
from django.utils.translation import gettext_noop

from billing import outbox
from billing.budgets.decide import FORECAST, marks_passed
from billing.invoices.charging import Draft, draft
from billing.invoices.periods import month_of
from billing.models import Budget, BudgetAlert, MailNotice, NoticeKind, WebhookEvent
from billing.rating.hours import NoPrice
from billing.rating.terms import Bill
from billing.webhooks.services import publish
from instances.models import Instance
from tenants import access, audit, mails
from tenants.actors import Actor
from tenants.choices import Role, Scope
from tenants.containment import contained
from tenants.currencies import fits, minor_digits
from tenants.errors import Conflict, Invalid, Message, QuotaExceeded
from tenants.models import Tenant

log = structlog.get_logger(__name__)

BUDGETS_PER_TENANT_MAX = 50
# Roles that may see costs.
MAILED_ROLES = (Role.OWNER, Role.ADMIN, Role.FINANCE)
CHANGEABLE = ("name", "amount")


@transaction.atomic
def create_budget(*, acting: Actor, name: str, amount: Decimal, instance_id: str = "") -> Budget:
    """Creates a budget. Raises `QuotaExceeded` at the limit, and `Invalid` or `Conflict` for a bad instance or used
    name.
    """
    access.require(acting, Scope.BILLING_WRITE)
    tenant = Tenant.objects.select_for_update().get(pk=access.tenant_of(acting).pk)
    if Budget.objects.filter(tenant=tenant).count() >= BUDGETS_PER_TENANT_MAX:
        raise QuotaExceeded(Message(gettext_noop("A tenant has at most %(n)s budgets."), n=BUDGETS_PER_TENANT_MAX))
    if instance_id and not Instance.objects.filter(tenant=tenant, pk=instance_id).exists():
        raise Invalid.at("/instance_id", gettext_noop("There is no such instance."), code="not_found")
    _require_fits(amount, tenant)
    _require_free(tenant, name)
    budget = Budget.objects.create(tenant=tenant, name=name, amount=amount, instance_id=instance_id)
    audit.record(acting, "budget.created", budget, None, _shown(budget))
    return budget


@transaction.atomic
def change_budget(*, acting: Actor, budget: Budget, changes: Mapping[str, Any]) -> Budget:
    """Changes a locked budget. A new amount resets its alerts of the month."""
    access.require(acting, Scope.BILLING_WRITE)
    before = _shown(budget)
    if changes.get("amount", budget.amount) != budget.amount:
        _require_fits(changes["amount"], budget.tenant)
    if changes.get("name", budget.name) != budget.name:
        _require_free(budget.tenant, changes["name"])
    for field in CHANGEABLE:
        setattr(budget, field, changes.get(field, getattr(budget, field)))
    if _shown(budget) != before:
        budget.save_changes(list(CHANGEABLE))
        audit.record(acting, "budget.changed", budget, *audit.difference(before, _shown(budget)))
    return budget


@transaction.atomic
def delete_budget(*, acting: Actor, budget: Budget) -> None:
    """Deletes a budget; its alerts stay."""
    access.require(acting, Scope.BILLING_WRITE)
    audit.record(acting, "budget.deleted", budget, _shown(budget), None)
    budget.delete()


def evaluate(now: datetime) -> int:
    """Evaluates the budgets of all tenants and returns the number of new alerts. Safe to run concurrently."""
    made = 0
    tenants = Tenant.objects.filter(pk__in=Budget.objects.values("tenant_id")).order_by("pk")
    for tenant in tenants.iterator(chunk_size=500):
        with contained("budgets_failed", tenant=tenant.pk):
            made += _evaluate_all(tenant, now)
    return made


def _evaluate_all(tenant: Tenant, now: datetime) -> int:
    try:
        bills = draft(tenant, now)
    except NoPrice as missing:
        log.warning("budget_not_evaluated", tenant=tenant.pk, reason=str(missing))
        return 0
    return sum(_evaluate(budget, bills, now) for budget in Budget.objects.filter(tenant=tenant))


def spent(bill: Bill, instance_id: str) -> Decimal:
    """Returns the costs of one instance, or of the whole bill, before tax."""
    if not instance_id:
        return bill.subtotal
    return sum((line.amount for line in bill.lines if line.instance_id == instance_id), Decimal(0))


def _evaluate(budget: Budget, bills: Draft, now: datetime) -> int:
    month = month_of(now).start
    said = set(
        BudgetAlert.objects.filter(budget_id=budget.pk, amount=budget.amount, month=month).values_list(
            "mark", flat=True
        )
    )
    so_far, forecast = (spent(bill, budget.instance_id) for bill in (bills.so_far, bills.forecast))
    marks = marks_passed(budget.amount, so_far, forecast, said)
    # Of several thresholds passed at once only the highest causes a mail.
    loudest = max((mark for mark in marks if mark != FORECAST), default=FORECAST)
    made = 0
    for mark in marks:
        try:
            with transaction.atomic():
                alert = BudgetAlert.objects.create(
                    tenant=budget.tenant, budget_id=budget.pk, budget_name=budget.name,
                    instance_id=budget.instance_id, month=month, mark=mark, amount=budget.amount, spent=so_far,
                    forecast=forecast, at=now,
                )  # fmt: skip
                publish(budget.tenant, WebhookEvent.BUDGET_ALERT, _payload(alert), now)
                if mark == loudest:
                    MailNotice.objects.create(
                        tenant=budget.tenant, kind=NoticeKind.BUDGET, budget_alert=alert, created_at=now, next_at=now
                    )
                made += 1
        except IntegrityError:
            continue  # another run reported it
    return made


def send_mail(notices: Sequence[MailNotice], is_last: bool = False) -> outbox.Sent:
    """Sends the mail of one alert to members with verified addresses who may see costs."""
    alert = notices[0].budget_alert
    assert alert is not None
    sent = outbox.to_each(
        outbox.members_of(alert.tenant, MAILED_ROLES), "budget", is_last=is_last, alert=alert,
        is_forecast=alert.mark == FORECAST, currency=alert.tenant.currency,
        tenant=alert.tenant.name, link=mails.public_url("/budgets/"),
    )  # fmt: skip
    BudgetAlert.objects.filter(pk=alert.pk).update(sent_to=sent.taken)
    return sent


def _require_fits(amount: Decimal, tenant: Tenant) -> None:
    if not fits(amount, tenant.currency):
        text = Message(
            gettext_noop("Amounts in %(currency)s have at most %(n)s decimals."),
            currency=tenant.currency, n=minor_digits(tenant.currency),
        )  # fmt: skip
        raise Invalid.at("/amount", text, code="too_many_decimals")


def _require_free(tenant: Tenant, name: str) -> None:
    if Budget.objects.filter(tenant=tenant, name=name).exists():
        raise Conflict(gettext_noop("There is a budget of this name."), code="name_taken")


def _payload(alert: BudgetAlert) -> dict[str, Any]:
    return {
        "id": alert.pk, "budget_id": alert.budget_id, "budget_name": alert.budget_name,
        "instance_id": alert.instance_id, "month": f"{alert.month:%Y-%m}", "mark": alert.mark,
        "amount": str(alert.amount), "spent": str(alert.spent), "forecast": str(alert.forecast),
        "currency": alert.tenant.currency,
    }  # fmt: skip


def _shown(budget: Budget) -> dict[str, Any]:
    return {"name": budget.name, "amount": str(budget.amount), "instance_id": budget.instance_id}
