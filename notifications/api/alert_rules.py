"""REST resources of alert rules (`/alert-rules`) and their firings (`/alert-firings`)."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from instances import access as instances_access
from instances.naming import TOPIC_NAME_LENGTH_MAX
from notifications import access
from notifications.alerts import services
from notifications.limits import (
    FOR_MINUTES,
    FOR_MINUTES_MAX,
    GROUP_CHARS_MAX,
    LAG_MAX,
    NAME_CHARS_MAX,
    WINDOW_MINUTES_MAX,
    WINDOW_MINUTES_MIN,
)
from notifications.models import OF_TENANTS, AlertFiring, AlertRule
from tenants.api.base import API_ROOT, ApiView, endpoint
from tenants.api.strict import Choice, Flag, Integer, StrictSerializer, Text
from tenants.choices import Scope

KINDS = [(kind.value, kind.value) for kind in OF_TENANTS]


class AlertRuleOut(serializers.ModelSerializer[AlertRule]):
    """Alert rule with its state. `threshold` and `value` are percent (`storage_used`, `throttled_share`), records
    (`consumer_lag`) or brokers (`brokers_silent`). If `is_unknown`, the last figure was unknown, and `state` is the
    previous state.
    """

    enabled = serializers.BooleanField(source="is_enabled")

    class Meta:
        model = AlertRule
        fields = (
            "id", "name", "instance_id", "kind", "threshold", "for_minutes", "window_minutes", "group_id", "topic",
            "enabled", "state", "state_since", "value", "is_unknown", "evaluated_at", "fired_at", "created_at",
        )  # fmt: skip


class AlertFiringOut(serializers.ModelSerializer[AlertFiring]):
    """Firing of a rule with the settings of that time. The figure reached the threshold at `pending_at`. Without
    `resolved_at` it is still firing.
    """

    class Meta:
        model = AlertFiring
        fields = (
            "id", "rule_id", "rule_name", "instance_id", "kind", "threshold", "for_minutes", "window_minutes",
            "group_id", "topic", "value", "pending_at", "fired_at", "resolved_at", "resolved_value", "ended_by",
        )  # fmt: skip


def _name(**options: Any) -> Text:
    return Text(max_length=NAME_CHARS_MAX, **options)


def _threshold(**options: Any) -> Integer:
    return Integer(
        min_value=1, max_value=LAG_MAX, help_text="Percent, records or brokers; the rule fires at it.", **options
    )


def _for(**options: Any) -> Integer:
    return Integer(
        min_value=1, max_value=FOR_MINUTES_MAX, required=False, help_text="How long it must hold.", **options
    )


def _window(**options: Any) -> Integer:
    return Integer(
        min_value=WINDOW_MINUTES_MIN, max_value=WINDOW_MINUTES_MAX, required=False,
        help_text="Of `throttled_share` alone: of how many minutes.", **options,
    )  # fmt: skip


def _group(**options: Any) -> Text:
    return Text(
        max_length=GROUP_CHARS_MAX, required=False, allow_blank=True, help_text="Of `consumer_lag` alone.", **options
    )


def _topic(**options: Any) -> Text:
    return Text(
        max_length=TOPIC_NAME_LENGTH_MAX, required=False, allow_blank=True,
        help_text="Of `consumer_lag` alone; empty: all topics that the group reads.", **options,
    )  # fmt: skip


class AlertRuleIn(StrictSerializer):
    name = _name()
    instance_id = Text(max_length=32)
    kind = Choice(choices=KINDS)
    threshold = _threshold()
    for_minutes = _for(default=FOR_MINUTES)
    window_minutes = _window()
    group_id = _group(default="")
    topic = _topic(default="")
    enabled = Flag(required=False, source="is_enabled", help_text="False: the rule is paused.")


class AlertRuleChange(StrictSerializer):
    name = _name(required=False)
    threshold = _threshold(required=False)
    for_minutes = _for()
    window_minutes = _window()
    group_id = _group()
    topic = _topic()
    enabled = Flag(required=False, source="is_enabled", help_text="False: the rule is paused.")


class AlertRuleCollection(ApiView):
    tag = "Alerts"

    @endpoint("list_alert_rules", Scope.USAGE_READ, page_item=AlertRuleOut)
    def get(self, request: Request) -> Response:
        """List alert rules. Rules about consumer groups are included with the scope `groups:read`."""
        return self.page(access.alert_rules_of(self.actor), AlertRuleOut, order=("created_at", "id"))

    @endpoint(
        "create_alert_rule", Scope.INSTANCES_WRITE, body=AlertRuleIn, returns=AlertRuleOut, status=201,
        errors=(404, 409, 422),
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Create an alert rule.

        It is evaluated every minute. It fires when its figure has been at or above the threshold for `for_minutes`:
        owners, admins and developers get a mail, webhooks get `alert.firing`. It is resolved, with the same
        notifications, when the figure has been below nine tenths of the threshold for as long, but at most five
        minutes.
        """
        values = dict(self.body)
        instance = instances_access.instance(self.actor, values.pop("instance_id"))
        rule = services.create_rule(acting=self.actor, instance=instance, **values)
        return self.one(rule, AlertRuleOut, status=201, location=f"{API_ROOT}/alert-rules/{rule.pk}")


class AlertRuleDetail(ApiView):
    tag = "Alerts"

    @endpoint("get_alert_rule", Scope.USAGE_READ, returns=AlertRuleOut)
    def get(self, request: Request, rule_id: str) -> Response:
        """Read an alert rule with its state and its last figure."""
        return self.one(access.alert_rule(self.actor, rule_id), AlertRuleOut)

    @endpoint(
        "change_alert_rule", Scope.INSTANCES_WRITE, body=AlertRuleChange, returns=AlertRuleOut, requires_if_match=True,
        errors=(409,),
    )  # fmt: skip
    def patch(self, request: Request, rule_id: str) -> Response:
        """Change an alert rule, pause or resume it (`enabled`).

        A new name keeps its state; any other change restarts the evaluation and resolves an open firing.
        """
        rule = access.alert_rule(self.actor, rule_id, lock=True)
        self.require_match(rule)
        return self.one(services.change_rule(acting=self.actor, rule=rule, changes=self.body), AlertRuleOut)

    @endpoint("delete_alert_rule", Scope.INSTANCES_WRITE, status=204, requires_if_match=True)
    def delete(self, request: Request, rule_id: str) -> Response:
        """Delete an alert rule. An open firing is resolved; its history stays in `/alert-firings`."""
        rule = access.alert_rule(self.actor, rule_id, lock=True)
        self.require_match(rule)
        services.delete_rule(acting=self.actor, rule=rule)
        return self.nothing()


class AlertRuleHistory(ApiView):
    tag = "Alerts"

    @endpoint("list_firings_of_alert_rule", Scope.USAGE_READ, page_item=AlertFiringOut)
    def get(self, request: Request, rule_id: str) -> Response:
        """List the firings of a rule, latest first. Resolved firings are kept for 90 days."""
        rule = access.alert_rule(self.actor, rule_id)
        return self.page(access.firings_of_rule(rule), AlertFiringOut, order=("-fired_at", "id"))


class AlertFiringCollection(ApiView):
    tag = "Alerts"

    @endpoint("list_alert_firings", Scope.USAGE_READ, page_item=AlertFiringOut)
    def get(self, request: Request) -> Response:
        """List the firings of all rules, latest first, including deleted rules."""
        return self.page(access.firings_of(self.actor), AlertFiringOut, order=("-fired_at", "id"))
