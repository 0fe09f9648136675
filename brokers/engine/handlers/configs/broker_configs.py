"""Settings of a broker as the operator sees them, and changes of those that need no restart (QUO-60, ZK-13).

As in Kafka, a broker answers for itself and for the settings common to all brokers (the empty name). What tenants see
is in `describe_configs` and `alter_configs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replaced
from typing import Final

from brokers.engine.cluster.errors import ClusterError
from brokers.engine.errors import SettingsWrong
from brokers.engine.handlers.broker_layers import BrokerLayers
from brokers.engine.handlers.configs import broker_settings
from brokers.engine.handlers.configs.broker_settings import SETTINGS, BrokerSetting, InvalidBrokerSetting, Origin
from brokers.engine.handlers.configs.config_changes import APPEND, DELETE, SET, SUBTRACT, listed
from brokers.engine.handlers.context import Call
from brokers.engine.handlers.topics.topics import Wrong
from brokers.engine.partitions.topic_config import ConfigSource
from brokers.engine.partitions.topic_settings import ValueType
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
    IncrementalAlterableConfig,
)

DOCUMENTED_FROM: Final = 3


def described(call: Call, request: DescribeConfigsRequest, name: str) -> list[DescribeConfigsResourceResult]:
    """Returns every setting of this broker, or those common to all brokers. Raises Wrong."""
    broker_id = _asked_for(call, name)
    layers = call.services.metadata.broker_layers
    lines = []
    for setting in SETTINGS.values():
        origins = _origins(layers, setting, broker_id)
        if origins:
            lines.append(_line(call, request, setting, origins))
    return lines


def _origins(layers: BrokerLayers, setting: BrokerSetting, broker_id: int | None) -> list[Origin]:
    """Returns the origins for one broker, or those common to all brokers (None)."""
    return broker_settings.shared(layers, setting) if broker_id is None else broker_settings.origins(layers, setting)


def _line(
    call: Call, request: DescribeConfigsRequest, setting: BrokerSetting, origins: Sequence[Origin]
) -> DescribeConfigsResourceResult:
    source = origins[0].source
    documented = request.include_documentation and call.version >= DOCUMENTED_FROM
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=broker_settings.value_of(setting, origins[0]),
        read_only=not setting.is_dynamic,
        is_default=source is ConfigSource.DEFAULT,
        config_source=int(source),
        is_sensitive=False,
        synonyms=synonyms(origins) if request.include_synonyms else [],
        config_type=int(setting.type),
        documentation=setting.documentation if documented else None,
    )


def synonyms(origins: Sequence[Origin]) -> list[DescribeConfigsSynonym]:
    """Returns origins as synonyms of DescribeConfigs, the one in effect first."""
    return [DescribeConfigsSynonym(name=name, value=value, source=int(source)) for name, value, source in origins]


def _asked_for(call: Call, name: str) -> int | None:
    """Returns this broker's id, or None for all brokers. Raises Wrong for another broker."""
    if not name:
        return None
    if not name.isdecimal():
        raise Wrong(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != call.services.broker_id:
        expected = call.services.broker_id
        raise Wrong(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {expected}, but received {name}")
    return int(name)


async def replace(call: Call, name: str, given: Mapping[str, str], *, validate_only: bool) -> int | None:
    """Replaces all settings by `given`. Returns the config change, None if only validated; raises Wrong."""
    return await _write(
        call,
        _asked_for(call, name),
        lambda _: {key: broker_settings.check(key, value) for key, value in given.items()},
        validate_only=validate_only,
    )


async def alter(
    call: Call, name: str, changes: Sequence[IncrementalAlterableConfig], *, validate_only: bool
) -> int | None:
    """Changes the named settings only. Returns the config change, None if only validated; raises Wrong."""
    broker_id = _asked_for(call, name)

    def change(present: dict[str, str]) -> dict[str, str]:
        after = dict(present)
        for config_change in changes:
            _apply(call, broker_id, after, config_change)
        return after

    return await _write(call, broker_id, change, validate_only=validate_only)


def _apply(call: Call, broker_id: int | None, after: dict[str, str], change: IncrementalAlterableConfig) -> None:
    """Applies one change to `after`. A missing or unknown key can be deleted. Raises Wrong, InvalidBrokerSetting."""
    name, operation = change.name, change.config_operation
    if operation == DELETE:
        after.pop(name, None)
    elif operation == SET:
        after[name] = broker_settings.check(name, change.value or "")
    elif operation in (APPEND, SUBTRACT):
        setting = SETTINGS.get(name)
        if setting is None or setting.type is not ValueType.LIST:
            raise Wrong(ErrorCode.INVALID_CONFIG, f"{name} is not a list.")
        layers = call.services.metadata.broker_layers
        below = _origins(layers, setting, broker_id)
        inherited = below[0].value if below else setting.default or ""
        after[name] = broker_settings.check(name, listed(after.get(name, inherited), change))
    else:
        raise Wrong(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation}.")


async def _write(
    call: Call,
    broker_id: int | None,
    change: Callable[[dict[str, str]], dict[str, str]],
    *,
    validate_only: bool,
) -> int | None:
    services = call.services

    def checked(present: dict[str, str]) -> dict[str, str]:
        after = change(present)
        kept, _ = broker_settings.usable(after)
        layers = services.metadata.broker_layers
        layers = replaced(layers, of_all=kept) if broker_id is None else replaced(layers, own=kept)
        services.metadata.check_settings(layers.effective)
        return after

    configs = services.metadata.current.image.broker_configs
    try:
        if validate_only:
            checked(dict(configs.of_all if broker_id is None else configs.own(broker_id)))
            return None
        return (await services.metadata.store.alter_broker_config(broker_id, checked)).change
    except (InvalidBrokerSetting, SettingsWrong) as error:
        raise Wrong(ErrorCode.INVALID_REQUEST, str(error)) from error
    except ClusterError as failure:
        raise Wrong(failure.wire_code, str(failure)) from failure
