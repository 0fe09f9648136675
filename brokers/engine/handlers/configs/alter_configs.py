"""AlterConfigs and IncrementalAlterConfigs of topics, and of brokers by the operator, as far as a change needs no
restart (QUO-60, ZK-13).

AlterConfigs replaces all settings: a key that is not given goes back to its default, except keys that the operator set
on a topic, which a tenant cannot remove.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace as replaced
from functools import partial
from typing import Final, TypeVar

from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import TopicImage
from brokers.engine.errors import SettingsWrong
from brokers.engine.handlers.configs import broker_settings
from brokers.engine.handlers.configs.broker_settings import SETTINGS as BROKER_SETTINGS
from brokers.engine.handlers.configs.broker_settings import InvalidBrokerSetting
from brokers.engine.handlers.configs.describe_configs import (
    BROKER,
    RESOURCES_MAX,
    TOO_MANY,
    TOPIC,
    check_kind,
    check_right_to,
    find_topic,
    origins_of,
    requested_broker,
)
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.topics.topics import (
    CONFIGS_PER_RESOURCE_MAX,
    TOO_MANY_CONFIGS,
    ResourceError,
    message_bytes_max,
)
from brokers.engine.handlers.zookeeper_change import wait_until_applied, zookeeper_change
from brokers.engine.partitions import topic_config
from brokers.engine.partitions.topic_settings import SETTINGS, ValueType
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from brokers.engine.scheduling.time_slice import TimeSlice

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3

AnyResource = TypeVar("AnyResource", AlterConfigsResource, IncrementalAlterConfigsResource)
AnyResponse = TypeVar("AnyResponse", AlterConfigsResourceResponse, IncrementalAlterConfigsResourceResponse)
# Returns the settings after a change, given those before it.
Change = Callable[[dict[str, str]], dict[str, str]]


async def alter_configs(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    async def replace(resource: AlterConfigsResource) -> int | None:
        _check(context, resource, lacks_value=any(config.value is None for config in resource.configs))
        if resource.resource_type == BROKER:

            def checked(_id: int | None, _present: dict[str, str]) -> dict[str, str]:
                return {key.name: broker_settings.check(key.name, key.value or "") for key in resource.configs}

            return await _write_broker(context, resource.resource_name, checked, validate_only=request.validate_only)
        topic = _find_topic(context, resource)
        change = _replacement(context, {config.name: config.value for config in resource.configs})
        return await _write(context, resource.resource_name, topic, change, validate_only=request.validate_only)

    return AlterConfigsResponse(
        responses=await _alter_each(context, request.resources, replace, AlterConfigsResourceResponse)
    )


async def incremental_alter_configs(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    async def alter(resource: IncrementalAlterConfigsResource) -> int | None:
        lacks_value = any(config.value is None and config.config_operation != DELETE for config in resource.configs)
        _check(context, resource, lacks_value=lacks_value)
        if resource.resource_type == BROKER:
            changed = partial(_apply_to_broker, context, resource.configs)
            return await _write_broker(context, resource.resource_name, changed, validate_only=request.validate_only)
        topic = _find_topic(context, resource)

        def change(current: dict[str, str]) -> dict[str, str]:
            is_operator = context.view.instance_id is None
            return apply_changes(
                current, context.services.metadata.topic_defaults, resource.configs, operator=is_operator
            )

        return await _write(context, resource.resource_name, topic, change, validate_only=request.validate_only)

    return IncrementalAlterConfigsResponse(
        responses=await _alter_each(context, request.resources, alter, IncrementalAlterConfigsResourceResponse)
    )


async def _alter_each(
    context: RequestContext,
    resources: Sequence[AnyResource],
    alter: Callable[[AnyResource], Awaitable[int | None]],
    response_type: Callable[..., AnyResponse],
) -> list[AnyResponse]:
    """Alters the resources and returns their results, in order, when this broker's metadata has the changes. `alter`
    returns the config change that it wrote, or raises ResourceError.
    """
    occurrences = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    responses: list[AnyResponse] = []
    written: list[int | None] = []
    time_slice = TimeSlice()
    for number, resource in enumerate(resources):
        code, message = 0, None
        await time_slice.pause()  # `alter` does not yield for a resource that fails its checks
        try:
            if number >= RESOURCES_MAX:
                raise ResourceError(ErrorCode.INVALID_REQUEST, TOO_MANY)
            if occurrences[resource.resource_type, resource.resource_name] > 1:
                raise ResourceError(ErrorCode.INVALID_REQUEST, "A resource is named twice.")
            written.append(await alter(resource))
        except ResourceError as error:
            code, message = error.code, str(error)
        responses.append(
            response_type(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    await wait_until_applied(context.services.metadata.current, written)
    return responses


def _check(
    context: RequestContext, resource: AlterConfigsResource | IncrementalAlterConfigsResource, *, lacks_value: bool
) -> None:
    """Checks that apply to each kind of resource, in Kafka's order; raises ResourceError."""
    check_right_to(context, resource.resource_type, resource.resource_name)
    if len(resource.configs) > CONFIGS_PER_RESOURCE_MAX:
        raise ResourceError(ErrorCode.INVALID_REQUEST, TOO_MANY_CONFIGS)
    if resource.resource_type == BROKER and context.view.instance_id is not None:
        raise ResourceError(ErrorCode.POLICY_VIOLATION, "Broker settings are the operator's.")
    if len({config.name for config in resource.configs}) != len(resource.configs):
        raise ResourceError(ErrorCode.INVALID_REQUEST, "A configuration is given twice.")
    if lacks_value:
        raise ResourceError(ErrorCode.INVALID_REQUEST, "A configuration is given without a value.")


