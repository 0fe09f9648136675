"""Celery tasks of notifications.

The names of tasks begin with `billing.` and must not change, because messages with them may wait in the queue.
"""

from __future__ import annotations

from celery import shared_task
from django.db import close_old_connections
from django.utils import timezone

from notifications import outbox
from notifications.alerts import evaluating
from notifications.alerts import mailing as alert_mails
from notifications.budgets import alerts as budget_alerts
from notifications.webhooks import delivering
from notifications.webhooks import services as webhooks


@shared_task(name="billing.evaluate_alert_rules")
def evaluate_alert_rules() -> None:
    """Evaluates alert rules, which fire or resolve. Idempotent and safe to run concurrently."""
    close_old_connections()
    now = timezone.now()
    evaluating.evaluate(now)
    evaluating.delete_old_firings(now)
    outbox.delete_old_notices(now)


@shared_task(name="billing.send_mails")
def send_mails() -> None:
    """Sends mails of budgets and alerts that are due. Idempotent and safe to run concurrently."""
    close_old_connections()
    now = timezone.now()
    outbox.send_due(now, budgets=budget_alerts.send_mail, alerts=alert_mails.send)


@shared_task(name="billing.deliver_webhooks")
def deliver_webhooks() -> None:
    """Delivers webhooks that are due and deletes old deliveries. Idempotent and safe to run concurrently."""
    close_old_connections()
    now = timezone.now()
    delivering.deliver(now)
    webhooks.delete_old_deliveries(now)
