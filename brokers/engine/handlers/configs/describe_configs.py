"""DescribeConfigs of topics, and of brokers as far as it concerns a tenant's topics; operators see all settings of a
broker (`broker_configs`).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from brokers.contract.acls import ResourceType
from brokers.engine.cluster.image import TopicImage
from brokers.engine.cluster.topic_plans import default_replication_factor
from brokers.engine.handlers.configs import broker_configs
from brokers.engine.handlers.configs.broker_configs import DOCUMENTED_FROM
from brokers.engine.handlers.configs.broker_settings import SETTINGS as BROKER_SETTINGS
from brokers.engine.handlers.configs.broker_settings import origins
from brokers.engine.handlers.context import Call
from brokers.engine.handlers.required_rights import DENIAL_TEXTS
from brokers.engine.handlers.topics.topics import Wrong
from brokers.engine.partitions import topic_config
from brokers.engine.partitions.topic_bounds import BOUNDS, BROKER_BOUNDS
from brokers.engine.partitions.topic_config import ConfigSource, DescribedSetting
from brokers.engine.partitions.topic_settings import Setting, ValueType
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from brokers.engine.scheduling.time_slice import yield_to_others
from instances.naming import is_valid_topic_name

TOPIC, BROKER = 2, 4
RESOURCES_MAX: Final = 1_000
TOO_MANY: Final = f"At most {RESOURCES_MAX} resources in one request."
# Number of resources described in one turn of the event loop; each has some thirty settings with documentation.
DESCRIBED_AT_ONCE_MAX: Final = 20
# Longer names are no broker ids, and Python does not parse numbers beyond some length.
BROKER_DIGITS_MAX: Final = 10
BROKER_TEXT: Final = "Set by the operator or with the instance; topics may have a value of their own."


def describe_configs(
    call: Call, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | Awaitable[DescribeConfigsResponse]:
    if len(request.resources) > DESCRIBED_AT_ONCE_MAX:
        return _describe_many(call, request)
    return DescribeConfigsResponse(results=[_describe(call, request, resource) for resource in request.resources])


async def _describe_many(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = []
    for number, resource in enumerate(request.resources):
        if number and number % DESCRIBED_AT_ONCE_MAX == 0:
            await yield_to_others()
        if number >= RESOURCES_MAX:
            results.append(_result(resource, int(ErrorCode.INVALID_REQUEST), TOO_MANY, []))
            continue
        results.append(_describe(call, request, resource))
    return DescribeConfigsResponse(results=results)


def settings_described(response: DescribeConfigsResponse) -> int:
    """Returns the length of a response in resources and settings."""
    return sum(1 + len(result.configs) for result in response.results)


def _describe(call: Call, request: DescribeConfigsRequest, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    configs: list[DescribeConfigsResourceResult] = []
    code, message = 0, None
    try:
        check_right(call, resource.resource_type, resource.resource_name)
        if resource.resource_type == BROKER:
            wanted = set(resource.configuration_keys or ())
            if call.view.instance_id is None:
                lines = broker_configs.described(call, request, resource.resource_name)
            else:
                _check_broker(call, resource.resource_name)
                # Settings common to all brokers have no entry of their own for a tenant.
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
                for line in topic_config.describe(topic.config, call.services.metadata.topic_defaults)
                if not wanted or line.setting.name in wanted
            ]
    except Wrong as wrong:
        code, message = wrong.code, str(wrong)
    return _result(resource, code, message, configs)


def _result(
    resource: DescribeConfigsResource, code: int, message: str | None, configs: list[DescribeConfigsResourceResult]
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _check_broker(call: Call, name: str) -> None:
    """Raises Wrong for a broker that is not on the caller's listener."""
    if name and not (name.isdecimal() and len(name) <= BROKER_DIGITS_MAX and int(name) in call.view.endpoints):
        raise Wrong(ErrorCode.INVALID_REQUEST, "Unexpected broker id.")


def check_right(call: Call, resource_type: int, name: str) -> None:
    """Raises Wrong if the principal may not make this call for the resource."""
    denied = 0
    if resource_type == TOPIC:
        denied = call.denial(ResourceType.TOPIC, name)
    elif resource_type == BROKER:
        denied = call.denial(ResourceType.CLUSTER)
    if denied:
        raise Wrong(denied, DENIAL_TEXTS[denied])