def _find_topic(
    context: RequestContext, resource: AlterConfigsResource | IncrementalAlterConfigsResource
) -> TopicImage:
    """Returns the topic to alter; raises ResourceError."""
    check_kind(resource.resource_type)
    if not resource.resource_name:
        raise ResourceError(ErrorCode.INVALID_REQUEST, "Topics have no defaults of their own that could be changed.")
    return find_topic(context, resource.resource_name)


def _replacement(context: RequestContext, given: Mapping[str, str | None]) -> Change:
    """Returns the change that replaces a topic's settings; a tenant's request retains those of the operator."""
    is_operator = context.view.instance_id is None

    def change(current: dict[str, str]) -> dict[str, str]:
        kept = {
            name: value
            for name, value in current.items()
            if not is_operator and name in SETTINGS and SETTINGS[name].read_only
        }
        defaults = context.services.metadata.topic_defaults
        return kept | topic_config.check_config(given, current, defaults, operator=is_operator)

    return change


async def _write(
    context: RequestContext,
    name: str,
    topic: TopicImage,
    change: Change,
    *,
    validate_only: bool,
) -> int | None:
    """Writes the topic's settings after `change`. Returns the config change, None if they were only validated.

    Raises ResourceError.
    """

    written: list[Mapping[str, str]] = []

    def checked(current: dict[str, str]) -> dict[str, str]:
        before = dict(current)
        after = change(current)
        topic_config.check_combination(after, context.services.metadata.topic_defaults)
        topic_config.check_message_bytes(after, message_bytes_max(context), current)
        written[:] = before, after
        return after

    try:
        checked(dict(topic.config))
        if validate_only:
            return None
        async with zookeeper_change(context, 1):
            # A user who lost the right while waiting changes nothing.
            check_right_to(context, TOPIC, name)
            written_config = await context.services.metadata.store.alter_topic_config(
                context.services.metadata.current.image, instance_id=context.view.instance_id, name=name, change=checked
            )
        context.record_setting_change(name, *written)
        return written_config.change
    except topic_config.InvalidTopicConfig as error:
        raise ResourceError(ErrorCode.INVALID_CONFIG, str(error)) from error
    except ClusterError as failure:
        raise ResourceError(failure.wire_code, str(failure)) from failure


