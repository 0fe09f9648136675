"""Broker settings that are not defaults of topics: their names, types, defaults and documentation.

Dynamic settings are those that are dynamic in Kafka and that a running broker can apply completely, and bounds of
groups. Limits of connections are not dynamic: a wrong value would lock out the operator who has to correct it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from brokers.contract.connections import CONNECTIONS_PER_INSTANCE_MAX, CREATIONS_PER_INSTANCE_PER_S_MAX
from brokers.engine.compatibility import BYTES_PER_S_MAX, CONSUMER_DEFAULT_KEY, PRODUCER_DEFAULT_KEY, PROFILE_KEY, SEED
from brokers.engine.config import (
    CONNECTIONS_IDLE_MS_MAX,
    CONNECTIONS_MAX,
    CONNECTIONS_PER_ADDRESS_MAX,
    CONTROLLED_SHUTDOWN_TIMEOUT_MS,
    CREATIONS_PER_S_MAX,
    FETCH_BYTES_MAX,
    FRAME_BYTES_MAX,
    MAX_REAUTH_MS,
    QUOTA_CALLBACK,
    REPLICA_LAG_MS_MAX,
    REPLICATION_BYTES_PER_S_MAX,
    RETENTION_INTERVAL_MS,
)
from brokers.engine.partitions.topic_settings import INT_MAX, ValueType
from quotas.pacing import BURST_MS
from quotas.rates import WINDOW_COUNT, WINDOW_MS

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
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
    name: str
    type: ValueType
    default: str | None
    documentation: str
    accepts: Callable[[str], bool] | None = None


def _between(low: float, high: float = REPLICATION_BYTES_PER_S_MAX) -> Callable[[str], bool]:
    return lambda value: low <= float(value) <= high


def _whole(low: int, high: int = REPLICATION_BYTES_PER_S_MAX) -> Callable[[str], bool]:
    return lambda value: low <= int(value) <= high


CHANGEABLE: Final = (
    Row(
        LEADER_RATE,
        _LONG,
        str(REPLICATION_BYTES_PER_S_MAX),
        "Bytes per second that this broker sends to the replicas that topics name in "
        "`leader.replication.throttled.replicas` while they are not in sync.",
        _whole(0),
    ),
    Row(
        FOLLOWER_RATE,
        _LONG,
        str(REPLICATION_BYTES_PER_S_MAX),
        "Bytes per second that this broker copies into the replicas that topics name in "
        "`follower.replication.throttled.replicas`.",
        _whole(0),
    ),
    Row(
        "group.initial.rebalance.delay.ms",
        _INT,
        "3000",
        "Time for which the first members of a group wait for others.",
        _whole(0, INT_MAX),
    ),
    Row(
        "group.max.session.timeout.ms",
        _INT,
        "1800000",
        "Maximum session timeout of a group member.",
        _whole(1, INT_MAX),
    ),
    Row(
        "group.max.size",
        _INT,
        "1000",
        "Maximum number of members of a group; a larger group loses the excess ones at its next rebalance.",
        _whole(1, INT_MAX),
    ),
    Row(
        "group.min.session.timeout.ms",
        _INT,
        "6000",
        "Minimum session timeout of a group member.",
        _whole(1, INT_MAX),
    ),
    Row("log.cleaner.backoff.ms", _LONG, "15000", "Pause of the cleaner when no log is due.", _whole(1)),
    Row(
        "log.cleaner.dedupe.buffer.size",
        _LONG,
        "134217728",
        "Bytes for the offset maps of all threads of the cleaner.",
        _whole(CLEANER_MAP_BYTES_MIN),
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
        _whole(CLEANER_BUFFER_BYTES_MIN, INT_MAX),
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
        _whole(1, CLEANER_THREADS_MAX),
    ),
    Row(
        FREE_BYTES,
        _LONG,
        "0",
        "Bytes that stay free on the volume of a log directory: with less, tenants' produces to its partitions are "
        "refused. 0: one hundredth of the volume, 536,870,912 at least.",
        _whole(0),
    ),
    Row(
        VERIFICATION,
        _BOOLEAN,
        "true",
        "If true, a transaction's records are accepted only on partitions that its coordinator knows of.",
    ),
)

FIXED: Final = (
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
    Row("controller.quota.window.num", _INT, str(WINDOW_COUNT), "Number of samples of a client's rate of changes."),
    Row("controller.quota.window.size.seconds", _INT, str(WINDOW_MS // 1000), "Length of each sample."),
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
        "Maximum number of connections of one instance from an address.",
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
    Row("quota.window.num", _INT, str(WINDOW_COUNT), "Number of samples of a client's rate."),
    Row("quota.window.size.seconds", _INT, str(WINDOW_MS // 1000), "Length of each sample."),
    Row(
        "replica.lag.time.max.ms", _LONG, str(REPLICA_LAG_MS_MAX), "Time for which a follower may lag and stay in sync."
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
