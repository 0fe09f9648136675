"""Celery task of archives. It runs in the worker of the usage pipeline, whose Spark session it shares.

The task's name begins with `billing`, because messages with this name may wait in the queue during an upgrade.
"""

from __future__ import annotations

from celery import shared_task
from django.db import close_old_connections
from django.utils import timezone

from archives import running
from billing import usage_backlog


@shared_task(name="billing.run_archives")
def run_archives() -> None:
    """Runs archives that are due. Idempotent and safe to run concurrently: a cluster has one run at a time."""
    close_old_connections()
    running.run_due(usage_backlog.spark_session, timezone.now())