def apply_changes(
    current: dict[str, str],
    defaults: Mapping[str, str],
    changes: list[IncrementalAlterableConfig],
    *,
    operator: bool = False,
) -> dict[str, str]:
    """Returns `current` after `changes`: set, delete (back to the default), append to or subtract from a list. A
    missing key can be deleted.

    Raises:
        ResourceError: an unknown operation, or an operation of lists on another type.
        InvalidTopicConfig: an unknown or read-only key, or an invalid value.
    """
    after = dict(current)
    for change in changes:
        operation = change.config_operation
        name, value = change.name, change.value
        if operation == DELETE:
            if name in after:
                topic_config.check_writable(name, operator=operator)
            after.pop(name, None)
            continue
        if operation in (APPEND, SUBTRACT):
            value = _edit_topic_list(after, defaults, change)
        elif operation != SET:
            raise ResourceError(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation}.")
        if operator or not topic_config.is_written_back(name, value, after, defaults):
            after[name] = topic_config.check_value(name, value, operator=operator)
    return after


def _edit_topic_list(after: dict[str, str], defaults: Mapping[str, str], change: IncrementalAlterableConfig) -> str:
    """Returns a list after an element was appended to it or subtracted from it."""
    setting = SETTINGS.get(change.name)
    if setting is not None and setting.type is not ValueType.LIST:
        raise ResourceError(ErrorCode.INVALID_CONFIG, f"{change.name} is not a list.")
    current = after.get(change.name, defaults.get(change.name, setting.default if setting else ""))
    return edit_list(current, change)


def edit_list(current: str, change: IncrementalAlterableConfig) -> str:
    """Returns a list after elements were appended to it or subtracted from it."""
    elements = [element for element in current.split(",") if element]
    changed = [element.strip() for element in (change.value or "").split(",") if element.strip()]
    if change.config_operation == APPEND:
        elements += [element for element in changed if element not in elements]
    else:
        elements = [element for element in elements if element not in changed]
    return ",".join(elements)


def _apply_to_broker(
    context: RequestContext,
    changes: Sequence[IncrementalAlterableConfig],
    broker_id: int | None,
    current: dict[str, str],
) -> dict[str, str]:
    """Returns `current` after `changes`. A missing or unknown key can be deleted.

    Raises ResourceError, InvalidBrokerSetting.
    """
    after = dict(current)
    for change in changes:
        name, operation = change.name, change.config_operation
        if operation == DELETE:
            after.pop(name, None)
        elif operation == SET:
            after[name] = broker_settings.check(name, change.value or "")
        elif operation in (APPEND, SUBTRACT):
            setting = BROKER_SETTINGS.get(name)
            if setting is None or setting.type is not ValueType.LIST:
                raise ResourceError(ErrorCode.INVALID_CONFIG, f"{name} is not a list.")
            origins = origins_of(context.services.metadata.broker_layers, setting, broker_id)
            inherited = origins[0].value if origins else setting.default or ""
            after[name] = broker_settings.check(name, edit_list(after.get(name, inherited), change))
        else:
            raise ResourceError(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation}.")
    return after


async def _write_broker(
    context: RequestContext,
    name: str,
    change: Callable[[int | None, dict[str, str]], dict[str, str]],
    *,
    validate_only: bool,
) -> int | None:
    """Writes the settings after `change`. Returns the config change, None if they were only validated.

    Raises ResourceError.
    """
    services, broker_id = context.services, requested_broker(context, name)

    def checked(current: dict[str, str]) -> dict[str, str]:
        after = change(broker_id, current)
        kept, _ = broker_settings.split_valid(after)
        layers = services.metadata.broker_layers
        layers = replaced(layers, dynamic_default=kept) if broker_id is None else replaced(layers, dynamic=kept)
        services.metadata.check_settings(layers.effective)
        return after

    configs = services.metadata.current.image.broker_configs
    try:
        if validate_only:
            checked(dict(configs.cluster_defaults if broker_id is None else configs.of_broker(broker_id)))
            return None
        return (await services.metadata.store.alter_broker_config(broker_id, checked)).change
    except (InvalidBrokerSetting, SettingsWrong) as error:
        raise ResourceError(ErrorCode.INVALID_REQUEST, str(error)) from error
    except ClusterError as failure:
        raise ResourceError(failure.wire_code, str(failure)) from failure
