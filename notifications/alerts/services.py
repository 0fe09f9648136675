"""Changes of the settings of alert rules; `notifications.alerts.evaluating` writes the state of rules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from brokers.limits import BROKERS_PER_CLUSTER_MAX
from instances.models import Instance
from instances.naming import is_valid_topic_name
from notifications.alerts import firings
from notifications.alerts.firings import Resolved
from notifications.limits import ALERT_RULES_PER_TENANT_MAX, LAG_MAX, PERCENT_MAX, WINDOW_MINUTES
from notifications.models import AlertKind, AlertRule, FiringEnd
from tenants import access, audit
from tenants.actors import Actor
from tenants.alert_state import AlertState
from tenants.choices import Scope
from tenants.errors import Conflict, Invalid, Message, QuotaExceeded
from tenants.models import Tenant
from tenants.uniqueness import raise_if_taken

CHANGEABLE = ("name", "threshold", "for_minutes", "window_minutes", "group_id", "topic", "is_enabled")
NAME_CONSTRAINT = "alert_rule_name_once"
# Changing one of these restarts the evaluation.
CONDITION_FIELDS = tuple(name for name in CHANGEABLE if name != "name")
# Fields that the audit log shows.
AUDITED_FIELDS = ("name", "kind", *CONDITION_FIELDS)
# Fields that a restart of the evaluation resets.
STATE_FIELDS = ("state", "state_since", "held_ms", "value", "is_unknown", "evaluated_at")
THRESHOLD_MAX = {
    AlertKind.STORAGE_USED: PERCENT_MAX,
    AlertKind.THROTTLED_SHARE: PERCENT_MAX,
    AlertKind.CONSUMER_LAG: LAG_MAX,
    AlertKind.BROKERS_SILENT: BROKERS_PER_CLUSTER_MAX,
}


@transaction.atomic
def create_rule(*, acting: Actor, instance: Instance, name: str, kind: str, threshold: int, **fields: Any) -> AlertRule:
    """Creates a rule about an instance that was fetched for the actor. Raises `QuotaExceeded`, `Conflict`,
    `Invalid`.
    """
    _require(acting, kind)
    tenant = Tenant.objects.select_for_update().get(pk=access.tenant_of(acting).pk)
    if AlertRule.objects.filter(tenant=tenant).count() >= ALERT_RULES_PER_TENANT_MAX:
        raise QuotaExceeded(
            Message(gettext_noop("A tenant has at most %(n)s alert rules."), n=ALERT_RULES_PER_TENANT_MAX)
        )
    rule = AlertRule(tenant=tenant, instance=instance, name=name, kind=kind, threshold=threshold, **fields)
    if kind == AlertKind.THROTTLED_SHARE and rule.window_minutes is None:
        rule.window_minutes = WINDOW_MINUTES
    _require_valid(rule)
    _require_name_free(tenant, name)
    rule.save(force_insert=True)
    audit.record(acting, "alert_rule.created", rule, None, {"instance": instance.pk, **_audit_values(rule)})
    return rule


@transaction.atomic
def change_rule(*, acting: Actor, rule: AlertRule, changes: Mapping[str, Any]) -> AlertRule:
    """Changes a locked rule. A changed condition restarts the evaluation and ends an open firing."""
    _require(acting, rule.kind)
    before = _audit_values(rule)
    if changes.get("name", rule.name) != rule.name:
        assert rule.tenant is not None
        _require_name_free(rule.tenant, changes["name"])
    for field in CHANGEABLE:
        setattr(rule, field, changes.get(field, getattr(rule, field)))
    _require_valid(rule)
    _save_changed(acting, rule, before)
    return rule


def _save_changed(acting: Actor, rule: AlertRule, before: Mapping[str, Any]) -> None:
    after = _audit_values(rule)
    if after == before:
        return
    changed_fields = list(CHANGEABLE)
    if any(after[field] != before[field] for field in CONDITION_FIELDS):
        was_paused = before["is_enabled"] and not rule.is_enabled
        restart_evaluation(rule, FiringEnd.PAUSED if was_paused else FiringEnd.CHANGED, timezone.now())
        changed_fields += STATE_FIELDS
    with raise_if_taken(NAME_CONSTRAINT, _name_taken()):
        rule.save_changes(changed_fields)
    audit.record(acting, "alert_rule.changed", rule, *audit.difference(before, after))


@transaction.atomic
def delete_rule(*, acting: Actor, rule: AlertRule) -> None:
    """Deletes a locked rule. An open firing ends and is notified; the history stays."""
    _require(acting, rule.kind)
    firings.end([Resolved(rule, FiringEnd.DELETED, rule.value)], timezone.now())
    audit.record(acting, "alert_rule.deleted", rule, _audit_values(rule), None)
    rule.delete()


@transaction.atomic
def change_rule_of_cluster(*, acting: Actor, rule: AlertRule, changes: Mapping[str, Any]) -> None:
    """Changes an operator's rule about a cluster. A changed condition restarts the evaluation and ends an open firing.

    The row is read again with a lock, because the evaluation may have changed its state since `rule` was read.
    """
    locked = AlertRule.objects.select_for_update(no_key=True).get(pk=rule.pk)
    before = _audit_values(locked)
    for field, value in changes.items():
        setattr(locked, field, value)
    _save_changed(acting, locked, before)


@transaction.atomic
def delete_rule_of_cluster(*, acting: Actor, rule: AlertRule) -> None:
    """Deletes an operator's rule about a cluster; its firings stay."""
    locked = AlertRule.objects.select_for_update().get(pk=rule.pk)
    firings.end([Resolved(locked, FiringEnd.DELETED, locked.value)], timezone.now())
    audit.record(acting, "alert_rule.deleted", locked, _audit_values(locked), None)
    locked.delete()


