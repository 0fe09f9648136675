"""REST resources of broker settings: those of one broker, and those of all brokers of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from brokers import selectors
from brokers.api.base import OperatorView
from brokers.contract.instance_limits import CONFIG_VALUE_BYTES_MAX
from brokers.dataplane.settings import LEVELS, TYPES, BrokerSettingView
from brokers.limits import SETTING_NAME_CHARS_MAX, SETTINGS_PER_CHANGE_MAX
from brokers.operations import broker_settings
from tenants.access import fetch
from tenants.api.base import endpoint
from tenants.api.strict import StrictSerializer
from tenants.choices import Scope


class BrokerSettingOut(serializers.Serializer):
    name = serializers.CharField()
    type = serializers.ChoiceField(choices=sorted(TYPES.values()))
    value = serializers.CharField(allow_null=True, help_text="The value in force on the broker.")
    level = serializers.ChoiceField(choices=sorted(LEVELS.values()), help_text="Where it comes from.")
    values = serializers.DictField(
        child=serializers.CharField(),
        help_text="What is set at each level, in the order of precedence: broker, cluster, start, default.",
    )
    is_changeable = serializers.BooleanField(help_text="False: set it in the broker's overrides and restart it.")
    documentation = serializers.CharField()


class BrokerSettingsOut(serializers.Serializer):
    items = BrokerSettingOut(many=True)


class BrokerSettingsPatch(StrictSerializer):
    settings = serializers.DictField(
        child=serializers.CharField(allow_null=True, allow_blank=True, max_length=CONFIG_VALUE_BYTES_MAX),
        allow_empty=False,
        help_text="Values by name; null removes the value at this level, so that the next one applies.",
    )

    def validate_settings(self, value: dict[str, str | None]) -> dict[str, str | None]:
        if len(value) > SETTINGS_PER_CHANGE_MAX:
            raise serializers.ValidationError(f"At most {SETTINGS_PER_CHANGE_MAX} settings.", code="too_many")
        if any(len(name) > SETTING_NAME_CHARS_MAX for name in value):
            raise serializers.ValidationError(f"At most {SETTING_NAME_CHARS_MAX} characters.", code="too_long")
        return value


class BrokerSettings(OperatorView):
    @endpoint("list_broker_settings", Scope.OPERATOR, returns=BrokerSettingsOut, errors=(404, 409, 503))
    def get(self, request: Request, broker_id: str) -> Response:
        """Read the settings of a running broker: what each means, its value, and where that comes from."""
        row = fetch(selectors.brokers(), pk=broker_id)
        return self.one(_to_body(broker_settings.settings_of(row.cluster, row)), BrokerSettingsOut)

    @endpoint(
        "change_broker_settings", Scope.OPERATOR, body=BrokerSettingsPatch, returns=BrokerSettingsOut,
        errors=(404, 409, 503),
    )  # fmt: skip
    def patch(self, request: Request, broker_id: str) -> Response:
        """Change settings of a running broker without a restart."""
        row = fetch(selectors.brokers(), pk=broker_id)
        views = broker_settings.change_settings(
            acting=self.actor, cluster=row.cluster, broker=row, changes=self.body["settings"], dry_run=self.dry_run
        )
        return self.one(_to_body(views), BrokerSettingsOut)


class ClusterSettings(OperatorView):
    @endpoint("list_cluster_settings", Scope.OPERATOR, returns=BrokerSettingsOut, errors=(404, 409, 503))
    def get(self, request: Request, cluster_id: str) -> Response:
        """Read the settings of a cluster, as the first of its brokers that answers has them."""
        cluster = fetch(selectors.clusters(), pk=cluster_id)
        return self.one(_to_body(broker_settings.settings_of(cluster)), BrokerSettingsOut)

    @endpoint(
        "change_cluster_settings", Scope.OPERATOR, body=BrokerSettingsPatch, returns=BrokerSettingsOut,
        errors=(404, 409, 503),
    )  # fmt: skip
    def patch(self, request: Request, cluster_id: str) -> Response:
        """Change settings of all brokers of a cluster without a restart; a broker's own value goes before."""
        cluster = fetch(selectors.active_clusters(), pk=cluster_id)
        views = broker_settings.change_settings(
            acting=self.actor, cluster=cluster, changes=self.body["settings"], dry_run=self.dry_run
        )
        return self.one(_to_body(views), BrokerSettingsOut)


def _to_body(views: Sequence[BrokerSettingView]) -> dict[str, Any]:
    return {"items": views}
