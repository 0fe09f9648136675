"""DescribeConfigs of topics and brokers (QUO-60, ZK-13).

A tenant sees those settings of brokers that concern its topics. Operators see all settings of the broker that receives
the request, or, with an empty resource name as in Kafka, the settings that are common to all brokers.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from brokers.contract.acls import ResourceType
from brokers.engine.cluster.image import TopicImage
from brokers.engine.cluster.topic_plans import default_replication_factor
from brokers.engine.handlers.configs.broker_settings import SETTINGS as BROKER_SETTINGS
from brokers.engine.handlers.configs.broker_settings import BrokerSetting, Origin, origins, shared_origins, value_of
from brokers.engine.handlers.context import RequestContext
from brokers.engine.handlers.services import BrokerLayers
from brokers.engine.handlers.topics.topics import ResourceError, check_right
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
DOCUMENTED_FROM: Final = 3
RESOURCES_MAX: Final = 1_000
TOO_MANY: Final = f"At most {RESOURCES_MAX} resources in one request."
# Number of resources described in one turn of the event loop; each has some thirty settings with documentation.
DESCRIBED_AT_ONCE_MAX: Final = 20
# Longer names are no broker ids, and Python does not parse numbers beyond some length.
BROKER_DIGITS_MAX: Final = 10
BROKER_TEXT: Final = "Set by the operator or with the instance; topics may have a value of their own."


def describe_configs(
    context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse | Awaitable[DescribeConfigsResponse]:
    if len(request.resources) > DESCRIBED_AT_ONCE_MAX:
        return _describe_many(context, request)
    return DescribeConfigsResponse(results=[_describe(context, request, resource) for resource in request.resources])


async def _describe_many(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    results = []
    for number, resource in enumerate(request.resources):
        if number and number % DESCRIBED_AT_ONCE_MAX == 0:
            await yield_to_others()
        if number >= RESOURCES_MAX:
            results.append(_result(resource, int(ErrorCode.INVALID_REQUEST), TOO_MANY, []))
            continue
        results.append(_describe(context, request, resource))
    return DescribeConfigsResponse(results=results)


def _describe(
    context: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    configs: list[DescribeConfigsResourceResult] = []
    code, message = 0, None
    try:
        check_right_to(context, resource.resource_type, resource.resource_name)
        if resource.resource_type == BROKER:
            wanted_keys = set(resource.configuration_keys or ())
            if context.view.instance_id is None:
                entries = _broker_entries(context, request, resource.resource_name)
            else:
                _check_broker(context, resource.resource_name)
                # Settings common to all brokers have no entry of their own for a tenant.
                entries = _common_broker_entries(context, request) if resource.resource_name else []
            configs = [entry for entry in entries if not wanted_keys or entry.name in wanted_keys]
        else:
            check_kind(resource.resource_type)
            if not is_valid_topic_name(resource.resource_name):
                raise ResourceError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is not valid.")
            topic = find_topic(context, resource.resource_name)
            wanted_keys = set(resource.configuration_keys or ())
            configs = [
                _topic_entry(context, request, described)
                for described in topic_config.describe(topic.config, context.services.metadata.topic_defaults)
                if not wanted_keys or described.setting.name in wanted_keys
            ]
    except ResourceError as error:
        code, message = error.code, str(error)
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


def _check_broker(context: RequestContext, name: str) -> None:
    """Raises ResourceError for the id of a broker that has no address on the caller's listener."""
    if name and not (name.isdecimal() and len(name) <= BROKER_DIGITS_MAX and int(name) in context.view.endpoints):
        raise ResourceError(ErrorCode.INVALID_REQUEST, "Unexpected broker id.")


def check_right_to(context: RequestContext, resource_type: int, name: str) -> None:
    """Raises ResourceError if the principal may not make this call for the resource."""
    if resource_type == TOPIC:
        check_right(context, ResourceType.TOPIC, name)
    elif resource_type == BROKER:
        check_right(context)


def check_kind(resource_type: int) -> None:
    """Raises ResourceError for a kind of resource without settings."""
    if resource_type != TOPIC:
        raise ResourceError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type {resource_type}.")


def find_topic(context: RequestContext, name: str) -> TopicImage:
    """Returns the topic. Raises ResourceError if it does not exist, or if the caller may not make this call for it."""
    topic = context.view.namespace.topics.get(name.encode())
    error = context.refusal(topic, name)
    if topic is None or error:
        raise ResourceError(
            error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )
    return topic


def _topic_entry(
    context: RequestContext, request: DescribeConfigsRequest, described: DescribedSetting
) -> DescribeConfigsResourceResult:
    setting, source = described.setting, described.source
    inherited = _inherited_synonyms(context, setting)
    if source is not ConfigSource.TOPIC and inherited:
        source = ConfigSource(inherited[0].source)
    own_synonyms = [_synonym(setting.name, described.value, source)] if source is ConfigSource.TOPIC else []
    if described.own_value is not None:
        own_synonyms = [_bound(context, described), _synonym(setting.name, described.own_value, ConfigSource.TOPIC)]
        source = ConfigSource(own_synonyms[0].source)
    origin = Origin(setting.name, described.value, source)
    return _entry(
        context, request, origin, setting.type, [*own_synonyms, *inherited], setting.documentation, setting.read_only
    )


