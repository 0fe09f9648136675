"""Notification of alerts: the event for webhooks and the mail are written in the transaction of the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from notifications.models import AlertFiring, BudgetAlert, MailNotice, NoticeKind, WebhookEvent
from notifications.webhooks.services import OutgoingEvent, publish_all
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
