"""Celery tasks of billing. The usage pipeline has a worker of its own, in which all tasks share one Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, timedelta

import structlog
from celery import Task, shared_task
from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone

from billing import dsn, usage_backlog
from billing.budgets import services as budgets
from billing.dunning import services as dunning
from billing.idle import services as idle
from billing.invoices import closing, month_runs, replays
from billing.lake import merge_schedule, reconciliation, strays
from billing.lake.address import open_lake
from billing.lake.replay import LakeBroken
from billing.reporting import margins
from billing.retention import counters, partitions
from brokers.infra.locks import Busy

log = structlog.get_logger(__name__)


@shared_task(name="billing.run_usage_pipeline")
def run_usage_pipeline() -> None:
    """Applies the usage of every cluster. Idempotent and safe to run concurrently: a cluster has one run at a time."""
    close_old_connections()
    try:
        usage_backlog.process_all_clusters()
    finally:
        usage_backlog.stop_idle_spark()


@shared_task(name="billing.issue_invoices")
def issue_invoices() -> None:
    """Issues the invoices of the past month as soon as its usage is read. Idempotent and safe to run concurrently."""
    close_old_connections()
    now = timezone.now().astimezone(UTC)
    month_runs.store_closing(closing.close_month(now), now)


@shared_task(name=month_runs.TASK)
def run_for_month(kind: str, month: str, operator_id: str) -> None:
    """Executes a run started on the page that closes a month. Idempotent and safe to run concurrently."""
    close_old_connections()
    month_runs.run(month_runs.RunKind(kind), month, operator_id)


@shared_task(name=replays.TASK, bind=True, max_retries=None)
def replay_invoice(self: Task, invoice_id: str) -> None:
    """Replays an invoice from the lake; retries later while another replay runs. Idempotent."""
    close_old_connections()
    try:
        replays.run(invoice_id)
    except Busy as busy:
        raise self.retry(exc=busy, countdown=replays.BUSY_RETRY_S) from None


@shared_task(name="billing.keep_margins")
def keep_margins() -> None:
    """Stores the use of clusters for the operators' page of margins. Idempotent and safe to run concurrently."""
    close_old_connections()
    margins.store_use(timezone.now().astimezone(UTC))


@shared_task(name="billing.keep_partitions")
def keep_partitions() -> None:
    """Creates future partitions of the minutes table and drops old ones. Idempotent and safe to run concurrently."""
    close_old_connections()
    partitions.maintain(timezone.now())


@shared_task(name="billing.forget_counters")
def forget_counters() -> None:
    """Deletes counters of broker processes that ended long ago. Idempotent and safe to run concurrently."""
    close_old_connections()
    counters.delete_old_counters(timezone.now())


@shared_task(name="billing.watch_budgets")
def watch_budgets() -> None:
    """Alerts members who may see costs when a budget passes a threshold. Idempotent and safe to run concurrently."""
    close_old_connections()
    budgets.evaluate(timezone.now().astimezone(UTC))


@shared_task(name="billing.dun")
def dun() -> None:
    """Sends reminders of overdue invoices; suspends and resumes tenants. Idempotent and safe to run concurrently."""
    close_old_connections()
    dunning.dun(timezone.now())


@shared_task(name="billing.stop_idle")
def stop_idle() -> None:
    """Announces idle stops and stops unused instances. Idempotent and safe to run concurrently."""
    close_old_connections()
    idle.check_idle_instances()


@shared_task(name="billing.look_after_lake")
def look_after_lake() -> None:
    """Deletes strays, merges files of past days, and reconciles yesterday and one earlier day without an outcome.

    Differences are logged as errors.
    """
    close_old_connections()
    lake, today = open_lake(settings.LAKE_URL), timezone.now().astimezone(UTC).date()
    yesterday = today - timedelta(days=1)
    try:
        strays.sweep(lake, dsn.conninfo(), timezone.now())
    except OSError as error:
        log.error("lake_not_swept", reason=str(error))
    # Each step is independent of the others: damaged files of one day do not block the other days.
    with _log_damage():
        merge_schedule.merge_days(lake, today)
    with _log_damage():
        if reconciliation.covers_whole_day(yesterday):
            reconciliation.reconcile(lake, yesterday)
    with _log_damage():
        if (earlier := reconciliation.day_without_outcome(today)) is not None:
            reconciliation.reconcile(lake, earlier)


@contextmanager
def _log_damage() -> Iterator[None]:
    """Context manager that logs `LakeBroken` instead of raising it."""
    try:
        yield
    except LakeBroken as error:
        log.error("lake_broken", reason=str(error))
