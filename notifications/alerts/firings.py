"""Start and end of firings of alert rules. Rows, webhooks and mails are written in the caller's transaction.

A rule has at most one open firing, and each start and end is notified once; unique constraints ensure this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from notifications.alerting import Alert, notify
from notifications.models import AlertFiring, AlertRule, FiringEnd, NoticeKind, WebhookEvent


@dataclass(frozen=True, slots=True)
class Fired:
    """Start of a firing of a locked rule, whose condition has held since `pending_at`; `value` in the unit
    of its kind.
    """

    rule: AlertRule
    value: int
    pending_at: datetime


@dataclass(frozen=True, slots=True)
class Resolved:
    """End of the open firing of a locked rule; `value` in the unit of its kind, if it is known."""

    rule: AlertRule
    reason: FiringEnd
    value: int | None


def begin(fired: Sequence[Fired], now: datetime) -> list[AlertFiring]:
    """Creates firings for rules without an open one, with a constant number of queries."""
    rules = [new_firing.rule.pk for new_firing in fired]
    rules_with_open_firing = set(
        AlertFiring.objects.filter(rule_id__in=rules, resolved_at=None).values_list("rule_id", flat=True)
    )
    started_firings = [
        _firing(new_firing, now) for new_firing in fired if new_firing.rule.pk not in rules_with_open_firing
    ]
    AlertFiring.objects.bulk_create(started_firings)
    _notify(started_firings, WebhookEvent.ALERT_FIRING, NoticeKind.FIRING, now)
    return started_firings


def end(resolved: Sequence[Resolved], now: datetime) -> list[AlertFiring]:
    """Ends the open firings of the rules; rules without one are ignored."""
    resolutions_by_rule = {resolution.rule.pk: resolution for resolution in resolved}
    open_firings = AlertFiring.objects.select_for_update(of=("self",)).select_related("tenant")
    ended_firings = list(open_firings.filter(rule_id__in=resolutions_by_rule, resolved_at=None).order_by("pk"))
    for firing in ended_firings:
        resolution = resolutions_by_rule[firing.rule_id]
        firing.resolved_at, firing.resolved_value, firing.ended_by = now, resolution.value, resolution.reason
    AlertFiring.objects.bulk_update(ended_firings, ["resolved_at", "resolved_value", "ended_by"])
    _notify(ended_firings, WebhookEvent.ALERT_RESOLVED, NoticeKind.RESOLVED, now)
    return ended_firings


def delete(firings: Iterable[str]) -> int:
    """Deletes firings with their notices and returns the number of deleted firings."""
    return AlertFiring.objects.filter(pk__in=list(firings)).delete()[1].get("notifications.AlertFiring", 0)


def payload(firing: AlertFiring) -> dict[str, Any]:
    """Returns the webhook payload of a firing; times in ISO 8601."""
    return {
        "id": firing.pk, "rule_id": firing.rule_id, "rule_name": firing.rule_name, "kind": firing.kind,
        "instance_id": firing.instance_id, "group_id": firing.group_id, "topic": firing.topic,
        "threshold": firing.threshold, "for_minutes": firing.for_minutes, "window_minutes": firing.window_minutes,
        "value": firing.value, "pending_at": firing.pending_at.isoformat(), "fired_at": firing.fired_at.isoformat(),
        "resolved_at": firing.resolved_at.isoformat() if firing.resolved_at else None,
        "resolved_value": firing.resolved_value, "ended_by": firing.ended_by,
    }  # fmt: skip


def _notify(firings: Sequence[AlertFiring], event: WebhookEvent, kind: NoticeKind, now: datetime) -> None:
    alerts = (
        Alert(tenant=firing.tenant, event=event, payload=payload(firing), mail=kind, firing=firing)
        for firing in firings
    )
    notify(list(alerts), now)


def _firing(new_firing: Fired, now: datetime) -> AlertFiring:
    rule = new_firing.rule
    return AlertFiring(
        tenant=rule.tenant, rule_id=rule.pk, rule_name=rule.name, kind=rule.kind, instance_id=rule.instance_id or "",
        cluster_id=rule.cluster_id or "", of_name=_subject_name(rule), group_id=rule.group_id, topic=rule.topic,
        threshold=rule.threshold, for_minutes=rule.for_minutes, window_minutes=rule.window_minutes,
        value=new_firing.value, pending_at=new_firing.pending_at, fired_at=now,
    )  # fmt: skip


def _subject_name(rule: AlertRule) -> str:
    if rule.instance is not None:
        return rule.instance.name
    return rule.cluster.name if rule.cluster is not None else ""