def _entry(
    context: RequestContext,
    request: DescribeConfigsRequest,
    origin: Origin,
    kind: ValueType,
    synonyms: list[DescribeConfigsSynonym],
    documentation: str,
    read_only: bool,
) -> DescribeConfigsResourceResult:
    is_documented = request.include_documentation and context.version >= DOCUMENTED_FROM
    return DescribeConfigsResourceResult(
        name=origin.name,
        value=origin.value,
        read_only=read_only,
        is_default=origin.source is ConfigSource.DEFAULT,
        config_source=int(origin.source),
        is_sensitive=False,
        synonyms=synonyms if request.include_synonyms else [],
        config_type=int(kind),
        documentation=documentation if is_documented else None,
    )


def _inherited_synonyms(context: RequestContext, setting: Setting) -> list[DescribeConfigsSynonym]:
    """Returns the values that apply if the topic has none. Only operators see if a value was set for one broker or for
    all; a tenant sees that it was set.
    """
    if context.view.instance_id is None and setting.broker_key in BROKER_SETTINGS:
        setting_origins = origins(context.services.metadata.broker_layers, BROKER_SETTINGS[setting.broker_key])
        return [_synonym(*origin) for origin in setting_origins]
    defaults = context.services.metadata.topic_defaults
    result = []
    if setting.name in defaults:
        result.append(_synonym(setting.broker_key, defaults[setting.name], ConfigSource.STATIC_BROKER))
    if not setting.default_elsewhere:
        result.append(_synonym(setting.broker_key, setting.default, ConfigSource.DEFAULT))
    return result


def _bound(context: RequestContext, described: DescribedSetting) -> DescribeConfigsSynonym:
    """Returns the operator's bound that is in effect instead of the topic's value. Its source is never DEFAULT, since
    it is not the value that the topic would have without one of its own.
    """
    key = BOUNDS[described.setting.name].broker_key
    if context.view.instance_id is None:
        origin = origins(context.services.metadata.broker_layers, BROKER_SETTINGS[key])[0]
        if origin.source is not ConfigSource.DEFAULT:
            return _synonym(*origin)
    return _synonym(key, described.value, ConfigSource.STATIC_BROKER)


def _common_broker_entries(
    context: RequestContext, request: DescribeConfigsRequest
) -> list[DescribeConfigsResourceResult]:
    """Returns the broker settings that clients may read: the defaults of topics and auto-creation."""
    entries = {
        described.setting.broker_key: _broker_entry(
            context, request, described.setting.broker_key, described.value, described.source, described.setting.type
        )
        for described in topic_config.describe({}, context.services.metadata.topic_defaults)
    }
    for bound in BROKER_BOUNDS:
        value = context.services.metadata.topic_defaults.get(bound.broker_key)
        source = ConfigSource.DEFAULT if value is None else ConfigSource.STATIC_BROKER
        entries[bound.broker_key] = _broker_entry(
            context, request, bound.broker_key, value or str(bound.default), source, ValueType.LONG
        )
    instance = context.view.instance
    if instance is not None:
        settings = instance.document.settings
        for name, value, kind in (
            ("auto.create.topics.enable", str(settings.auto_create_topics).lower(), ValueType.BOOLEAN),
            ("default.replication.factor", str(default_replication_factor(instance.document)), ValueType.INT),
            ("delete.topic.enable", str(context.services.metadata.deletes_topics).lower(), ValueType.BOOLEAN),
            ("num.partitions", str(settings.default_partitions), ValueType.INT),
        ):
            entries[name] = _broker_entry(context, request, name, value, ConfigSource.STATIC_BROKER, kind)
    return [entries[name] for name in sorted(entries)]


def _broker_entry(
    context: RequestContext,
    request: DescribeConfigsRequest,
    name: str,
    value: str,
    source: ConfigSource,
    kind: ValueType,
) -> DescribeConfigsResourceResult:
    return _entry(
        context, request, Origin(name, value, source), kind, [_synonym(name, value, source)], BROKER_TEXT, True
    )


def _broker_entries(
    context: RequestContext, request: DescribeConfigsRequest, name: str
) -> list[DescribeConfigsResourceResult]:
    """Returns every setting of this broker, or those common to all brokers. Raises ResourceError."""
    broker_id = requested_broker(context, name)
    entries = []
    for setting in BROKER_SETTINGS.values():
        setting_origins = origins_of(context.services.metadata.broker_layers, setting, broker_id)
        if setting_origins:
            entry_origin = Origin(setting.name, value_of(setting, setting_origins[0]), setting_origins[0].source)
            synonyms = [_synonym(*origin) for origin in setting_origins]
            is_read_only = not setting.is_dynamic
            entries.append(
                _entry(context, request, entry_origin, setting.type, synonyms, setting.documentation, is_read_only)
            )
    return entries


def origins_of(layers: BrokerLayers, setting: BrokerSetting, broker_id: int | None) -> list[Origin]:
    """Returns the origins for one broker, or those common to all brokers (None)."""
    return shared_origins(layers, setting) if broker_id is None else origins(layers, setting)


def requested_broker(context: RequestContext, name: str) -> int | None:
    """Returns this broker's id, or None for all brokers. Raises ResourceError for another broker."""
    if not name:
        return None
    if not name.isdecimal() or len(name) > BROKER_DIGITS_MAX:
        truncated_name = name[:BROKER_DIGITS_MAX]
        raise ResourceError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {truncated_name}")
    if int(name) != context.services.broker_id:
        expected = context.services.broker_id
        raise ResourceError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {expected}, but received {name}"
        )
    return int(name)


def _synonym(name: str, value: str, source: ConfigSource) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(name=name, value=value, source=int(source))
