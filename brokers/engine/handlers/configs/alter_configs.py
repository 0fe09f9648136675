"""AlterConfigs and IncrementalAlterConfigs of topics. Settings of brokers are the operator's (`broker_configs`).

AlterConfigs replaces all settings: a key that is not given goes back to its default, except keys that the operator set
on a topic, which a tenant cannot remove.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import TopicImage
from brokers.engine.handlers.common.changing import changing
from brokers.engine.handlers.common.read_your_writes import until_seen
from brokers.engine.handlers.configs import broker_configs
from brokers.engine.handlers.configs.config_changes import APPEND, DELETE, SET, SUBTRACT, listed
from brokers.engine.handlers.configs.describe_configs import (
    BROKER,
    RESOURCES_MAX,
    TOO_MANY,
    check_kind,
    check_right,
    find_topic,
)
from brokers.engine.handlers.context import Call
from brokers.engine.handlers.topics.topics import (
    CONFIGS_PER_RESOURCE_MAX,
    TOO_MANY_CONFIGS,
    Wrong,
    message_bytes_max,
)
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

AnyResource = TypeVar("AnyResource", AlterConfigsResource, IncrementalAlterConfigsResource)
AnyAnswer = TypeVar("AnyAnswer", AlterConfigsResourceResponse, IncrementalAlterConfigsResourceResponse)
Change = Callable[[dict[str, str]], dict[str, str]]


async def alter_configs(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    async def replace(resource: AlterConfigsResource) -> int | None:
        _check(call, resource, lacks_value=any(config.value is None for config in resource.configs))
        if resource.resource_type == BROKER:
            given = {config.name: config.value or "" for config in resource.configs}
            return await broker_configs.replace(
                call, resource.resource_name, given, validate_only=request.validate_only
            )
        topic = _topic(call, resource)
        change = _replacement(call, {config.name: config.value for config in resource.configs})
        return await _write(call, resource.resource_name, topic, change, validate_only=request.validate_only)

    return AlterConfigsResponse(responses=await _each(call, request.resources, replace, AlterConfigsResourceResponse))


async def incremental_alter_configs(
    call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    async def alter(resource: IncrementalAlterConfigsResource) -> int | None:
        lacks_value = any(each.value is None and each.config_operation != DELETE for each in resource.configs)
        _check(call, resource, lacks_value=lacks_value)
        if resource.resource_type == BROKER:
            return await broker_configs.alter(
                call, resource.resource_name, resource.configs, validate_only=request.validate_only
            )
        topic = _topic(call, resource)

        def change(present: dict[str, str]) -> dict[str, str]:
            is_operator = call.view.instance_id is None
            return applied(present, call.services.metadata.topic_defaults, resource.configs, operator=is_operator)

        return await _write(call, resource.resource_name, topic, change, validate_only=request.validate_only)

    return IncrementalAlterConfigsResponse(
        responses=await _each(call, request.resources, alter, IncrementalAlterConfigsResourceResponse)
    )


async def _each(
    call: Call,
    resources: Sequence[AnyResource],
    alter: Callable[[AnyResource], Awaitable[int | None]],
    answer: Callable[..., AnyAnswer],
) -> list[AnyAnswer]:
    """Alters the resources and returns their results, in order, when this broker's metadata has the changes. `alter`
    returns the config change that it wrote, or raises Wrong.
    """
    named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    answers: list[AnyAnswer] = []
    written: list[int | None] = []
    time_slice = TimeSlice()
    for number, resource in enumerate(resources):
        code, message = 0, None
        await time_slice.pause()  # a resource that fails its checks does not wait
        try:
            if number >= RESOURCES_MAX:
                raise Wrong(ErrorCode.INVALID_REQUEST, TOO_MANY)
            if named[resource.resource_type, resource.resource_name] > 1:
                raise Wrong(ErrorCode.INVALID_REQUEST, "A resource is named twice.")
            written.append(await alter(resource))
        except Wrong as wrong:
            code, message = wrong.code, str(wrong)
        answers.append(
            answer(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    await until_seen(call.services.metadata.current, written)
    return answers


def _check(call: Call, resource: AlterConfigsResource | IncrementalAlterConfigsResource, *, lacks_value: bool) -> None:
    """Checks that apply to each kind of resource, in Kafka's order; raises Wrong."""
    check_right(call, resource.resource_type, resource.resource_name)
    if len(resource.configs) > CONFIGS_PER_RESOURCE_MAX:
        raise Wrong(ErrorCode.INVALID_REQUEST, TOO_MANY_CONFIGS)
    if resource.resource_type == BROKER and call.view.instance_id is not None:
        raise Wrong(ErrorCode.POLICY_VIOLATION, "Broker settings are the operator's.")
    if len({config.name for config in resource.configs}) != len(resource.configs):
        raise Wrong(ErrorCode.INVALID_REQUEST, "A configuration is given twice.")
    if lacks_value:
        raise Wrong(ErrorCode.INVALID_REQUEST, "A configuration is given without a value.")


