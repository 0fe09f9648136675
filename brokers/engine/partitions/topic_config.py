"""Topic settings in use: validated when a client sets them, described on request, parsed for the engine.

The settings themselves are in `topic_settings`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final
from zlib import crc32

from brokers.contract.instance_limits import CONFIG_VALUE_BYTES_MAX, TOPIC_CONFIG_BYTES_MAX, encoded_bytes
from brokers.engine.partitions import throttled_replicas, topic_bounds
from brokers.engine.partitions.throttled_replicas import ThrottledReplicas
from brokers.engine.partitions.topic_settings import SETTINGS, Setting, ValueType
from brokers.engine.records.compression import NAMES as CODECS
from brokers.engine.records.validation import LONG_MAX, BatchRules
from brokers.engine.storage.compaction.settings import CompactionRules
from brokers.engine.storage.log import ROLLED_MS_MIN, LogConfig
from brokers.engine.storage.retention import RetentionRules

# Minimum size of an index: a log must not roll too often, because each segment costs files and a descriptor.
INDEX_BYTES_MIN: Final = 64 * 1024
# Maximum index interval and size: the event loop scans the log between two entries, about a thousand small batches per
# millisecond, and the indexes of active segments are in memory.
INDEX_INTERVAL_BYTES_MAX: Final = 64 * 1024
INDEX_BYTES_MAX: Final = 10_485_760


# Broker keys of the same setting in other units, with the factor to its own unit, the most precise first.
OTHER_UNITS: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    "retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    "segment.ms": (("log.roll.hours", 3_600_000),),
    "segment.jitter.ms": (("log.roll.jitter.hours", 3_600_000),),
}


class ConfigSource(IntEnum):
    """Source of a setting, with the numbers of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class InvalidTopicConfig(ValueError):
    """The key is unknown or read-only, or the value is invalid (INVALID_CONFIG, 40)."""


@dataclass(frozen=True, slots=True)
class DescribedSetting:
    """One entry of a DescribeConfigs response; no topic setting is sensitive.

    If the operator's bound applies, it is the `value`, and `own_value` is the topic's own value, otherwise None.
    """

    setting: Setting
    value: str
    source: ConfigSource
    own_value: str | None = None


_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_FLOAT: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _normalize_integer(value: str) -> str:
    if not _INTEGER.fullmatch(value):
        raise ValueError(value)
    return str(int(value))


def _normalize_float(value: str) -> str:
    if not _FLOAT.fullmatch(value):
        raise ValueError(value)
    return str(float(value))


def _normalize_boolean(value: str) -> str:
    if value.lower() not in ("true", "false"):
        raise ValueError(value)
    return value.lower()


# Normalization of values as in Kafka, by type; raises ValueError for an invalid value.
_NORMALIZERS: dict[ValueType, Callable[[str], str]] = {
    ValueType.BOOLEAN: _normalize_boolean,
    ValueType.STRING: str,
    ValueType.INT: _normalize_integer,
    ValueType.SHORT: _normalize_integer,
    ValueType.LONG: _normalize_integer,
    ValueType.DOUBLE: _normalize_float,
    ValueType.LIST: lambda value: ",".join(word.strip() for word in value.split(",")),
}


def normalize(value_type: ValueType, value: str) -> str:
    """Returns the normalized value. Raises ValueError if it is not of this type."""
    return _NORMALIZERS[value_type](value.strip())


def check_writable(name: str, *, operator: bool = False) -> None:
    """Raises InvalidTopicConfig for a key that only the operator may set."""
    if not operator and name in SETTINGS and SETTINGS[name].read_only:
        raise InvalidTopicConfig(f"Topic config {name} is set by the operator and cannot be changed")


def is_written_back(name: str, value: str | None, topic: Mapping[str, str], defaults: Mapping[str, str]) -> bool:
    """True if `value` is the current value of a key that only the operator may set: clients read all settings and write
    them back.
    """
    setting = SETTINGS.get(name)
    if setting is None or not setting.read_only or value is None:
        return False
    in_force = topic.get(name, defaults.get(name, setting.default))
    try:
        return normalize(setting.type, value) == normalize(setting.type, in_force)
    except ValueError:
        return False


def check_value(name: str, value: str | None, *, operator: bool = False) -> str:
    """Returns the normalized value if `name` may be set to it.

    Raises InvalidTopicConfig with a reason for the client.
    """
    setting = SETTINGS.get(name)
    if setting is None:
        raise InvalidTopicConfig(f"Unknown topic config name: {name}")
    check_writable(name, operator=operator)
    if value is None:
        raise InvalidTopicConfig(f"Invalid value for configuration {name}: null")
    if encoded_bytes(value) > CONFIG_VALUE_BYTES_MAX:
        raise InvalidTopicConfig(
            f"Invalid value for configuration {name}: more than {CONFIG_VALUE_BYTES_MAX} bytes; make it shorter"
        )
    try:
        return normalize_accepted(name, setting.type, setting.accepts, value.strip())
    except ValueError as error:
        raise InvalidTopicConfig(str(error)) from None


