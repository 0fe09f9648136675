"""Background work of this app. Safe to run twice."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from tenants import services
from tenants.api import idempotency


@shared_task(name="tenants.forget_idempotency_records")
def forget_idempotency_records() -> int:
    """Delete answers that are no longer replayed; how many went."""
    return idempotency.forget_old(timezone.now())


@shared_task(name="tenants.forget_ended_sessions")
def forget_ended_sessions() -> int:
    """Delete sessions that are idle or old; how many went."""
    return services.forget_ended_sessions(timezone.now())