def restart_evaluation(rule: AlertRule, reason: FiringEnd, now: datetime) -> None:
    """Resets the state of a locked rule; the caller saves `STATE_FIELDS`.

    `fired_at` is kept, so that a change does not make the rule fire sooner.
    """
    firings.end([Resolved(rule, reason, rule.value)], now)
    rule.state, rule.state_since, rule.held_ms = AlertState.OK.value, now, 0
    rule.value, rule.is_unknown, rule.evaluated_at = None, True, None


def _require(acting: Actor, kind: str) -> None:
    """Checks scopes; rules about consumer groups reveal lags, and therefore need `groups:read`."""
    access.require(acting, Scope.INSTANCES_WRITE)
    if kind == AlertKind.CONSUMER_LAG:
        access.require(acting, Scope.GROUPS_READ)


def _require_valid(rule: AlertRule) -> None:
    kind = AlertKind(rule.kind)
    if not rule.name.isprintable():
        raise Invalid.at("/name", gettext_noop("A name is one line of printable characters."), code="invalid_name")
    if rule.threshold > THRESHOLD_MAX[kind]:
        too_large = Message(gettext_noop("At most %(n)s for this kind of rule."), n=THRESHOLD_MAX[kind])
        raise Invalid.at("/threshold", too_large, code="too_large")
    is_lag = kind == AlertKind.CONSUMER_LAG
    if is_lag != bool(rule.group_id):
        raise Invalid.at(
            "/group_id", gettext_noop("A rule about a consumer group names it, and no other rule does."), code="group"
        )
    if not rule.group_id.isprintable():
        raise Invalid.at("/group_id", gettext_noop("There can be no such group."), code="invalid_name")
    if rule.topic and not is_lag:
        raise Invalid.at("/topic", gettext_noop("Only a rule about a consumer group has a topic."), code="topic")
    if rule.topic and not is_valid_topic_name(rule.topic):
        raise Invalid.at("/topic", gettext_noop("There can be no such topic."), code="invalid_name")
    if (kind == AlertKind.THROTTLED_SHARE) != (rule.window_minutes is not None):
        raise Invalid.at(
            "/window_minutes",
            gettext_noop("A rule about delayed clients has a window of minutes, and no other rule has."),
            code="window",
        )


def _require_name_free(tenant: Tenant, name: str) -> None:
    if AlertRule.objects.filter(tenant=tenant, name=name).exists():
        raise _name_taken()


def _name_taken() -> Conflict:
    return Conflict(gettext_noop("There is an alert rule of this name."), code="name_taken")


def _audit_values(rule: AlertRule) -> dict[str, Any]:
    return {field: getattr(rule, field) for field in AUDITED_FIELDS}
