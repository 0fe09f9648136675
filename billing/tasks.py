"""Celery: the usage pipeline, on a worker of its own so that one Spark session serves all who need it, and invoices."""

from __future__ import annotations

from datetime import UTC, timedelta

import structlog
from celery import shared_task
from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone

from billing import catching_up, outbox
from billing.alerts import evaluating
from billing.alerts import mailing as alert_mails
from billing.archives import running
from billing.budgets import services as budgets
from billing.dunning import services as dunning
from billing.idle import services as idle
from billing.invoices import closing, month_runs
from billing.lake import upkeep
from billing.lake.address import open_lake
from billing.lake.replay import LakeBroken
from billing.reporting import margins
from billing.retention import counters, partitions
from billing.webhooks import delivering, services

log = structlog.get_logger(__name__)


@shared_task(name="billing.run_usage_pipeline")
def run_usage_pipeline() -> None:
    """Applies the usage of every cluster. Safe to run twice and at the same time: a cluster has one run at a time."""
    close_old_connections()
    try:
        catching_up.apply_everywhere()
    finally:
        catching_up.give_spark_back()


@shared_task(name="billing.issue_invoices")
def issue_invoices() -> None:
    """Invoices of the month that is over, as soon as its usage is read. Safe to run twice and at the same time."""
    close_old_connections()
    now = timezone.now().astimezone(UTC)
    month_runs.note_closing(closing.close_month(now), now)


@shared_task(name=month_runs.TASK)
def run_for_month(kind: str, month: str, operator_id: str) -> None:
    """What an operator started on the page that closes a month. Safe to run twice and at the same time."""
    close_old_connections()
    month_runs.run(month_runs.RunKind(kind), month, operator_id)


@shared_task(name="billing.keep_margins")
def keep_margins() -> None:
    """What clusters used, for the operator's page. Safe to run twice and at the same time."""
    close_old_connections()
    margins.keep(timezone.now().astimezone(UTC))


@shared_task(name="billing.keep_partitions")
def keep_partitions() -> None:
    """Makes partitions of minutes ahead, and drops old ones. Safe to run twice and at the same time."""
    close_old_connections()
    partitions.look_after(timezone.now())


@shared_task(name="billing.forget_counters")
def forget_counters() -> None:
    """Forgets counters of brokers' processes that ended long ago. Safe to run twice and at the same time."""
    close_old_connections()
    counters.forget(timezone.now())


@shared_task(name="billing.watch_budgets")
def watch_budgets() -> None:
    """Tells who may see cost when a budget passes a mark. Safe to run twice and at the same time."""
    close_old_connections()
    budgets.evaluate(timezone.now().astimezone(UTC))


@shared_task(name="billing.evaluate_alert_rules")
def evaluate_alert_rules() -> None:
    """Rules fire and are resolved. Safe to run twice and at the same time."""
    close_old_connections()
    now = timezone.now()
    evaluating.evaluate(now)
    evaluating.forget_old(now)
    outbox.forget_old(now)


@shared_task(name="billing.send_mails")
def send_mails() -> None:
    """Sends what budgets and alerts have to tell. Safe to run twice and at the same time."""
    close_old_connections()
    now = timezone.now()
    outbox.send_due(now, budgets=budgets.send_mail, alerts=alert_mails.send)


@shared_task(name="billing.deliver_webhooks")
def deliver_webhooks() -> None:
    """Sends what is due, and forgets what is over since long ago. Safe to run twice and at the same time."""
    close_old_connections()
    now = timezone.now()
    delivering.deliver(now)
    services.forget_old(now)


@shared_task(name="billing.dun")
def dun() -> None:
    """Reminds of overdue invoices, suspends and resumes tenants for them. Safe to run twice and at the same time."""
    close_old_connections()
    dunning.dun(timezone.now())


@shared_task(name="billing.stop_idle")
def stop_idle() -> None:
    """Warns of idle stops, and stops instances that nobody uses. Safe to run twice, and at the same time."""
    close_old_connections()
    idle.watch()


@shared_task(name="billing.run_archives")
def run_archives() -> None:
    """Archives that are due. Safe to run twice and at the same time: a cluster has one run at a time."""
    close_old_connections()
    running.run_due(catching_up.spark_session, timezone.now())


@shared_task(name="billing.look_after_lake")
def look_after_lake() -> None:
    """Merges files of days that are over, and works yesterday out again, and one earlier day that nobody did; what
    differs is logged as an error.
    """
    close_old_connections()
    place, today = open_lake(settings.LAKE_URL), timezone.now().astimezone(UTC).date()
    try:
        upkeep.merge_days(place, today)
        if upkeep.has_all_of(yesterday := today - timedelta(days=1)):
            upkeep.reconcile(place, yesterday)
        if (earlier := upkeep.day_without_outcome(today)) is not None:
            upkeep.reconcile(place, earlier)
    except LakeBroken as broken:
        log.error("lake_broken", reason=str(broken))
