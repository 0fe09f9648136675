"""Background tasks of this app. Idempotent."""

from __future__ import annotations

from celery import shared_task
from django.utils import timezone

from tenants import audit, services
from tenants.api import idempotency


@shared_task(name="tenants.forget_idempotency_records")
def forget_idempotency_records() -> int:
    """Deletes expired idempotency records and returns their number."""
    return idempotency.delete_expired(timezone.now())


@shared_task(name="tenants.forget_ended_sessions")
def forget_ended_sessions() -> int:
    """Deletes sessions that are idle or expired and returns their number."""
    return services.delete_expired_sessions(timezone.now())


@shared_task(name="tenants.forget_old_client_rows")
def forget_old_client_rows() -> int:
    """Deletes expired audit entries about Kafka clients and returns their number."""
    return audit.delete_expired_client_entries(timezone.now())


@shared_task(name="tenants.recheck_domains")
def recheck_domains() -> int:
    """Looks again for the DNS records of proved e-mail domains and returns the number of proofs that lapsed."""
    return services.recheck_domains(timezone.now())
