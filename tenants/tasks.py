"""Background work of this app. Safe to run twice."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from tenants import audit, services
from tenants.api import idempotency


@shared_task(name="tenants.forget_idempotency_records")
def forget_idempotency_records() -> int:
    """Delete answers that are no longer replayed; how many went."""
    return idempotency.forget_old(timezone.now())


@shared_task(name="tenants.forget_ended_sessions")
def forget_ended_sessions() -> int:
    """Delete sessions that are idle or old; how many went."""
    return services.forget_ended_sessions(timezone.now())


@shared_task(name="tenants.forget_old_client_rows")
def forget_old_client_rows() -> int:
    """Delete what the audit log has kept of Kafka clients for long enough; how many rows went."""
    return audit.forget_old_client_rows(timezone.now())
