"""Celery: the usage pipeline, on a worker of its own so that one warm Spark session serves every run, and invoices."""

from __future__ import annotations

from datetime import UTC

from celery import shared_task
from django.db import close_old_connections
from django.utils import timezone

from billing import catching_up
from billing.invoices import closing

PIPELINE_QUEUE = "pipeline"


@shared_task(name="billing.run_usage_pipeline", queue=PIPELINE_QUEUE)
def run_usage_pipeline() -> None:
    """Applies the usage of every cluster. Safe to run twice and at the same time: a cluster has one run at a time."""
    close_old_connections()
    catching_up.apply_everywhere()


@shared_task(name="billing.issue_invoices")
def issue_invoices() -> None:
    """Invoices of the month that is over, as soon as its usage is read. Safe to run twice and at the same time."""
    close_old_connections()
    closing.close_month(timezone.now().astimezone(UTC))
