"""Alerts of budgets: each is created in one transaction with its queued webhook event and mail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, transaction

from notifications import outbox
from notifications.alerting import Alert, notify
from notifications.budgets.decide import FORECAST, marks_to_report
from notifications.models import BudgetAlert, MailNotice, NoticeKind, WebhookEvent
from tenants import mails
from tenants.choices import Role
from tenants.models import Tenant

# Roles that may see costs.
MAILED_ROLES = (Role.OWNER, Role.ADMIN, Role.FINANCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetCosts:
    """Budget with the costs that it is compared with: `spent` in `month` so far, and `forecast` for the whole month."""

    budget_id: str
    budget_name: str
    instance_id: str
    amount: Decimal
    month: datetime
    spent: Decimal
    forecast: Decimal


def report(tenant: Tenant, costs: BudgetCosts, now: datetime) -> int:
    """Creates an alert for each mark (a percentage of the budget, or `FORECAST`) that was reached and not yet reported.
    Returns their number.

    Safe to run concurrently.
    """
    reported = BudgetAlert.objects.filter(budget_id=costs.budget_id, amount=costs.amount, month=costs.month)
    reported_marks = set(reported.values_list("mark", flat=True))
    marks = marks_to_report(costs.amount, costs.spent, costs.forecast, reported_marks, now)
    # If several marks are reached at once, only the highest causes a mail.
    mailed_mark = max((mark for mark in marks if mark != FORECAST), default=FORECAST)
    created = 0
    for mark in marks:
        try:
            with transaction.atomic():
                alert = BudgetAlert.objects.create(
                    tenant=tenant, budget_id=costs.budget_id, budget_name=costs.budget_name,
                    instance_id=costs.instance_id, month=costs.month, mark=mark, amount=costs.amount,
                    spent=costs.spent, forecast=costs.forecast, at=now,
                )  # fmt: skip
                mail = NoticeKind.BUDGET if mark == mailed_mark else None
                notify([_alert_of(alert, mail)], now)
                created += 1
        except IntegrityError:
            continue  # another run reported it
    return created


def send_mail(notices: Sequence[MailNotice], is_last: bool = False) -> outbox.MailDelivery:
    """Sends the mail of one alert to members with verified addresses who may see costs. `notices` has one notice."""
    alert = notices[0].budget_alert
    assert alert is not None
    sent = outbox.send_to_each(
        notices, outbox.members_of(alert.tenant, MAILED_ROLES), "budget", is_last=is_last, alert=alert,
        is_forecast=alert.mark == FORECAST, currency=alert.tenant.currency,
        tenant=alert.tenant.name, link=mails.public_url("/budgets/"),
    )  # fmt: skip
    BudgetAlert.objects.filter(pk=alert.pk).update(sent_to=len(notices[0].accepted_for))
    return sent


def _alert_of(alert: BudgetAlert, mail: NoticeKind | None) -> Alert:
    return Alert(
        tenant=alert.tenant, event=WebhookEvent.BUDGET_ALERT, payload=_payload(alert), mail=mail, budget_alert=alert
    )


def _payload(alert: BudgetAlert) -> dict[str, Any]:
    return {
        "id": alert.pk, "budget_id": alert.budget_id, "budget_name": alert.budget_name,
        "instance_id": alert.instance_id, "month": f"{alert.month:%Y-%m}", "mark": alert.mark,
        "amount": str(alert.amount), "spent": str(alert.spent), "forecast": str(alert.forecast),
        "currency": alert.tenant.currency,
    }  # fmt: skip
