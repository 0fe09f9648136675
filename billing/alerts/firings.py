"""Beginning and end of firings: rows, webhooks and mails are written in the caller's transaction.

A rule has at most one open firing, and each beginning and end is notified once; unique rows ensure this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from billing.models import AlertFiring, AlertRule, FiringEnd, MailNotice, NoticeKind, WebhookEvent
from billing.webhooks.services import News, publish_all


@dataclass(frozen=True, slots=True)
class Beginning:
    """Start of a firing of a locked rule, whose condition has held since `pending_at`; `value` in the unit
    of its kind.
    """

    rule: AlertRule
    value: int
    pending_at: datetime


@dataclass(frozen=True, slots=True)
class Ending:
    """End of the open firing of a locked rule; `value` in the unit of its kind, if it is known."""

    rule: AlertRule
    why: FiringEnd
    value: int | None


def begin(beginnings: Sequence[Beginning], now: datetime) -> list[AlertFiring]:
    """Creates firings for rules without an open one, with a constant number of queries."""
    rules = [beginning.rule.pk for beginning in beginnings]
    open_of = set(AlertFiring.objects.filter(rule_id__in=rules, resolved_at=None).values_list("rule_id", flat=True))
    begun = [_firing(beginning, now) for beginning in beginnings if beginning.rule.pk not in open_of]
    AlertFiring.objects.bulk_create(begun)
    _tell(begun, WebhookEvent.ALERT_FIRING, NoticeKind.FIRING, now)
    return begun


def end(endings: Sequence[Ending], now: datetime) -> list[AlertFiring]:
    """Ends the open firings of the rules; rules without one are ignored."""
    by_rule = {ending.rule.pk: ending for ending in endings}
    still_open = AlertFiring.objects.select_for_update(of=("self",)).select_related("tenant")
    ended = list(still_open.filter(rule_id__in=by_rule, resolved_at=None).order_by("pk"))
    for firing in ended:
        ending = by_rule[firing.rule_id]
        firing.resolved_at, firing.resolved_value, firing.ended_by = now, ending.value, ending.why
    AlertFiring.objects.bulk_update(ended, ["resolved_at", "resolved_value", "ended_by"])
    _tell(ended, WebhookEvent.ALERT_RESOLVED, NoticeKind.RESOLVED, now)
    return ended


def forget(firings: Iterable[str]) -> int:
    """Deletes firings with their notices and returns the number of deleted firings."""
    return AlertFiring.objects.filter(pk__in=list(firings)).delete()[1].get("billing.AlertFiring", 0)


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


def _tell(firings: Sequence[AlertFiring], event: WebhookEvent, kind: NoticeKind, now: datetime) -> None:
    """Publishes events and mail notices. Operators' rules have no webhooks."""
    publish_all([News(firing.tenant, event, payload(firing)) for firing in firings if firing.tenant is not None], now)
    MailNotice.objects.bulk_create(
        MailNotice(tenant=firing.tenant, kind=kind, firing=firing, created_at=now, next_at=now) for firing in firings
    )


def _firing(beginning: Beginning, now: datetime) -> AlertFiring:
    rule = beginning.rule
    return AlertFiring(
        tenant=rule.tenant, rule_id=rule.pk, rule_name=rule.name, kind=rule.kind, instance_id=rule.instance_id or "",
        cluster_id=rule.cluster_id or "", of_name=_of(rule), group_id=rule.group_id, topic=rule.topic,
        threshold=rule.threshold, for_minutes=rule.for_minutes, window_minutes=rule.window_minutes,
        value=beginning.value, pending_at=beginning.pending_at, fired_at=now,
    )  # fmt: skip


def _of(rule: AlertRule) -> str:
    if rule.instance is not None:
        return rule.instance.name
    return rule.cluster.name if rule.cluster is not None else ""
