"""Settings of a broker as operators see them: their names, which are dynamic, and the origin of a value (QUO-60). Pure.

The value in effect comes from the first of these that has one: the topic, the operator for this broker, the operator
for all brokers, the start of the broker, the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from brokers.contract.instance_limits import CONFIG_VALUE_BYTES_MAX, encoded_bytes
from brokers.engine.handlers.broker_layers import BrokerLayers
from brokers.engine.handlers.configs.broker_setting_list import CHANGEABLE, FIXED, Row
from brokers.engine.partitions.topic_bounds import BROKER_BOUNDS, Bound
from brokers.engine.partitions.topic_config import ConfigSource, accepted
from brokers.engine.partitions.topic_settings import SETTINGS as TOPIC_SETTINGS
from brokers.engine.partitions.topic_settings import Setting, ValueType
from brokers.engine.records.validation import LONG_MAX


def _no_limits(_value: str) -> bool:
    return True


class InvalidBrokerSetting(ValueError):
    """Raised for a key that is not dynamic, or an invalid value (INVALID_REQUEST, as Kafka answers for brokers)."""


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """One setting. `falls_back` has other keys for the same setting in another unit, each with its factor to this unit.
    `default` is None without a default.
    """

    name: str
    type: ValueType
    default: str | None
    documentation: str
    accepts: Callable[[str], bool] = _no_limits
    is_dynamic: bool = False
    falls_back: tuple[tuple[str, int], ...] = ()


class Origin(NamedTuple):
    """A value of a setting, with the key and the source that it was set by."""

    name: str
    value: str
    source: ConfigSource


def _of_topics(setting: Setting) -> BrokerSetting:
    """Returns the broker setting that is the default of a topic setting."""
    if setting.name != "retention.ms":
        default, accepts = setting.default, setting.accepts
        return BrokerSetting(setting.broker_key, setting.type, default, setting.documentation, accepts, True)
    # 0 would delete everything; any negative number is unlimited.
    return BrokerSetting(
        setting.broker_key,
        setting.type,
        None,
        setting.documentation,
        lambda value: int(value) != 0,
        True,
        (("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    )


def _of_bound(bound: Bound) -> BrokerSetting:
    """Returns the broker setting of a bound; zero stands for no bound where a value below it would be invalid."""
    return BrokerSetting(
        bound.broker_key,
        ValueType.LONG,
        str(bound.default),
        bound.documentation,
        lambda value: 0 <= int(value) <= LONG_MAX,
        True,
    )


def _of_row(row: Row, *, is_dynamic: bool) -> BrokerSetting:
    return BrokerSetting(row.name, row.type, row.default, row.documentation, row.accepts or _no_limits, is_dynamic)


# Lists of replicas exist only for topics.
_DEFAULTS_OF_TOPICS: Final = [
    setting for setting in TOPIC_SETTINGS.values() if not setting.name.endswith(".replication.throttled.replicas")
]
SETTINGS: Final[dict[str, BrokerSetting]] = {
    setting.name: setting
    for setting in sorted(
        (
            *(_of_topics(setting) for setting in _DEFAULTS_OF_TOPICS),
            *(_of_bound(bound) for bound in BROKER_BOUNDS),
            *(_of_row(row, is_dynamic=True) for row in CHANGEABLE),
            *(_of_row(row, is_dynamic=False) for row in FIXED),
        ),
        key=lambda setting: setting.name,
    )
}


def check(name: str, value: str) -> str:
    """Returns the normalised value. Raises InvalidBrokerSetting with a reason for the operator."""
    setting = SETTINGS.get(name)
    if setting is None:
        raise InvalidBrokerSetting(f"Unknown broker config name: {name}")
    if not setting.is_dynamic:
        raise InvalidBrokerSetting(f"Cannot update these configs dynamically: {name}")
    if encoded_bytes(value) > CONFIG_VALUE_BYTES_MAX:
        raise InvalidBrokerSetting(f"Invalid value for configuration {name}: too long")
    try:
        return accepted(name, setting.type, setting.accepts, value)
    except ValueError as error:
        raise InvalidBrokerSetting(str(error)) from None


def usable(values: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Splits a stored document into valid values, and reasons why the others are invalid, both by key (QUO-75)."""
    kept: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for name, value in values.items():
        try:
            kept[name] = check(name, value)
        except InvalidBrokerSetting as error:
            reasons[name] = str(error)
    return kept, reasons


def origins(layers: BrokerLayers, setting: BrokerSetting) -> list[Origin]:
    """Returns all values that are set for a setting, the one in effect first."""
    by_source = (
        (layers.own, ConfigSource.DYNAMIC_BROKER),
        (layers.of_all, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (layers.static, ConfigSource.STATIC_BROKER),
    )
    name = setting.name
    result = [Origin(name, layer[name], source) for layer, source in by_source if name in layer]
    for other, _ in setting.falls_back:
        if other in layers.static:
            result.append(Origin(other, layers.static[other], ConfigSource.STATIC_BROKER))
    for other in (name, *(other for other, _ in setting.falls_back)):
        default = SETTINGS[other].default
        if default is not None:
            result.append(Origin(other, default, ConfigSource.DEFAULT))
    return result


def shared(layers: BrokerLayers, setting: BrokerSetting) -> list[Origin]:
    """Returns the value that is common to all brokers."""
    name = setting.name
    return [Origin(name, layers.of_all[name], ConfigSource.DYNAMIC_DEFAULT_BROKER)] if name in layers.of_all else []


def value_of(setting: BrokerSetting, origin: Origin) -> str:
    """Returns the value of an origin in the setting's own unit."""
    for other, factor in setting.falls_back:
        if origin.name == other:
            return str(int(origin.value) * factor)
    return origin.value
