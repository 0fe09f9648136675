"""Settings of a broker as operators see them: which there are, which of them are dynamic, and the origin of a value
(QUO-60). Pure.

The value in effect comes from the first of these that has one: the topic, the operator for this broker, the operator
for all brokers, the start of the broker, the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from brokers.contract.connections import CONNECTIONS_PER_INSTANCE_MAX, CREATIONS_PER_INSTANCE_PER_S_MAX
from brokers.contract.instance_limits import CONFIG_VALUE_BYTES_MAX, encoded_bytes
from brokers.contract.usage import RECORD_VERSION_SETTING
from brokers.contract.usage import VERSION as EVENT_VERSION
from brokers.contract.usage_columns import VERSION as COLUMNS_VERSION
from brokers.engine.compatibility import BYTES_PER_S_MAX, CONSUMER_DEFAULT_KEY, PRODUCER_DEFAULT_KEY, PROFILE_KEY, SEED
from brokers.engine.config import (
    AFTER_RESPONSE,
    BEFORE_RESPONSE,
    CONNECTIONS_IDLE_MS_MAX,
    CONNECTIONS_MAX,
    CONNECTIONS_PER_ADDRESS_MAX,
    CONTROLLED_SHUTDOWN_TIMEOUT_MS,
    CREATIONS_PER_S_MAX,
    DELAY_STYLE,
    FETCH_BYTES_MAX,
    FRAME_BYTES_MAX,
    MAX_REAUTH_MS,
    QUOTA_CALLBACK,
    RACK_AWARE_SELECTOR,
    REPLICA_LAG_MS_MAX,
    REPLICA_SELECTOR,
    REPLICATION_BYTES_PER_S_MAX,
    RETENTION_INTERVAL_MS,
    STRATEGIES,
    STRATEGY_DEFAULT,
    STRATEGY_KEY,
)
from brokers.engine.handlers.services import BrokerLayers
from brokers.engine.partitions.topic_bounds import BROKER_BOUNDS, Bound
from brokers.engine.partitions.topic_config import OTHER_UNITS, ConfigSource, convert_unit, normalize_accepted
from brokers.engine.partitions.topic_settings import INT_MAX, Setting, ValueType
from brokers.engine.partitions.topic_settings import SETTINGS as TOPIC_SETTINGS
from brokers.engine.records.validation import LONG_MAX
from quotas.pacing import BURST_MS
from quotas.rates import SAMPLE_COUNT, SAMPLE_WIDTH_MS

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
DELETION: Final = "delete.topic.enable"
WATERMARK: Final = "hw.advance.under.min.isr"
VERIFICATION: Final = "transaction.partition.verification.enable"
FREE_BYTES: Final = "log.dir.free.bytes.min"
# Bounds of the cleaner; `assembly.dynamic_configs` also checks them together.
CLEANER_THREADS_MAX: Final = 16
CLEANER_BUFFER_BYTES_MIN: Final = 4 * 1024
CLEANER_MAP_BYTES_MIN: Final = 1024 * 1024

_BOOLEAN, _STRING, _INT, _SHORT, _LONG, _DOUBLE, _LIST = (
    ValueType.BOOLEAN,
    ValueType.STRING,
    ValueType.INT,
    ValueType.SHORT,
    ValueType.LONG,
    ValueType.DOUBLE,
    ValueType.LIST,
)


class Row(NamedTuple):
    """Declaration of a setting that is not the default of a topic setting. `default` is None without a default."""

    name: str
    type: ValueType
    default: str | None
    documentation: str
    accepts: Callable[[str], bool] | None = None


def _between(low: float, high: float = REPLICATION_BYTES_PER_S_MAX) -> Callable[[str], bool]:
    return lambda value: low <= float(value) <= high


def _is_whole_number_within(low: int, high: int = REPLICATION_BYTES_PER_S_MAX) -> Callable[[str], bool]:
    return lambda value: low <= int(value) <= high


# Settings that are dynamic in Kafka and that a running broker can apply completely, and bounds of groups. Limits of
# connections are not dynamic: a wrong value would lock out the operator who has to correct it.
DYNAMIC_SETTINGS: Final = (
    Row(DELETION, _BOOLEAN, "true", "If false, DeleteTopics is refused, also from the console and the API."),
    Row(
        LEADER_RATE,
        _LONG,
        str(REPLICATION_BYTES_PER_S_MAX),
        "Bytes per second that this broker sends to the replicas that topics name in "
        "`leader.replication.throttled.replicas` while they are not in sync.",
        _is_whole_number_within(0),
    ),
    Row(
        FOLLOWER_RATE,
        _LONG,
        str(REPLICATION_BYTES_PER_S_MAX),
        "Bytes per second that this broker copies into the replicas that topics name in "
        "`follower.replication.throttled.replicas`.",
        _is_whole_number_within(0),
    ),
    Row(
        "group.initial.rebalance.delay.ms",
        _INT,
        "3000",
        "Time for which the first members of a group wait for others.",
        _is_whole_number_within(0, INT_MAX),
    ),
    Row(
        "group.max.session.timeout.ms",
        _INT,
        "1800000",
        "Maximum session timeout of a group member.",
        _is_whole_number_within(1, INT_MAX),
    ),
    Row(
        "group.max.size",
        _INT,
        "1000",
        "Maximum number of members of a group; a larger group loses the excess ones at its next rebalance.",
        _is_whole_number_within(1, INT_MAX),
    ),
    Row(
        "group.min.session.timeout.ms",
        _INT,
        "6000",
        "Minimum session timeout of a group member.",
        _is_whole_number_within(1, INT_MAX),
    ),
    Row(
        "log.cleaner.backoff.ms", _LONG, "15000", "Pause of the cleaner when no log is due.", _is_whole_number_within(1)
    ),
    Row(
        "log.cleaner.dedupe.buffer.size",
        _LONG,
        "134217728",
        "Bytes for the offset maps of all threads of the cleaner.",
        _is_whole_number_within(CLEANER_MAP_BYTES_MIN),
    ),
    Row(
        "log.cleaner.io.buffer.load.factor",
        _DOUBLE,
        "0.9",
        "Maximum load factor of an offset map.",
        _between(0.01, 1.0),
    ),
    Row(
        "log.cleaner.io.buffer.size",
        _INT,
        "524288",
        "Bytes that each thread of the cleaner reads and writes at once.",
        _is_whole_number_within(CLEANER_BUFFER_BYTES_MIN, INT_MAX),
    ),
    Row(
        "log.cleaner.io.max.bytes.per.second",
        _DOUBLE,
        "0",
        "Bytes that all threads of the cleaner read and write per second; 0 is no limit.",
        _between(0.0, float("inf")),
    ),
    Row(
        "log.cleaner.threads",
        _INT,
        "1",
        "Number of logs that are cleaned concurrently.",
        _is_whole_number_within(1, CLEANER_THREADS_MAX),
    ),
    Row(
        WATERMARK,
        _BOOLEAN,
        "true",
        "If false, records are committed only while a partition has `min.insync.replicas` replicas in sync, as in "
        "Kafka from 3.7 on: consumers wait for them, and produces with acks=all end with their time-out.",
    ),
    Row(
        STRATEGY_KEY,
        _STRING,
        STRATEGY_DEFAULT,
        "Order in which replicas of new partitions are assigned: `random_shift` or `round_robin`, each over the racks.",
        lambda value: value in STRATEGIES,
    ),
    Row(
        FREE_BYTES,
        _LONG,
        "0",
        "Bytes that stay free on the volume of a log directory: with less, tenants' produces to its partitions are "
        "refused. 0: one hundredth of the volume, 536,870,912 at least.",
        _is_whole_number_within(0),
    ),
    Row(
        VERIFICATION,
        _BOOLEAN,
        "true",
        "If true, a transaction's records are accepted only on partitions that its coordinator knows of.",
    ),
    Row(
        RECORD_VERSION_SETTING,
        _INT,
        str(EVENT_VERSION),
        f"Version of usage records that this broker writes: {COLUMNS_VERSION} has the counters of a report as columns, "
        f"{EVENT_VERSION} each in a record of its own. The agent sets {COLUMNS_VERSION}; a pipeline of an earlier "
        f"version of Penstock reads {EVENT_VERSION} only.",
        _is_whole_number_within(EVENT_VERSION, COLUMNS_VERSION),
    ),
)

# Settings that only a restart changes.
STATIC_SETTINGS: Final = (
    Row("auto.leader.rebalance.enable", _BOOLEAN, "true", "If true, preferred replicas become leaders again."),
    Row("broker.id", _INT, None, "The number of this broker in its cluster."),
    Row("broker.rack", _STRING, None, "Rack of this broker; replicas are spread over racks."),
    Row(
        QUOTA_CALLBACK, _STRING, None, "Who decides limits of clients: an entry point `penstock.client_quota_callback`."
    ),
    Row(
        PROFILE_KEY,
        _STRING,
        "",
        f"`{SEED}`: what older brokers did, unclean elections and the two defaults of client ids.",
    ),
    Row(
        "connections.max.idle.ms", _LONG, str(CONNECTIONS_IDLE_MS_MAX), "Time after which an idle connection is closed."
    ),
    Row(
        "connections.max.reauth.ms",
        _LONG,
        str(MAX_REAUTH_MS),
        "Maximum time between authentications of SASL clients; 0: unlimited.",
    ),
    Row("controller.quota.window.num", _INT, str(SAMPLE_COUNT), "Number of samples of a client's rate of changes."),
    Row("controller.quota.window.size.seconds", _INT, str(SAMPLE_WIDTH_MS // 1000), "Length of each sample."),
    Row(
        "controlled.shutdown.timeout.ms",
        _LONG,
        str(CONTROLLED_SHUTDOWN_TIMEOUT_MS),
        "Maximum time for handing over leaderships before a stop.",
    ),
    Row("fetch.max.bytes", _INT, str(FETCH_BYTES_MAX), "Maximum size of a fetch response."),
    Row("leader.imbalance.check.interval.seconds", _LONG, "300", "Interval of the controller's check of leaderships."),
    Row("leader.imbalance.per.broker.percentage", _INT, "10", "Imbalance of a broker's leaderships that is tolerated."),
    Row("log.cleaner.enable", _BOOLEAN, "true", "If true, compacted topics are cleaned."),
    Row("log.dirs", _LIST, None, "Directories of this broker's logs."),
    Row(
        "log.retention.check.interval.ms", _LONG, str(RETENTION_INTERVAL_MS), "Interval of the check for old segments."
    ),
    Row("log.retention.hours", _INT, "168", "Same as `log.retention.ms`, which takes precedence."),
    Row("log.retention.minutes", _INT, None, "Same as `log.retention.ms`, which takes precedence."),
    Row("log.roll.hours", _INT, "168", "Same as `log.roll.ms`, which takes precedence."),
    Row("log.roll.jitter.hours", _INT, "0", "Same as `log.roll.jitter.ms`, which takes precedence."),
    Row(
        "max.connection.creation.rate",
        _INT,
        str(CREATIONS_PER_S_MAX),
        "Maximum rate of new connections per second on this broker.",
    ),
    Row(
        "max.connection.creation.rate.per.instance",
        _INT,
        str(CREATIONS_PER_INSTANCE_PER_S_MAX),
        "Maximum rate of new connections per second of one instance on this broker; more wait.",
    ),
    Row("max.connections", _INT, str(CONNECTIONS_MAX), "Maximum number of connections of this broker."),
    Row(
        "max.connections.per.instance",
        _INT,
        str(CONNECTIONS_PER_INSTANCE_MAX),
        "Maximum number of connections of one instance.",
    ),
    Row(
        "max.connections.per.ip",
        _INT,
        str(CONNECTIONS_PER_ADDRESS_MAX),
        "Maximum number of connections of one instance from an address (one /64 network with IPv6).",
    ),
    Row("offset.metadata.max.bytes", _INT, "4096", "Maximum length of the metadata of a committed offset."),
    Row("offsets.commit.timeout.ms", _INT, "5000", "Time for which a commit waits for its replicas."),
    Row("offsets.retention.check.interval.ms", _LONG, "600000", "Interval of the check for expired offsets."),
    Row("offsets.retention.minutes", _INT, "10080", "Retention of the offsets of an empty group."),
    Row("offsets.topic.num.partitions", _INT, "50", "Number of partitions of the offsets topic."),
    Row("offsets.topic.replication.factor", _SHORT, "3", "Number of replicas of the offsets topic."),
    Row("offsets.topic.segment.bytes", _INT, "16777216", "Segment size of the offsets topic."),
    Row(
        CONSUMER_DEFAULT_KEY,
        _LONG,
        str(BYTES_PER_S_MAX),
        f"With `{PROFILE_KEY}={SEED}`: bytes a second of each client id without a quota.",
    ),
    Row(PRODUCER_DEFAULT_KEY, _LONG, str(BYTES_PER_S_MAX), "Same for bytes that are produced."),
    Row("quota.burst.ms", _LONG, str(BURST_MS), "Time for which a client may exceed its limit; -1: Kafka's window."),
    Row(
        DELAY_STYLE,
        _STRING,
        AFTER_RESPONSE,
        f"`{AFTER_RESPONSE}`: throttled clients are answered at once, and their connections muted. "
        f"`{BEFORE_RESPONSE}`: they are answered when the time is over, as by brokers before 2.0.",
    ),
    Row("quota.window.num", _INT, str(SAMPLE_COUNT), "Number of samples of a client's rate."),
    Row("quota.window.size.seconds", _INT, str(SAMPLE_WIDTH_MS // 1000), "Length of each sample."),
    Row(
        "replica.lag.time.max.ms", _LONG, str(REPLICA_LAG_MS_MAX), "Time for which a follower may lag and stay in sync."
    ),
    Row(
        REPLICA_SELECTOR,
        _STRING,
        RACK_AWARE_SELECTOR,
        "Replica that a client with `client.rack` reads from: an in-sync one in its rack, or with `…LeaderSelector` "
        "the leader. It takes brokers in two racks, and an instance whose bandwidth follows demand.",
    ),
    Row("socket.request.max.bytes", _INT, str(FRAME_BYTES_MAX), "Maximum size of a request."),
    Row(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _INT,
        "10000",
        "Interval of the check for timed-out transactions.",
    ),
    Row("transaction.max.timeout.ms", _INT, "900000", "Maximum timeout of a transaction."),
    Row(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        "3600000",
        "Interval of the check for unused transactional ids.",
    ),
    Row("transaction.state.log.min.isr", _INT, "2", "Minimum number of in-sync replicas of the transactions topic."),
    Row("transaction.state.log.num.partitions", _INT, "50", "Number of partitions of the transactions topic."),
    Row("transaction.state.log.replication.factor", _SHORT, "3", "Number of replicas of the transactions topic."),
    Row("transaction.state.log.segment.bytes", _INT, "16777216", "Segment size of the transactions topic."),
    Row("transactional.id.expiration.ms", _INT, "604800000", "Time for which an unused transactional id is kept."),
)


def _no_limits(_value: str) -> bool:
    return True


class InvalidBrokerSetting(ValueError):
    """Raised for a key that is not dynamic, or an invalid value (INVALID_REQUEST, as Kafka answers for brokers)."""


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """One setting. `fallbacks` are other keys for it, each with the factor of its unit; `default` may be None."""

    name: str
    type: ValueType
    default: str | None
    documentation: str
    accepts: Callable[[str], bool] = _no_limits
    is_dynamic: bool = False
    fallbacks: tuple[tuple[str, int], ...] = ()


class Origin(NamedTuple):
    """A value of a setting, with the key and the source that it was set by."""

    name: str
    value: str
    source: ConfigSource


def _topic_default(setting: Setting) -> BrokerSetting:
    """Returns the broker setting that is the default of a topic setting."""
    others = OTHER_UNITS.get(setting.name, ())
    default, accepts = None if others else setting.default, setting.accepts
    if setting.name == "retention.ms":
        # 0 would delete everything; any negative number is unlimited.
        accepts = _is_not_zero
    return BrokerSetting(setting.broker_key, setting.type, default, setting.documentation, accepts, True, others)


def _is_not_zero(value: str) -> bool:
    return int(value) != 0


def _bound_setting(bound: Bound) -> BrokerSetting:
    """Returns the broker setting of a bound; zero stands for no bound where a value below it would be invalid."""
    return BrokerSetting(
        bound.broker_key,
        ValueType.LONG,
        str(bound.default),
        bound.documentation,
        lambda value: 0 <= int(value) <= LONG_MAX,
        True,
    )


def _declared_setting(row: Row, *, is_dynamic: bool) -> BrokerSetting:
    return BrokerSetting(row.name, row.type, row.default, row.documentation, row.accepts or _no_limits, is_dynamic)


# Lists of replicas exist only for topics.
_TOPIC_DEFAULTS: Final = [
    setting for setting in TOPIC_SETTINGS.values() if not setting.name.endswith(".replication.throttled.replicas")
]
SETTINGS: Final[dict[str, BrokerSetting]] = {
    setting.name: setting
    for setting in sorted(
        (
            *(_topic_default(setting) for setting in _TOPIC_DEFAULTS),
            *(_bound_setting(bound) for bound in BROKER_BOUNDS),
            *(_declared_setting(row, is_dynamic=True) for row in DYNAMIC_SETTINGS),
            *(_declared_setting(row, is_dynamic=False) for row in STATIC_SETTINGS),
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
        return normalize_accepted(name, setting.type, setting.accepts, value)
    except ValueError as error:
        raise InvalidBrokerSetting(str(error)) from None


def split_valid(values: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Splits a stored document into valid values, and reasons why the others are invalid, both by key (QUO-75)."""
    valid: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for name, value in values.items():
        try:
            valid[name] = check(name, value)
        except InvalidBrokerSetting as error:
            reasons[name] = str(error)
    return valid, reasons


