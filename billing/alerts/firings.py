"""A rule begins or ends to fire: the row, webhooks and mail are written in the caller's transaction, all or none.

A rule has one firing at most that is open, and each of its two ends is told once: rows that are unique say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from billing.models import AlertFiring, AlertRule, FiringEnd, MailNotice, NoticeKind, WebhookEvent
from billing.webhooks.services import publish


def begin(rule: AlertRule, value: int, pending_at: datetime, now: datetime) -> AlertFiring | None:
    """`rule` is locked. None: a firing of it is open already, and was told."""
    if AlertFiring.objects.filter(rule_id=rule.pk, resolved_at=None).exists():
        return None
    firing = AlertFiring.objects.create(
        tenant=rule.tenant, rule_id=rule.pk, rule_name=rule.name, kind=rule.kind, instance_id=rule.instance_id or "",
        cluster_id=rule.cluster_id or "", of_name=_of(rule), group_id=rule.group_id, topic=rule.topic,
        threshold=rule.threshold, for_minutes=rule.for_minutes, window_minutes=rule.window_minutes, value=value,
        pending_at=pending_at, fired_at=now,
    )  # fmt: skip
    _tell(firing, WebhookEvent.ALERT_FIRING, NoticeKind.FIRING, now)
    return firing


def end(rule: AlertRule, why: FiringEnd, value: int | None, now: datetime) -> AlertFiring | None:
    """`rule` is locked. None: no firing of it is open."""
    firing = AlertFiring.objects.select_for_update().filter(rule_id=rule.pk, resolved_at=None).first()
    if firing is None:
        return None
    firing.resolved_at, firing.resolved_value, firing.ended_by = now, value, why
    firing.save(update_fields=["resolved_at", "resolved_value", "ended_by"])
    _tell(firing, WebhookEvent.ALERT_RESOLVED, NoticeKind.RESOLVED, now)
    return firing


def forget(firings: Iterable[str]) -> int:
    """With their notices; returns how many."""
    return AlertFiring.objects.filter(pk__in=list(firings)).delete()[1].get("billing.AlertFiring", 0)


def payload(firing: AlertFiring) -> dict[str, Any]:
    """What webhooks are told; times in ISO 8601."""
    return {
        "id": firing.pk, "rule_id": firing.rule_id, "rule_name": firing.rule_name, "kind": firing.kind,
        "instance_id": firing.instance_id, "group_id": firing.group_id, "topic": firing.topic,
        "threshold": firing.threshold, "for_minutes": firing.for_minutes, "window_minutes": firing.window_minutes,
        "value": firing.value, "pending_at": firing.pending_at.isoformat(), "fired_at": firing.fired_at.isoformat(),
        "resolved_at": firing.resolved_at.isoformat() if firing.resolved_at else None,
        "resolved_value": firing.resolved_value, "ended_by": firing.ended_by,
    }  # fmt: skip


def _tell(firing: AlertFiring, event: WebhookEvent, kind: NoticeKind, now: datetime) -> None:
    """Operators' rules have no webhooks."""
    if firing.tenant is not None:
        publish(firing.tenant, event, payload(firing), now)
    MailNotice.objects.create(tenant=firing.tenant, kind=kind, firing=firing, created_at=now, next_at=now)


def _of(rule: AlertRule) -> str:
    if rule.instance is not None:
        return rule.instance.name
    return rule.cluster.name if rule.cluster is not None else ""
