"""Which function answers which call. What is advertised must be here; a test holds the two together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from brokers.engine.handlers import (
    cluster,
    configs,
    fetch,
    list_offsets,
    metadata,
    partitions_admin,
    produce,
    producers,
    quotas,
    topics,
    versions,
)
from brokers.engine.handlers.context import Handler
from brokers.engine.protocol.apis import ApiKey

HOT_HANDLERS: Final[Mapping[int, Callable[..., Any]]] = {
    int(ApiKey.PRODUCE): produce.produce,
    int(ApiKey.FETCH): fetch.fetch,
}

HANDLERS: Final[Mapping[int, Handler]] = {
    int(ApiKey.API_VERSIONS): versions.api_versions,
    int(ApiKey.LIST_OFFSETS): list_offsets.list_offsets,
    int(ApiKey.METADATA): metadata.metadata,
    int(ApiKey.FIND_COORDINATOR): cluster.find_coordinator,
    int(ApiKey.DESCRIBE_CLUSTER): cluster.describe_cluster,
    int(ApiKey.CREATE_TOPICS): topics.create_topics,
    int(ApiKey.DELETE_TOPICS): topics.delete_topics,
    int(ApiKey.CREATE_PARTITIONS): partitions_admin.create_partitions,
    int(ApiKey.INIT_PRODUCER_ID): producers.init_producer_id,
    int(ApiKey.DESCRIBE_CONFIGS): configs.describe_configs,
    int(ApiKey.INCREMENTAL_ALTER_CONFIGS): configs.incremental_alter_configs,
    int(ApiKey.DESCRIBE_CLIENT_QUOTAS): quotas.describe_client_quotas,
    int(ApiKey.ALTER_CLIENT_QUOTAS): quotas.alter_client_quotas,
}
