"""The port `quotas.interfaces.client_quotas`: by DescribeClientQuotas and AlterClientQuotas (QUO-71, QUO-72)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest

from brokers.dataplane.admin_client import ask_as_instance, change, require_ok
from brokers.dataplane.scatter import ask_any
from quotas.interfaces import ClientQuota, EntityPart

DESCRIBE_VERSION = 1
ALTER_VERSION = 1
USER, CLIENT_ID = "user", "client-id"


class QuotaAdminClient:
    """See `quotas.interfaces.ClientQuotaAdminClient`."""

    def describe(self, instance_id: str) -> Sequence[ClientQuota]:
        answer = ask_any(
            instance_id, lambda: DescribeClientQuotasRequest(components=[], strict=False, version=DESCRIBE_VERSION)
        )
        require_ok(answer.error_code, answer.error_message)
        return [_quota(entry) for entry in answer.entries or ()]

    def alter(
        self,
        instance_id: str,
        user: EntityPart | None,
        client_id: EntityPart | None,
        limits: dict[str, float | None],
        *,
        validate_only: bool,
    ) -> None:
        kind = AlterClientQuotasRequest.EntryData
        entity = [
            kind.EntityData(entity_type=name, entity_name=part.name)
            for name, part in ((USER, user), (CLIENT_ID, client_id))
            if part is not None
        ]
        ops = [
            kind.OpData(key=key, value=float(value or 0.0), remove=value is None)
            for key, value in sorted(limits.items())
        ]
        request = AlterClientQuotasRequest(
            entries=[kind(entity=entity, ops=ops)], validate_only=validate_only, version=ALTER_VERSION
        )
        answer = ask_as_instance(instance_id, request) if validate_only else change(instance_id, request)[0]
        (result,) = answer.entries
        require_ok(result.error_code, result.error_message)


def _quota(entry: Any) -> ClientQuota:
    parts = {part.entity_type: EntityPart(name=part.entity_name) for part in entry.entity}
    return ClientQuota(
        user=parts.get(USER),
        client_id=parts.get(CLIENT_ID),
        limits={value.key: value.value for value in entry.values},
    )
