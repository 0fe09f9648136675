"""DescribeConfigs and IncrementalAlterConfigs of topics. The broker's own settings are the operator's: a tenant reads
those that concern its topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from brokers.engine.access.authorizer import Operation, decide
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import TopicImage
from brokers.engine.handlers.context import Call
from brokers.engine.handlers.own_writes import until_seen
from brokers.engine.handlers.topics import Wrong
from brokers.engine.partitions import topic_config
from brokers.engine.partitions.topic_config import ConfigSource, DescribedSetting
from brokers.engine.partitions.topic_settings import SETTINGS, ValueType
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from instances.naming import is_valid_topic_name

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
RESOURCES_MAX: Final = 1_000
BROKER_TEXT: Final = "Set by the operator or with the instance; topics may have a value of their own."
_DOCUMENTED_FROM: Final = 3


def describe_configs(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(call, request, resource) for resource in request.resources[:RESOURCES_MAX]]
    )


def _describe(call: Call, request: DescribeConfigsRequest, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    configs: list[DescribeConfigsResourceResult] = []
    code, message = 0, None
    try:
        if resource.resource_type == BROKER:
            _check_broker(call, resource.resource_name)
            wanted = set(resource.configuration_keys or ())
            # The defaults that all brokers share have no entry of their own.
            lines = broker_lines(call, request) if resource.resource_name else []
            configs = [line for line in lines if not wanted or line.name in wanted]
        else:
            check_kind(resource.resource_type)
            if not is_valid_topic_name(resource.resource_name):
                raise Wrong(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is not valid.")
            topic = find_topic(call, resource.resource_name)
            wanted = set(resource.configuration_keys or ())
            configs = [
                _line(call, request, line)
                for line in topic_config.describe(topic.config, call.engine.topic_defaults)
                if not wanted or line.setting.name in wanted
            ]
    except Wrong as wrong:
        code, message = wrong.code, str(wrong)
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _check_broker(call: Call, name: str) -> None:
    """Raises Wrong for a broker that the caller's address does not lead to."""
    if name and not (name.isdecimal() and int(name) in call.view.endpoints):
        raise Wrong(ErrorCode.INVALID_REQUEST, "Unexpected broker id.")


def check_kind(resource_type: int) -> None:
    """Raises Wrong for a kind of resource that has no settings here."""
    if resource_type != TOPIC:
        raise Wrong(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {resource_type}.")


def find_topic(call: Call, name: str) -> TopicImage:
    """Raises Wrong for a topic that is not there for this caller."""
    topic = call.view.namespace.topics.get(name.encode())
    error = decide(call.view.state, topic, Operation.DESCRIBE, call.address)
    if topic is None or error:
        raise Wrong(error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return topic


def _line(call: Call, request: DescribeConfigsRequest, line: DescribedSetting) -> DescribeConfigsResourceResult:
    setting = line.setting
    synonyms = []
    if request.include_synonyms:
        defaults = call.engine.topic_defaults
        if line.source is ConfigSource.TOPIC:
            synonyms.append(_synonym(setting.name, line.value, ConfigSource.TOPIC))
        if setting.name in defaults:
            synonyms.append(_synonym(setting.broker_key, defaults[setting.name], ConfigSource.STATIC_BROKER))
        if not setting.default_elsewhere:
            synonyms.append(_synonym(setting.broker_key, setting.default, ConfigSource.DEFAULT))
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=line.value,
        read_only=setting.read_only,
        is_default=line.source is ConfigSource.DEFAULT,
        config_source=int(line.source),
        is_sensitive=False,
        synonyms=synonyms,
        config_type=int(setting.type),
        documentation=(
            setting.documentation if request.include_documentation and call.version >= _DOCUMENTED_FROM else None
        ),
    )


def broker_lines(call: Call, request: DescribeConfigsRequest) -> list[DescribeConfigsResourceResult]:
    """What a client may know of a broker, to read only: the defaults of its topics and what becomes of unknown ones."""
    described = topic_config.describe({}, call.engine.topic_defaults)
    lines = {
        line.setting.broker_key: _broker_line(
            call, request, line.setting.broker_key, line.value, line.source, line.setting.type
        )
        for line in described
    }
    instance = call.view.instance
    if instance is not None:
        settings = instance.document.settings
        for name, value, kind in (
            ("auto.create.topics.enable", str(settings.auto_create_topics).lower(), ValueType.BOOLEAN),
            ("default.replication.factor", str(settings.default_replication_factor), ValueType.INT),
            ("delete.topic.enable", "true", ValueType.BOOLEAN),
            ("num.partitions", str(settings.default_partitions), ValueType.INT),
        ):
            lines[name] = _broker_line(call, request, name, value, ConfigSource.STATIC_BROKER, kind)
    return [lines[name] for name in sorted(lines)]


def _broker_line(
    call: Call, request: DescribeConfigsRequest, name: str, value: str, source: ConfigSource, kind: ValueType
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=True,
        is_default=source is ConfigSource.DEFAULT,
        config_source=int(source),
        is_sensitive=False,
        synonyms=[_synonym(name, value, source)] if request.include_synonyms else [],
        config_type=int(kind),
        documentation=BROKER_TEXT if request.include_documentation and call.version >= _DOCUMENTED_FROM else None,
    )


def _synonym(name: str, value: str, source: ConfigSource) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=name, value=value, source=int(source))


