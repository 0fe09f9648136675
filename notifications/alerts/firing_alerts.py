"""Firing alerts for the pages of instances."""

from __future__ import annotations

from collections.abc import Sequence

from django.urls import reverse

from instances.interfaces import FiringAlert
from notifications import access as notifications_access
from notifications.alerts import wording
from notifications.limits import ALERT_RULES_PER_TENANT_MAX
from notifications.models import AlertFiring
from tenants import access
from tenants.actors import Actor
from tenants.choices import Scope


def firing_alerts(acting: Actor, instance_id: str = "") -> Sequence[FiringAlert]:
    """Returns the open firings of the actor's tenant, latest first; with `instance_id` only those of this instance."""
    if not access.permits(acting, Scope.USAGE_READ):
        return ()
    rows = notifications_access.firings_of(acting).filter(resolved_at=None)
    rows = rows.filter(instance_id=instance_id) if instance_id else rows.exclude(instance_id="")
    return [_firing_alert(firing) for firing in rows.order_by("-fired_at", "id")[:ALERT_RULES_PER_TENANT_MAX]]


def _firing_alert(firing: AlertFiring) -> FiringAlert:
    return FiringAlert(
        instance_id=firing.instance_id,
        kind=firing.kind,
        name=firing.rule_name,
        text=wording.describe_firing(firing),
        since=firing.fired_at,
        group=firing.group_id,
        link=reverse("page-alert-rule", args=[firing.rule_id]),
    )
