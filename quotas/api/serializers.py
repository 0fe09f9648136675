"""Serializers of client quotas.

Limits in bytes/s and partitions/s apply to all brokers together or to each broker, as the instance's `quota_scope`
says. Limits in percent of a broker's time apply to each broker.
"""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from quotas import selectors
from quotas.addresses import ADDRESS_CHARS_MAX, CONNECTION_CREATION_RATE, CONNECTION_CREATION_RATE_MAX
from quotas.explain import UNITS
from quotas.interfaces import AddressQuota, ClientQuota, EntityPart
from quotas.limits import BYTE_RATE_MAX, ENTITY_NAME_CHARS_MAX, MUTATION_RATE_MAX, PERCENTAGE_MAX
from tenants.api.strict import Integer, Number, StrictSerializer, Text


class EntityIn(StrictSerializer):
    """Entity of a quota: a name, or null for the default of its kind. Absent parts are not matched; an address cannot
    be combined.
    """

    user = Text(required=False, allow_null=True, max_length=ENTITY_NAME_CHARS_MAX)
    client_id = Text(required=False, allow_null=True, max_length=ENTITY_NAME_CHARS_MAX)
    ip = Text(required=False, allow_null=True, max_length=ADDRESS_CHARS_MAX, help_text="An address of clients.")


class LimitsIn(StrictSerializer):
    """Limits to set. Limits that are absent or null are removed."""

    producer_byte_rate = Integer(required=False, allow_null=True, min_value=0, max_value=BYTE_RATE_MAX)
    consumer_byte_rate = Integer(required=False, allow_null=True, min_value=0, max_value=BYTE_RATE_MAX)
    request_percentage = Number(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=PERCENTAGE_MAX,
        help_text="Percent of the time of each broker's event loop that requests may take; over it they wait.",
    )
    controller_mutation_rate = Number(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=MUTATION_RATE_MAX,
        help_text="Partitions a second that may be created, added or deleted, eleven seconds' worth at once. Over it"
        " CreateTopics from version 6 on, CreatePartitions from 3 and DeleteTopics from 5 are refused with"
        " THROTTLING_QUOTA_EXCEEDED; older versions are done, and wait.",
    )
    connection_creation_rate = Integer(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=CONNECTION_CREATION_RATE_MAX,
        help_text="New connections a second at each broker. The limit of an address, and the only one it has.",
    )