async def incremental_alter_configs(
    call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    resources = request.resources[:RESOURCES_MAX]
    named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    responses = []
    written: list[int | None] = []
    for resource in resources:
        code, message = 0, None
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise Wrong(ErrorCode.INVALID_REQUEST, "A resource is named twice.")
            written.append(await _alter(call, resource, request.validate_only))
        except Wrong as wrong:
            code, message = wrong.code, str(wrong)
        responses.append(
            IncrementalAlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
        )
    await until_seen(call.engine.current, written)
    return IncrementalAlterConfigsResponse(responses=responses)


async def _alter(call: Call, resource: IncrementalAlterConfigsResource, validate_only: bool) -> int | None:
    """Answers the config change that was written. Checked in the order in which Kafka does."""
    if resource.resource_type == BROKER:
        raise Wrong(ErrorCode.POLICY_VIOLATION, "Broker settings are the operator's.")
    changes = resource.configs
    if len({change.name for change in changes}) != len(changes):
        raise Wrong(ErrorCode.INVALID_REQUEST, "A configuration is given twice.")
    if any(change.value is None and change.config_operation != DELETE for change in changes):
        raise Wrong(ErrorCode.INVALID_REQUEST, "A configuration is given without a value.")
    check_kind(resource.resource_type)
    if not resource.resource_name:
        raise Wrong(ErrorCode.INVALID_REQUEST, "Topics have no defaults of their own that could be changed.")
    topic = find_topic(call, resource.resource_name)

    def change(present: dict[str, str]) -> dict[str, str]:
        return applied(present, call.engine.topic_defaults, changes, operator=call.view.instance_id is None)

    return await write(call, resource.resource_name, topic, change, validate_only=validate_only)


async def write(
    call: Call,
    name: str,
    topic: TopicImage,
    change: Callable[[dict[str, str]], dict[str, str]],
    *,
    validate_only: bool,
) -> int | None:
    """Writes what `change` makes of the topic's settings; answers the config change, None if only checked.

    Raises Wrong.
    """

    def checked(present: dict[str, str]) -> dict[str, str]:
        after = change(present)
        topic_config.check_together(after, call.engine.topic_defaults)
        return after

    try:
        if validate_only:
            checked(dict(topic.config))
            return None
        altered = await call.engine.store.alter_topic_config(
            call.engine.current.image, instance_id=call.view.instance_id, name=name, change=checked
        )
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
    """`present` after `changes`: set, delete (back to the default), append to or subtract from a list. What is not
    there can be deleted.

    Raises:
        Wrong: an operation that is none, or one for lists on something else.
        InvalidTopicConfig: an unknown or read-only key, or a value it does not take.
    """
    after = dict(present)
    for change in changes:
        operation = change.config_operation
        if operation == DELETE:
            topic_config.check_writable(change.name, operator=operator)
            after.pop(change.name, None)
        elif operation == SET:
            after[change.name] = topic_config.check_value(change.name, change.value, operator=operator)
        elif operation in (APPEND, SUBTRACT):
            after[change.name] = _listed(after, defaults, change)
        else:
            raise Wrong(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation}.")
    return after


def _listed(after: dict[str, str], defaults: Mapping[str, str], change: IncrementalAlterableConfig) -> str:
    setting = SETTINGS.get(change.name)
    if setting is not None and setting.type is not ValueType.LIST:
        raise Wrong(ErrorCode.INVALID_CONFIG, f"{change.name} is not a list.")
    present = after.get(change.name, defaults.get(change.name, setting.default if setting else ""))
    words = [word for word in present.split(",") if word]
    given = [word.strip() for word in (change.value or "").split(",") if word.strip()]
    if change.config_operation == APPEND:
        words += [word for word in given if word not in words]
    else:
        words = [word for word in words if word not in given]
    return topic_config.check_value(change.name, ",".join(words))
