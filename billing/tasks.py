"""Celery tasks of billing. The usage pipeline has a worker of its own, in which all tasks share one Spark session."""

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
    """Applies the usage of every cluster. Idempotent and safe to run concurrently: a cluster has one run at a time."""
    close_old_connections()
    try:
        catching_up.apply_everywhere()
    finally:
        catching_up.give_spark_back()


@shared_task(name="billing.issue_invoices")
def issue_invoices() -> None:
    """Issues the invoices of the past month as soon as its usage is read. Idempotent and safe to run concurrently."""
    close_old_connections()
    now = timezone.now().astimezone(UTC)
    month_runs.note_closing(closing.close_month(now), now)


@shared_task(name=month_runs.TASK)
def run_for_month(kind: str, month: str, operator_id: str) -> None:
    """Executes a run started on the page that closes a month. Idempotent and safe to run concurrently."""
    close_old_connections()
    month_runs.run(month_runs.RunKind(kind), month, operator_id)


@shared_task(name="billing.keep_margins")
def keep_margins() -> None:
    """Stores the resource usage of clusters for the operator's page of margins. Idempotent and safe to run
    concurrently.
    """
    close_old_connections()
    margins.keep(timezone.now().astimezone(UTC))


@shared_task(name="billing.keep_partitions")
def keep_partitions() -> None:
    """Creates future partitions of the minutes table and drops old ones. Idempotent and safe to run concurrently."""
    close_old_connections()
    partitions.look_after(timezone.now())


@shared_task(name="billing.forget_counters")
def forget_counters() -> None:
    """Deletes counters of broker processes that ended long ago. Idempotent and safe to run concurrently."""
    close_old_connections()
    counters.forget(timezone.now())


@shared_task(name="billing.watch_budgets")
def watch_budgets() -> None:
    """Alerts members who may see costs when a budget passes a threshold. Idempotent and safe to run concurrently."""
    close_old_connections()
    budgets.evaluate(timezone.now().astimezone(UTC))


@shared_task(name="billing.evaluate_alert_rules")
def evaluate_alert_rules() -> None:
    """Evaluates alert rules, which fire or resolve. Idempotent and safe to run concurrently."""
    close_old_connections()
    now = timezone.now()
    evaluating.evaluate(now)
    evaluating.forget_old(now)
    outbox.forget_old(now)


@shared_task(name="billing.send_mails")
def send_mails() -> None:
    """Sends mails of budgets and alerts that are due. Idempotent and safe to run concurrently."""
    close_old_connections()
    now = timezone.now()
    outbox.send_due(now, budgets=budgets.send_mail, alerts=alert_mails.send)


@shared_task(name="billing.deliver_webhooks")
def deliver_webhooks() -> None:
    """Delivers webhooks that are due and deletes old deliveries. Idempotent and safe to run concurrently."""
    close_old_connections()
    now = timezone.now()
    delivering.deliver(now)
    services.forget_old(now)


@shared_task(name="billing.dun")
def dun() -> None:
    """Sends reminders of overdue invoices; suspends and resumes tenants. Idempotent and safe to run concurrently."""
    close_old_connections()
    dunning.dun(timezone.now())


@shared_task(name="billing.stop_idle")
def stop_idle() -> None:
    """Announces idle stops and stops unused instances. Idempotent and safe to run concurrently."""
    close_old_connections()
    idle.watch()


@shared_task(name="billing.run_archives")
def run_archives() -> None:
    """Runs archives that are due. Idempotent and safe to run concurrently: a cluster has one run at a time."""
    close_old_connections()
    running.run_due(catching_up.spark_session, timezone.now())


@shared_task(name="billing.look_after_lake")
def look_after_lake() -> None:
    """Merges files of past days, and reconciles yesterday and one earlier day without an outcome.

    Differences are logged as errors.
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