def _topic(call: Call, resource: AlterConfigsResource | IncrementalAlterConfigsResource) -> TopicImage:
    """Returns the topic to alter; raises Wrong."""
    check_kind(resource.resource_type)
    if not resource.resource_name:
        raise Wrong(ErrorCode.INVALID_REQUEST, "Topics have no defaults of their own that could be changed.")
    return find_topic(call, resource.resource_name)


def _replacement(call: Call, given: Mapping[str, str | None]) -> Change:
    """Returns the change of a topic's settings to `given`, apart from the operator's."""
    is_operator = call.view.instance_id is None

    def change(present: dict[str, str]) -> dict[str, str]:
        kept = {
            name: value
            for name, value in present.items()
            if not is_operator and name in SETTINGS and SETTINGS[name].read_only
        }
        defaults = call.services.metadata.topic_defaults
        return kept | topic_config.check_config(given, present, defaults, operator=is_operator)

    return change


async def _write(
    call: Call,
    name: str,
    topic: TopicImage,
    change: Change,
    *,
    validate_only: bool,
) -> int | None:
    """Writes the topic's settings after `change`. Returns the config change, None if they were only validated.

    Raises Wrong.
    """

    written: list[Mapping[str, str]] = []

    def checked(present: dict[str, str]) -> dict[str, str]:
        before = dict(present)
        after = change(present)
        topic_config.check_together(after, call.services.metadata.topic_defaults)
        topic_config.check_message_bytes(after, message_bytes_max(call), present)
        written[:] = before, after
        return after

    try:
        checked(dict(topic.config))
        if validate_only:
            return None
        async with changing(call, 1):
            altered = await call.services.metadata.store.alter_topic_config(
                call.services.metadata.current.image, instance_id=call.view.instance_id, name=name, change=checked
            )
        call.note(name, *written)
        return altered.change
    except topic_config.InvalidTopicConfig as error:
        raise Wrong(ErrorCode.INVALID_CONFIG, str(error)) from error
    except ClusterError as failure:
        raise Wrong(failure.wire_code, str(failure)) from failure


def applied(
    present: dict[str, str],
    defaults: Mapping[str, str],
    changes: list[IncrementalAlterableConfig],
    *,
    operator: bool = False,
) -> dict[str, str]:
    """Returns `present` after `changes`: set, delete (back to the default), append to or subtract from a list. A
    missing key can be deleted.

    Raises:
        Wrong: an unknown operation, or an operation of lists on another type.
        InvalidTopicConfig: an unknown or read-only key, or an invalid value.
    """
    after = dict(present)
    for change in changes:
        operation = change.config_operation
        name, value = change.name, change.value
        if operation == DELETE:
            if name in after:
                topic_config.check_writable(name, operator=operator)
            after.pop(name, None)
            continue
        if operation in (APPEND, SUBTRACT):
            value = _listed(after, defaults, change)
        elif operation != SET:
            raise Wrong(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation}.")
        if operator or not topic_config.is_written_back(name, value, after, defaults):
            after[name] = topic_config.check_value(name, value, operator=operator)
    return after


def _listed(after: dict[str, str], defaults: Mapping[str, str], change: IncrementalAlterableConfig) -> str:
    """Returns a list after an element was appended to it or subtracted from it."""
    setting = SETTINGS.get(change.name)
    if setting is not None and setting.type is not ValueType.LIST:
        raise Wrong(ErrorCode.INVALID_CONFIG, f"{change.name} is not a list.")
    present = after.get(change.name, defaults.get(change.name, setting.default if setting else ""))
    return listed(present, change)
