"""Quotas in force at a running broker, by its own report."""

from __future__ import annotations

from collections.abc import Mapping

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.quotas import DescribeClientQuotasRequest, QuotaFilterComponent
from tests.testkit.wire import WireClient

EXACTLY, THE_DEFAULT = 0, 1


async def quota_at(port: int, entity: Mapping[str, str | None]) -> dict[str, float]:
    """Returns the limits by key of exactly this entity (kinds to names, None the default) from the broker at `port`."""
    components = [
        QuotaFilterComponent(entity_type=kind, match_type=THE_DEFAULT if name is None else EXACTLY, match=name)
        for kind, name in entity.items()
    ]
    client = await WireClient.connect(port)
    try:
        request = DescribeClientQuotasRequest(components=components, strict=True)
        answer = await client.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, request)
    finally:
        await client.close()
    return {value.key: value.value for entry in answer.entries or () for value in entry.values}