class QuotaIn(StrictSerializer):
    entity = EntityIn()
    limits = LimitsIn()

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Checks that an address has only the limit of new connections, which no other entity has."""
        entity, limits = attrs["entity"], attrs["limits"]
        if "ip" not in entity:
            unsupported = {CONNECTION_CREATION_RATE} & limits.keys()
            text = "This is the limit of an address."
        else:
            if len(entity) > 1:
                raise serializers.ValidationError({"entity": {"ip": "An address stands alone."}})
            unsupported = limits.keys() - {CONNECTION_CREATION_RATE}
            text = "An address has no such limit."
        unsupported = {name for name in unsupported if limits[name] is not None}
        if unsupported:
            raise serializers.ValidationError({"limits": dict.fromkeys(sorted(unsupported), text)})
        return attrs


class QuotaQuery(StrictSerializer):
    """Entity of the quota: `user=alice`, or `user_default=true` for the default; likewise for the client id, or
    `ip=192.0.2.1` alone.
    """

    user = Text(required=False, max_length=ENTITY_NAME_CHARS_MAX)
    user_default = serializers.ChoiceField(required=False, choices=("true", "false"))
    client_id = Text(required=False, max_length=ENTITY_NAME_CHARS_MAX)
    client_id_default = serializers.ChoiceField(required=False, choices=("true", "false"))
    ip = Text(required=False, max_length=ADDRESS_CHARS_MAX)
    ip_default = serializers.ChoiceField(required=False, choices=("true", "false"))

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        part_names = ("user", "client_id", "ip")
        for name in part_names:
            if name in attrs and attrs.get(f"{name}_default") == "true":
                raise serializers.ValidationError({name: "A name and the default at the same time."})
        present_parts = [name for name in part_names if part_from_query(attrs, name) is not None]
        if "ip" in present_parts and len(present_parts) > 1:
            raise serializers.ValidationError({"ip": "An address stands alone."})
        return attrs


class EffectiveQuery(StrictSerializer):
    user = serializers.CharField(
        required=False,
        default="ANONYMOUS",
        allow_blank=True,
        trim_whitespace=False,
        max_length=ENTITY_NAME_CHARS_MAX,
        help_text="Clients that do not authenticate are ANONYMOUS.",
    )
    client_id = serializers.CharField(
        required=False, default="", allow_blank=True, trim_whitespace=False, max_length=ENTITY_NAME_CHARS_MAX
    )


class EntityOut(serializers.Serializer):
    """Entity of a quota; absent parts are not matched, null is the default of its kind."""

    user = serializers.CharField(allow_null=True, required=False)
    client_id = serializers.CharField(allow_null=True, required=False)
    ip = serializers.CharField(allow_null=True, required=False)


class QuotaLimitsOut(serializers.Serializer):
    producer_byte_rate = serializers.FloatField(allow_null=True)
    consumer_byte_rate = serializers.FloatField(allow_null=True)
    request_percentage = serializers.FloatField(allow_null=True)
    controller_mutation_rate = serializers.FloatField(allow_null=True)
    connection_creation_rate = serializers.IntegerField(allow_null=True)


class QuotaWarningOut(serializers.Serializer):
    code = serializers.CharField(help_text="`limit_below_one_batch`.")
    detail = serializers.CharField()


class QuotaOut(serializers.Serializer):
    entity = EntityOut()
    level = serializers.IntegerField(
        allow_null=True, help_text="1 has the highest precedence, 8 the lowest. Null for an address."
    )
    limits = QuotaLimitsOut()
    warnings = QuotaWarningOut(many=True, help_text="Limits in force whose effect clients may not expect.")

    def to_representation(self, quota: ClientQuota | AddressQuota) -> dict[str, Any]:
        if isinstance(quota, AddressQuota):
            return self._represent_address(quota.address, quota.connections_per_s)
        entity = {
            name: part.name for name, part in (("user", quota.user), ("client_id", quota.client_id)) if part is not None
        }
        limits = {key: quota.limits.get(key) for key in QuotaLimitsOut().fields}
        delay_s = selectors.batch_delay_s(quota)
        detail = f"One batch of 1 MiB passes whole, and what follows it waits up to {delay_s} s."
        warnings = [{"code": "limit_below_one_batch", "detail": detail}] if delay_s else []
        return {"entity": entity, "level": selectors.level_of(quota), "limits": limits, "warnings": warnings}

    @staticmethod
    def _represent_address(address: str | None, connections_per_s: int | None) -> dict[str, Any]:
        limits = dict.fromkeys(QuotaLimitsOut().fields) | {CONNECTION_CREATION_RATE: connections_per_s}
        return {"entity": {"ip": address}, "level": None, "limits": limits, "warnings": []}


class LevelOut(serializers.Serializer):
    level = serializers.IntegerField()
    name = serializers.CharField()
    limit = serializers.FloatField(allow_null=True)
    verdict = serializers.ChoiceField(choices=("applies", "not_set", "weaker", "not_asked"))
    why = serializers.CharField()


class EffectiveOut(serializers.Serializer):
    quota = serializers.CharField()
    unit = serializers.ChoiceField(choices=tuple(dict.fromkeys(UNITS.values())), help_text="Unit of `limit`.")
    limit = serializers.FloatField(allow_null=True, help_text="null = unlimited.")
    level = serializers.IntegerField(allow_null=True)
    name = serializers.CharField()
    shared_by = serializers.CharField(help_text="Clients that share this limit and its counter.")
    levels = LevelOut(many=True)


class EffectiveListOut(serializers.Serializer):
    user = serializers.CharField(allow_blank=True)
    client_id = serializers.CharField(allow_blank=True)
    quotas = EffectiveOut(many=True)


def part_from(values: Any, name: str) -> EntityPart | None:
    """Returns a part of the entity in a request body: None if it is absent, `EntityPart(name=None)` for null."""
    return EntityPart(name=values[name]) if name in values else None


def part_from_query(values: Any, name: str) -> EntityPart | None:
    """Returns a part of the entity in a query string like `part_from`; `<name>_default=true` means the default."""
    if name in values:
        return EntityPart(name=values[name])
    return EntityPart(name=None) if values.get(f"{name}_default") == "true" else None