def normalize_accepted(name: str, value_type: ValueType, accepts: Callable[[str], bool], value: str) -> str:
    """Returns the normalized value. Raises ValueError with a reason for the client."""
    try:
        result = normalize(value_type, value)
        is_acceptable = accepts(result)
    except ValueError:
        reason = f"Not a value of type {value_type.name}"
        raise ValueError(f"Invalid value {value} for configuration {name}: {reason}") from None
    if not is_acceptable:
        raise ValueError(f"Invalid value {result} for configuration {name}")
    return result


def check_config(
    config: Mapping[str, str | None],
    topic: Mapping[str, str],
    defaults: Mapping[str, str],
    *,
    operator: bool = False,
) -> dict[str, str]:
    """Returns the normalized pairs of CreateTopics or AlterConfigs, without keys that a tenant only writes back.

    `topic` and `defaults` are the current settings. Raises InvalidTopicConfig at the first invalid pair.
    """
    return {
        name: check_value(name, value, operator=operator)
        for name, value in config.items()
        if operator or not is_written_back(name, value, topic, defaults)
    }


def check_combination(topic: Mapping[str, str], defaults: Mapping[str, str]) -> None:
    """Checks settings that bound each other, and the total size of a configuration. Raises InvalidTopicConfig."""
    if sum(len(name) + encoded_bytes(value) for name, value in topic.items()) > TOPIC_CONFIG_BYTES_MAX:
        raise InvalidTopicConfig(
            f"The configuration of a topic has at most {TOPIC_CONFIG_BYTES_MAX} bytes; remove what is not needed"
        )

    def get_number(name: str) -> int:
        return int(topic.get(name) or defaults.get(name) or SETTINGS[name].default)

    if get_number("min.compaction.lag.ms") > get_number("max.compaction.lag.ms"):
        raise InvalidTopicConfig("min.compaction.lag.ms must not be greater than max.compaction.lag.ms")


def check_message_bytes(
    new_config: Mapping[str, str], message_bytes_max: int | None, old_config: Mapping[str, str]
) -> None:
    """Checks a topic's maximum batch size against the instance's limit; an unchanged value is accepted.

    Raises InvalidTopicConfig.
    """
    name = "max.message.bytes"
    value = new_config.get(name)
    if message_bytes_max is None or value is None or value == old_config.get(name) or int(value) <= message_bytes_max:
        return
    raise InvalidTopicConfig(
        f"Invalid value {value} for configuration {name}: the instance allows {message_bytes_max} at most, which grows "
        "with its bandwidth"
    )


def convert_unit(value: str, factor: int) -> str:
    """Returns a time of another unit in the setting's own; a negative one means no limit, which is -1."""
    number = int(value)
    return str(number * factor) if number >= 0 else "-1"


def _normalize_or_keep(setting: Setting, value: str) -> str:
    """Returns a broker's own value in Kafka's form, a malformed one unchanged, so that the broker starts."""
    try:
        return normalize(setting.type, value)
    except ValueError:
        return value


def topic_defaults(broker_overrides: Mapping[str, str]) -> dict[str, str]:
    """Returns the topic keys and bounds that the broker's own settings (`log.segment.bytes`, …) define (LOG-45)."""
    defaults = {}
    for setting in SETTINGS.values():
        if setting.broker_key in broker_overrides:
            defaults[setting.name] = _normalize_or_keep(setting, broker_overrides[setting.broker_key])
    for bound in topic_bounds.BROKER_BOUNDS:
        if bound.broker_key in broker_overrides:
            defaults[bound.broker_key] = broker_overrides[bound.broker_key]
    for name, other_units in OTHER_UNITS.items():
        if SETTINGS[name].broker_key not in broker_overrides:
            for key, factor in other_units:
                if key in broker_overrides:
                    defaults[name] = convert_unit(broker_overrides[key], factor)
                    break
    return defaults


