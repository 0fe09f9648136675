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
        "How long a group's first members wait for others.",
        _whole(0, INT_MAX),
    ),
    Row(
        "group.max.session.timeout.ms",
        _INT,
        "1800000",
        "The longest session a member of a group may ask for.",
        _whole(1, INT_MAX),
    ),
    Row(
        "group.max.size",
        _INT,
        "1000",
        "The most members of a group; a larger one loses those above it when it next rebalances.",
        _whole(1, INT_MAX),
    ),
    Row(
        "group.min.session.timeout.ms",
        _INT,
        "6000",
        "The shortest session a member of a group may ask for.",
        _whole(1, INT_MAX),
    ),
    Row("log.cleaner.backoff.ms", _LONG, "15000", "How long the cleaner waits when no log is due.", _whole(1)),
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
        "How full an offset map may become.",
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
        "How many logs are cleaned at the same time.",
        _whole(1, CLEANER_THREADS_MAX),
    ),
    Row(
        FREE_BYTES,
        _LONG,
        "0",
        "Bytes that the volume of a log directory keeps free: below it what tenants produce to partitions there is "
        "refused. 0: one hundredth of the volume, 536,870,912 at least.",
        _whole(0),
    ),
    Row(
        VERIFICATION,
        _BOOLEAN,
        "true",
        "Whether a transaction's records are taken only where its coordinator knows of the partition.",
    ),
)

FIXED: Final = (
    Row("auto.leader.rebalance.enable", _BOOLEAN, "true", "Whether leaderships go back to preferred replicas."),
    Row("broker.id", _INT, None, "The number of this broker in its cluster."),
    Row("broker.rack", _STRING, None, "Where this broker stands; replicas are spread over racks."),
    Row(
        QUOTA_CALLBACK, _STRING, None, "Who decides limits of clients: an entry point `penstock.client_quota_callback`."
    ),
    Row(
        PROFILE_KEY,
        _STRING,
        "",
        f"`{SEED}`: what older brokers did, unclean elections and the two defaults of client ids.",
    ),
    Row("connections.max.idle.ms", _LONG, str(CONNECTIONS_IDLE_MS_MAX), "After how long a silent connection ends."),
    Row("connections.max.reauth.ms", _LONG, str(MAX_REAUTH_MS), "When SASL clients authenticate again; 0: never."),
    Row("controller.quota.window.num", _INT, str(WINDOW_COUNT), "Samples of a client's rate of changes."),
    Row("controller.quota.window.size.seconds", _INT, str(WINDOW_MS // 1000), "How long each of them is."),
    Row("controlled.shutdown.timeout.ms", _LONG, str(CONTROLLED_SHUTDOWN_TIMEOUT_MS), "How long a stop hands over."),
    Row("fetch.max.bytes", _INT, str(FETCH_BYTES_MAX), "The most that one fetch is answered with."),
    Row("leader.imbalance.check.interval.seconds", _LONG, "300", "How often the controller looks at leaderships."),
    Row("leader.imbalance.per.broker.percentage", _INT, "10", "The imbalance of a broker that is left alone."),
    Row("log.cleaner.enable", _BOOLEAN, "true", "Whether compacted topics are cleaned."),
    Row("log.dirs", _LIST, None, "Where this broker keeps its logs."),
    Row("log.retention.check.interval.ms", _LONG, str(RETENTION_INTERVAL_MS), "How often old segments are looked for."),
    Row("log.retention.hours", _INT, "168", "As `log.retention.ms`, which goes before it."),
    Row("log.retention.minutes", _INT, None, "As `log.retention.ms`, which goes before it."),
    Row("max.connection.creation.rate", _INT, str(CREATIONS_PER_S_MAX), "New connections a second, on this broker."),
    Row(
        "max.connection.creation.rate.per.instance",
        _INT,
        str(CREATIONS_PER_INSTANCE_PER_S_MAX),
        "New connections a second of one instance here; more wait.",
    ),
    Row("max.connections", _INT, str(CONNECTIONS_MAX), "The most connections of this broker."),
    Row("max.connections.per.instance", _INT, str(CONNECTIONS_PER_INSTANCE_MAX), "The most of one instance here."),
    Row("max.connections.per.ip", _INT, str(CONNECTIONS_PER_ADDRESS_MAX), "The most of one instance from an address."),
    Row("offset.metadata.max.bytes", _INT, "4096", "The longest text beside a committed offset."),
    Row("offsets.commit.timeout.ms", _INT, "5000", "How long a commit waits for its replicas."),
    Row("offsets.retention.check.interval.ms", _LONG, "600000", "How often old offsets are looked for."),
    Row("offsets.retention.minutes", _INT, "10080", "How long the offsets of an empty group are kept."),
    Row("offsets.topic.num.partitions", _INT, "50", "Partitions of the topic of offsets."),
    Row("offsets.topic.replication.factor", _SHORT, "3", "Replicas of the topic of offsets."),
    Row("offsets.topic.segment.bytes", _INT, "16777216", "Bytes of a segment of the topic of offsets."),
    Row(
        CONSUMER_DEFAULT_KEY,
        _LONG,
        str(BYTES_PER_S_MAX),
        f"With `{PROFILE_KEY}={SEED}`: bytes a second of each client id without a quota.",
    ),
    Row(PRODUCER_DEFAULT_KEY, _LONG, str(BYTES_PER_S_MAX), "The same, of what it produces."),
    Row("quota.burst.ms", _LONG, str(BURST_MS), "How long a client may run ahead of its limit; -1: Kafka's window."),
    Row("quota.window.num", _INT, str(WINDOW_COUNT), "Samples over which the rates of clients are measured."),
    Row("quota.window.size.seconds", _INT, str(WINDOW_MS // 1000), "How long each of them is."),
    Row("replica.lag.time.max.ms", _LONG, str(REPLICA_LAG_MS_MAX), "How long a follower may lag and stay in sync."),
    Row("socket.request.max.bytes", _INT, str(FRAME_BYTES_MAX), "The largest request."),
    Row(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _INT,
        "10000",
        "How often transactions that took too long are looked for.",
    ),
    Row("transaction.max.timeout.ms", _INT, "900000", "The longest time a transaction may ask for."),
    Row(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        "3600000",
        "How often transactional ids that nobody uses are looked for.",
    ),
    Row("transaction.state.log.min.isr", _INT, "2", "Replicas in sync that a transaction's state needs."),
    Row("transaction.state.log.num.partitions", _INT, "50", "Partitions of the topic of transactions."),
    Row("transaction.state.log.replication.factor", _SHORT, "3", "Replicas of the topic of transactions."),
    Row("transaction.state.log.segment.bytes", _INT, "16777216", "Bytes of a segment of the topic of transactions."),
    Row("transactional.id.expiration.ms", _INT, "604800000", "How long a transactional id that nobody uses is known."),
)
