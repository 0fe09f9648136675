"""Writes of action items: faults of a single tenant, shown to operators until a later round succeeds."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from billing.models import ActionItem, ActionKind
from billing.models.action_items import DETAIL_CHARS_MAX
from tenants.models import Tenant


def record(tenant: Tenant, kind: ActionKind, detail: str, now: datetime) -> None:
    """Records a fault; for a fault that is recorded already, updates its detail and the time it was last seen."""
    values = {"detail": detail[:DETAIL_CHARS_MAX], "noted_at": now}
    ActionItem.objects.update_or_create(
        tenant=tenant, kind=kind, defaults=values, create_defaults=values | {"first_at": now}
    )


def clear(tenant: Tenant, kind: ActionKind) -> None:
    """Removes the item of a kind of one tenant, if there is one."""
    ActionItem.objects.filter(tenant=tenant, kind=kind).delete()


def clear_all_but(kind: ActionKind, tenant_ids: Collection[str]) -> None:
    """Removes all items of a kind except those of the given tenants, which failed in the latest round."""
    ActionItem.objects.filter(kind=kind).exclude(tenant_id__in=tenant_ids).delete()
