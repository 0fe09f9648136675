"""Celery: the usage pipeline, run by beat on a worker of its own so that one warm Spark session serves every run."""

from __future__ import annotations

from celery import shared_task
from django.db import close_old_connections

from billing import catching_up

PIPELINE_QUEUE = "pipeline"


@shared_task(name="billing.run_usage_pipeline", queue=PIPELINE_QUEUE)
def run_usage_pipeline() -> None:
    """Applies the usage of every cluster. Safe to run twice and at the same time: a cluster has one run at a time."""
    close_old_connections()
    catching_up.apply_everywhere()
