"""AlterConfigs of topics, the older of the two calls: what is given is all that is set, every other key goes back to
its default. What the operator set on a topic is not a tenant's to take away, and stays.
"""

from __future__ import annotations

from collections import Counter

from brokers.engine.handlers.configs import BROKER, RESOURCES_MAX, check_kind, find_topic, write
from brokers.engine.handlers.context import Call
from brokers.engine.handlers.own_writes import until_seen
from brokers.engine.handlers.topics import Wrong
from brokers.engine.partitions import topic_config
from brokers.engine.partitions.topic_settings import SETTINGS
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def alter_configs(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    resources = request.resources[:RESOURCES_MAX]
    named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    responses = []
    written: list[int | None] = []
    for resource in resources:
        code, message = 0, None
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise Wrong(ErrorCode.INVALID_REQUEST, "A resource is named twice.")
            written.append(await _replace(call, resource, request.validate_only))
        except Wrong as wrong:
            code, message = wrong.code, str(wrong)
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    await until_seen(call.engine.current, written)
    return AlterConfigsResponse(responses=responses)


async def _replace(call: Call, resource: AlterConfigsResource, validate_only: bool) -> int | None:
    """Answers the config change that was written. Checked in the order in which Kafka does."""
    if resource.resource_type == BROKER:
        raise Wrong(ErrorCode.POLICY_VIOLATION, "Broker settings are the operator's.")
    given = {config.name: config.value for config in resource.configs}
    if len(given) != len(resource.configs):
        raise Wrong(ErrorCode.INVALID_REQUEST, "A configuration is given twice.")
    if any(config.value is None for config in resource.configs):
        raise Wrong(ErrorCode.INVALID_REQUEST, "A configuration is given without a value.")
    check_kind(resource.resource_type)
    if not resource.resource_name:
        raise Wrong(ErrorCode.INVALID_REQUEST, "Topics have no defaults of their own that could be changed.")
    topic = find_topic(call, resource.resource_name)
    is_operator = call.view.instance_id is None

    def change(present: dict[str, str]) -> dict[str, str]:
        kept = {
            name: value
            for name, value in present.items()
            if not is_operator and name in SETTINGS and SETTINGS[name].read_only
        }
        return kept | topic_config.check_config(given, operator=is_operator)

    return await write(call, resource.resource_name, topic, change, validate_only=validate_only)
