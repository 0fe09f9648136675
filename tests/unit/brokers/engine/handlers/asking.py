"""Administration calls as a client sends them, for tests of their responses."""

from __future__ import annotations

from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import UUID_ZERO
from brokers.engine.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from brokers.engine.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from brokers.engine.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    QuotaAlteration,
    QuotaEntity,
    QuotaFilterComponent,
    QuotaOperation,
)
from brokers.engine.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.testkit.wire import WireClient
from tests.unit.brokers.engine.handlers.conftest import House


async def metadata_of(client: WireClient, *names: str, version: int = 12, auto_create: bool = False) -> Any:
    topics = [MetadataRequestTopic(name=name, topic_id=UUID_ZERO) for name in names] if names else None
    if version == 0 and topics is None:
        topics = []
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=auto_create)
    return await client.call(ApiKey.METADATA, version, request)


def wanted_topic(name: str, partitions: int = 1, replicas: int = 1, **config: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()],
    )


async def create(client: WireClient, *topics: CreatableTopic, version: int = 7, **more: Any) -> Any:
    return (await client.call(ApiKey.CREATE_TOPICS, version, CreateTopicsRequest(topics=list(topics), **more))).topics


async def config_of(client: WireClient, name: str, *keys: str, kind: int = 2) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    return (await client.call(ApiKey.DESCRIBE_CONFIGS, 4, request)).results[0]


async def alter(house: House, *changes: tuple[str, int, str | None], name: str = "orders") -> int:
    configs = [IncrementalAlterableConfig(name=key, config_operation=kind, value=value) for key, kind, value in changes]
    resource = IncrementalAlterConfigsResource(resource_type=2, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = await house.mine.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
    return int(answer.responses[0].error_code)


async def set_quota(client: WireClient, parts: dict[str, str | None], key: str, value: float | None) -> int:
    entity = [QuotaEntity(entity_type=kind, entity_name=name) for kind, name in parts.items()]
    operation = QuotaOperation(key=key, value=value or 0.0, remove=value is None)
    request = AlterClientQuotasRequest(entries=[QuotaAlteration(entity=entity, ops=[operation])], validate_only=False)
    return int((await client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)).entries[0].error_code)


async def quotas_of(client: WireClient, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    wanted = [QuotaFilterComponent(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    request = DescribeClientQuotasRequest(components=wanted, strict=strict)
    return await client.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, request)