def describe(topic: Mapping[str, str], defaults: Mapping[str, str]) -> list[DescribedSetting]:
    """Returns every setting with its value and source, in the order of their names."""
    described = []
    for name, setting in SETTINGS.items():
        limit = topic_bounds.bound_in_force(name, topic, defaults)
        if limit is not None:
            described.append(DescribedSetting(setting, limit, ConfigSource.STATIC_BROKER, own_value=topic[name]))
        elif name in topic:
            described.append(DescribedSetting(setting, topic[name], ConfigSource.TOPIC))
        elif name in defaults:
            described.append(DescribedSetting(setting, defaults[name], ConfigSource.STATIC_BROKER))
        else:
            described.append(DescribedSetting(setting, setting.default, ConfigSource.DEFAULT))
    return described


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """Topic settings that the engine uses; shared by all topics with equal settings."""

    batch_rules: BatchRules
    log: LogConfig
    min_insync_replicas: int
    file_delete_delay_ms: int
    segment_jitter_ms: int
    flush_messages: int
    flush_ms: int
    converts_down: bool
    allows_unclean_election: bool
    compaction: CompactionRules | None
    leader_throttled: ThrottledReplicas | None = None
    follower_throttled: ThrottledReplicas | None = None

    @property
    def flushes(self) -> bool:
        """True if the topic's logs may need flushes more often than the broker's rounds."""
        return self.flush_messages < LONG_MAX or self.flush_ms < LONG_MAX

    def log_config_of(self, topic: str, index: int) -> LogConfig:
        """Returns the log settings of one partition with its own jitter, so that not all partitions roll at once."""
        if not self.segment_jitter_ms:
            return self.log
        jitter_ms = crc32(f"{topic}-{index}".encode()) % (self.segment_jitter_ms + 1)
        return self.log._replace(segment_ms=max(self.log.segment_ms - jitter_ms, ROLLED_MS_MIN))


def _index_limits(interval_bytes: int, index_bytes: int) -> tuple[int, int]:
    return min(interval_bytes, INDEX_INTERVAL_BYTES_MAX), min(max(index_bytes, INDEX_BYTES_MIN), INDEX_BYTES_MAX)


def parse(topic: Mapping[str, str], defaults: Mapping[str, str]) -> TopicConfig:
    """Returns the engine's view of a topic's settings over the broker's `defaults`; unknown keys are ignored (ZK-3)."""

    def get_text(name: str) -> str:
        return topic.get(name) or defaults.get(name) or SETTINGS[name].default

    def get_words(name: str) -> set[str]:
        """Returns the words of a list, which may be empty."""
        value = topic.get(name, defaults.get(name, SETTINGS[name].default))
        return {word.strip() for word in value.split(",") if word.strip()}

    def get_number(name: str) -> int:
        return int(topic_bounds.bound_in_force(name, topic, defaults) or get_text(name))

    def get_timestamp_bound(name: str) -> int:
        legacy = "message.timestamp.difference.max.ms"
        is_set = name in topic or name in defaults
        return get_number(name) if is_set else get_number(legacy)

    policies = get_words("cleanup.policy")
    compression = get_text("compression.type")
    rules = BatchRules(
        batch_bytes_max=get_number("max.message.bytes"),
        segment_bytes=get_number("segment.bytes"),
        log_append_time=get_text("message.timestamp.type") == "LogAppendTime",
        compacted="compact" in policies,
        timestamp_before_ms_max=get_timestamp_bound("message.timestamp.before.max.ms"),
        timestamp_after_ms_max=get_timestamp_bound("message.timestamp.after.max.ms"),
        codec=None if compression == "producer" else CODECS[compression],
    )
    segment_ms = get_number("segment.ms")
    lag_ms = get_number("max.compaction.lag.ms")
    if rules.compacted and lag_ms > 0:
        segment_ms = min(segment_ms, lag_ms)
    log = LogConfig(
        segment_bytes=topic_bounds.segment_bytes(topic, defaults, rules.segment_bytes),
        segment_ms=max(segment_ms, ROLLED_MS_MIN),
        index_limits=_index_limits(get_number("index.interval.bytes"), get_number("segment.index.bytes")),
        retention=RetentionRules(get_number("retention.ms"), get_number("retention.bytes"), "delete" in policies),
    )
    compaction = CompactionRules(
        dirty_ratio_min=float(get_text("min.cleanable.dirty.ratio")),
        lag_ms_min=get_number("min.compaction.lag.ms"),
        lag_ms_max=lag_ms,
        delete_retention_ms=get_number("delete.retention.ms"),
    )
    return TopicConfig(
        rules,
        log,
        min_insync_replicas=get_number("min.insync.replicas"),
        file_delete_delay_ms=get_number("file.delete.delay.ms"),
        segment_jitter_ms=get_number("segment.jitter.ms"),
        flush_messages=get_number("flush.messages"),
        flush_ms=get_number("flush.ms"),
        converts_down=get_text("message.downconversion.enable").lower() != "false",
        allows_unclean_election=get_text("unclean.leader.election.enable").lower() == "true",
        compaction=compaction if rules.compacted else None,
        leader_throttled=throttled_replicas.parse(topic.get("leader.replication.throttled.replicas", "")),
        follower_throttled=throttled_replicas.parse(topic.get("follower.replication.throttled.replicas", "")),
    )
