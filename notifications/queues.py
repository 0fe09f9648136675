"""Round robin over tenants, for queues that process the backlogs of all tenants.

Tenants that were never served come first, then the tenant that was served longest ago. The backlog of one tenant
therefore delays another tenant by at most one turn, however long it is.
"""

from __future__ import annotations

from collections.abc import Collection

from django.utils import timezone

from notifications.models import Queue, QueueTurn


def in_service_order(queue: Queue, tenant_ids: Collection[str]) -> list[str]:
    """Returns the tenants in the order in which the queue serves them."""
    served = dict(QueueTurn.objects.filter(queue=queue, tenant__in=tenant_ids).values_list("tenant_id", "served_at"))
    waiting = sorted(set(tenant_ids))
    never = [tenant_id for tenant_id in waiting if tenant_id not in served]
    return never + sorted((tenant_id for tenant_id in waiting if tenant_id in served), key=served.__getitem__)


def record_served(queue: Queue, tenant_ids: Collection[str]) -> None:
    """Moves the tenants to the end of the queue."""
    now = timezone.now()
    QueueTurn.objects.bulk_create(
        [QueueTurn(queue=queue, tenant_id=tenant_id, served_at=now) for tenant_id in sorted(set(tenant_ids))],
        update_conflicts=True,
        unique_fields=["queue", "tenant"],
        update_fields=["served_at"],
    )
