"""Writes the notices of alerts that fire or are resolved, in the caller's transaction.

| alert | notice |
|---|---|
| firing of a rule | webhook and mail; only mail for a rule of operators |
| threshold of a budget passed | webhook and mail |
| condition of an instance changed | audit entry about the instance |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from instances.lifecycle.conditions import Condition
from instances.models import Instance
from notifications.models import AlertFiring, BudgetAlert, MailNotice, NoticeKind, WebhookEvent
from notifications.webhooks.services import OutgoingEvent, publish_all
from tenants import audit
from tenants.actors import Actor
from tenants.alert_state import Transition
from tenants.models import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Alert to notify a tenant of, or the operators (`tenant` None), who have no webhooks.

    `mail` is the kind of the mail, None for an alert without one. It is about `firing` or `budget_alert`.
    """

    tenant: Tenant | None
    event: WebhookEvent
    payload: Mapping[str, Any]
    mail: NoticeKind | None
    firing: AlertFiring | None = None
    budget_alert: BudgetAlert | None = None


def notify(alerts: Sequence[Alert], now: datetime) -> None:
    """Queues events and mails of alerts, with a constant number of queries."""
    publish_all(
        [OutgoingEvent(alert.tenant, alert.event, alert.payload) for alert in alerts if alert.tenant is not None], now
    )
    MailNotice.objects.bulk_create(
        MailNotice(
            tenant=alert.tenant, kind=alert.mail, firing=alert.firing, budget_alert=alert.budget_alert,
            created_at=now, next_at=now,
        )
        for alert in alerts
        if alert.mail is not None
    )  # fmt: skip


def notify_conditions(acting: Actor, instance: Instance, changes: Sequence[tuple[Condition, Transition]]) -> None:
    """Records an audit entry for each changed condition of an instance."""
    for condition, change in changes:
        action = "instance.recovered" if change is Transition.RESOLVED else "instance.degraded"
        audit.record(acting, action, instance, None, {"condition": condition["type"], "message": condition["message"]})
