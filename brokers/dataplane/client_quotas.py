"""Implementation of `quotas.interfaces.client_quotas` by DescribeClientQuotas and AlterClientQuotas
(QUO-71, QUO-72).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext_noop
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest

from brokers.dataplane.admin_client import require_ok, send_as_instance, send_change
from brokers.dataplane.scatter import send_to_any_broker
from brokers.selectors import is_on_kafka
from quotas.addresses import CONNECTION_CREATION_RATE
from quotas.interfaces import AddressQuota, ClientQuota, EntityPart
from tenants.errors import Conflict

DESCRIBE_VERSION = 1
ALTER_VERSION = 1
USER, CLIENT_ID, IP = "user", "client-id", "ip"
ANY_NAME = 2
MUTATION_RATE = "controller_mutation_rate"


class KafkaQuotaAdminClient:
    """Implements `quotas.interfaces.ClientQuotaAdminClient`."""

    def describe(self, instance_id: str) -> Sequence[ClientQuota]:
        entries = _describe(instance_id)
        return [_quota(entry) for entry in entries if all(part.entity_type != IP for part in entry.entity)]

    def describe_addresses(self, instance_id: str) -> Sequence[AddressQuota]:
        return [_address_quota(entry) for entry in _describe(instance_id, IP)]

    def alter(
        self,
        instance_id: str,
        user: EntityPart | None,
        client_id: EntityPart | None,
        limits: dict[str, float | None],
        *,
        validate_only: bool,
    ) -> None:
        if limits.get(MUTATION_RATE) is not None and is_on_kafka(instance_id):
            raise Conflict(
                gettext_noop("Gateways of a Kafka cluster do not limit changes of partitions."),
                code="not_on_kafka_cluster",
            )
        parts = {kind: part.name for kind, part in ((USER, user), (CLIENT_ID, client_id)) if part is not None}
        _alter(instance_id, parts, limits, validate_only)

    def alter_address(
        self, instance_id: str, address: str | None, connections_per_s: int | None, *, validate_only: bool
    ) -> None:
        _alter(instance_id, {IP: address}, {CONNECTION_CREATION_RATE: connections_per_s}, validate_only)


def _alter(
    instance_id: str, parts: Mapping[str, str | None], limits: Mapping[str, float | None], validate_only: bool
) -> None:
    """Sets limits of an entity; `parts` are its names by kind, None for the default."""
    entry_class = AlterClientQuotasRequest.EntryData
    entity = [entry_class.EntityData(entity_type=name, entity_name=part) for name, part in parts.items()]
    ops = [
        entry_class.OpData(key=key, value=float(value or 0.0), remove=value is None)
        for key, value in sorted(limits.items())
    ]
    request = AlterClientQuotasRequest(
        entries=[entry_class(entity=entity, ops=ops)], validate_only=validate_only, version=ALTER_VERSION
    )
    response = send_as_instance(instance_id, request) if validate_only else send_change(instance_id, request)[0]
    (result,) = response.entries
    require_ok(result.error_code, result.error_message)


def _describe(instance_id: str, *kinds: str) -> Sequence[Any]:
    """Returns the entries of entities with exactly these kinds of parts; all entries without `kinds`."""
    component = DescribeClientQuotasRequest.ComponentData
    components = [component(entity_type=kind, match_type=ANY_NAME, match=None) for kind in kinds]
    response = send_to_any_broker(
        instance_id,
        lambda: DescribeClientQuotasRequest(components=components, strict=bool(kinds), version=DESCRIBE_VERSION),
    )
    require_ok(response.error_code, response.error_message)
    return response.entries or ()


def _quota(entry: Any) -> ClientQuota:
    parts = {part.entity_type: EntityPart(name=part.entity_name) for part in entry.entity}
    return ClientQuota(
        user=parts.get(USER),
        client_id=parts.get(CLIENT_ID),
        limits={value.key: value.value for value in entry.values},
    )


def _address_quota(entry: Any) -> AddressQuota:
    (part,) = entry.entity
    (limit,) = entry.values
    return AddressQuota(address=part.entity_name, connections_per_s=int(limit.value))