def origins(layers: BrokerLayers, setting: BrokerSetting) -> list[Origin]:
    """Returns all values that are set for a setting, the one in effect first."""
    by_source = (
        (layers.dynamic, ConfigSource.DYNAMIC_BROKER),
        (layers.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (layers.static, ConfigSource.STATIC_BROKER),
    )
    name = setting.name
    result = [Origin(name, layer[name], source) for layer, source in by_source if name in layer]
    for other, _ in setting.fallbacks:
        if other in layers.static:
            result.append(Origin(other, layers.static[other], ConfigSource.STATIC_BROKER))
    for other in (name, *(other for other, _ in setting.fallbacks)):
        default = SETTINGS[other].default
        if default is not None:
            result.append(Origin(other, default, ConfigSource.DEFAULT))
    return result


def shared_origins(layers: BrokerLayers, setting: BrokerSetting) -> list[Origin]:
    """Returns the origin of the value that is common to all brokers; an empty list if none is set."""
    name = setting.name
    return (
        [Origin(name, layers.dynamic_default[name], ConfigSource.DYNAMIC_DEFAULT_BROKER)]
        if name in layers.dynamic_default
        else []
    )


def value_of(setting: BrokerSetting, origin: Origin) -> str:
    """Returns the value of an origin in the setting's own unit."""
    for other, factor in setting.fallbacks:
        if origin.name == other:
            return convert_unit(origin.value, factor)
    return origin.value