def check_kind(resource_type: int) -> None:
    """Raises Wrong for a kind of resource without settings."""
    if resource_type != TOPIC:
        raise Wrong(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {resource_type}.")


def find_topic(call: Call, name: str) -> TopicImage:
    """Returns the topic. Raises Wrong if it does not exist for this caller."""
    topic = call.view.namespace.topics.get(name.encode())
    error = call.refusal(topic, name)
    if topic is None or error:
        raise Wrong(error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return topic


def _line(call: Call, request: DescribeConfigsRequest, line: DescribedSetting) -> DescribeConfigsResourceResult:
    setting, source = line.setting, line.source
    beneath = _beneath(call, setting)
    if source is not ConfigSource.TOPIC and beneath:
        source = ConfigSource(beneath[0].source)
    own = [_synonym(setting.name, line.value, source)] if source is ConfigSource.TOPIC else []
    if line.beyond is not None:
        own = [_bound(call, line), _synonym(setting.name, line.beyond, ConfigSource.TOPIC)]
        source = ConfigSource(own[0].source)
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=line.value,
        read_only=setting.read_only,
        is_default=source is ConfigSource.DEFAULT,
        config_source=int(source),
        is_sensitive=False,
        synonyms=[*own, *beneath] if request.include_synonyms else [],
        config_type=int(setting.type),
        documentation=(
            setting.documentation if request.include_documentation and call.version >= DOCUMENTED_FROM else None
        ),
    )


def _beneath(call: Call, setting: Setting) -> list[DescribeConfigsSynonym]:
    """Returns the values that apply if the topic has none. A tenant sees that the operator set a value; where, for one
    broker or for all, only the operator sees.
    """
    if call.view.instance_id is None and setting.broker_key in BROKER_SETTINGS:
        return broker_configs.synonyms(
            origins(call.services.metadata.broker_layers, BROKER_SETTINGS[setting.broker_key])
        )
    defaults = call.services.metadata.topic_defaults
    result = []
    if setting.name in defaults:
        result.append(_synonym(setting.broker_key, defaults[setting.name], ConfigSource.STATIC_BROKER))
    if not setting.default_elsewhere:
        result.append(_synonym(setting.broker_key, setting.default, ConfigSource.DEFAULT))
    return result


def _bound(call: Call, line: DescribedSetting) -> DescribeConfigsSynonym:
    """Returns the operator's bound that is in effect instead of the topic's value. It is never listed as a default:
    without its own value the topic would have another one.
    """
    key = BOUNDS[line.setting.name].broker_key
    if call.view.instance_id is None:
        origin = origins(call.services.metadata.broker_layers, BROKER_SETTINGS[key])[0]
        if origin.source is not ConfigSource.DEFAULT:
            return _synonym(*origin)
    return _synonym(key, line.value, ConfigSource.STATIC_BROKER)


def broker_lines(call: Call, request: DescribeConfigsRequest) -> list[DescribeConfigsResourceResult]:
    """Returns the broker settings that clients may read: the defaults of topics and auto-creation."""
    described = topic_config.describe({}, call.services.metadata.topic_defaults)
    lines = {
        line.setting.broker_key: _broker_line(
            call, request, line.setting.broker_key, line.value, line.source, line.setting.type
        )
        for line in described
    }
    for bound in BROKER_BOUNDS:
        value = call.services.metadata.topic_defaults.get(bound.broker_key)
        source = ConfigSource.DEFAULT if value is None else ConfigSource.STATIC_BROKER
        lines[bound.broker_key] = _broker_line(
            call, request, bound.broker_key, value or str(bound.default), source, ValueType.LONG
        )
    instance = call.view.instance
    if instance is not None:
        settings = instance.document.settings
        for name, value, kind in (
            ("auto.create.topics.enable", str(settings.auto_create_topics).lower(), ValueType.BOOLEAN),
            ("default.replication.factor", str(default_replication_factor(instance.document)), ValueType.INT),
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
        documentation=BROKER_TEXT if request.include_documentation and call.version >= DOCUMENTED_FROM else None,
    )


def _synonym(name: str, value: str, source: ConfigSource) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=name, value=value, source=int(source))
