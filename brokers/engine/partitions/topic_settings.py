"""Definitions of topic settings (spec N): names, types, defaults, documentation and accepted values.

A tenant may set every key in the list except the read-only ones. Where a value would let one tenant use up the disks of
others, the operator's bound applies instead (`topic_bounds`). Every key in the list is implemented, except keys that
have no effect in Apache Kafka either.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from brokers.engine.partitions.throttled_replicas import is_list_of_replicas
from brokers.engine.records.compression import NAMES as CODECS
from brokers.engine.records.validation import LONG_MAX

INT_MAX: Final = 2**31 - 1
# Settings that Apache Kafka does not have.
PRODUCE_BYTE_RATE: Final = "penstock.produce.byte.rate"
CONSUME_BYTE_RATE: Final = "penstock.consume.byte.rate"
NO_LIMIT: Final = "-1"


class ValueType(IntEnum):
    """Value types, with the numbers of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class Setting:
    """Definition of one setting.

    `broker_key` is the name of the broker-wide default, and `accepts` checks a value of the right type.
    `default_elsewhere` is true if the broker key has no default of its own and falls back to another key
    (`log.retention.ms` to `log.retention.hours`).
    """

    name: str
    type: ValueType
    default: str
    documentation: str
    broker_key: str
    accepts: Callable[[str], bool] = lambda value: True
    read_only: bool = False
    default_elsewhere: bool = False


def _at_least(low: int, high: int = LONG_MAX) -> Callable[[str], bool]:
    return lambda value: low <= int(value) <= high


def _is_rate(value: str) -> bool:
    return value == NO_LIMIT or 1 <= int(value) <= LONG_MAX


def _one_of(*words: str) -> Callable[[str], bool]:
    return lambda value: value in words


# Versions of Apache Kafka, from the first with this setting to the last with ZooKeeper.
_VERSION: Final = re.compile(
    r"(0\.(8\.[0-2]|9\.0|10\.[0-2]|11\.0)|1\.[01]|2\.[0-8]|3\.[0-9])(\.[0-9]+)*(-IV[0-9]+)?", re.ASCII
)


def _is_policy_list(value: str) -> bool:
    """True for a list of policies, also an empty one: then old segments are neither deleted nor compacted."""
    words = [word.strip() for word in value.split(",")] if value else []
    return all(word in ("delete", "compact") for word in words)


_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = (
    ValueType.BOOLEAN,
    ValueType.STRING,
    ValueType.INT,
    ValueType.LONG,
    ValueType.DOUBLE,
    ValueType.LIST,
)

SETTINGS: Final[dict[str, Setting]] = {
    setting.name: setting
    for setting in (
        Setting(
            "cleanup.policy",
            _LIST,
            "delete",
            "Policies for old segments: `delete` removes them by age and size, "
            "`compact` keeps the last value of each key.",
            "log.cleanup.policy",
            _is_policy_list,
        ),
        Setting(
            "compression.type",
            _STRING,
            "producer",
            "Codec of stored batches; `producer` keeps the producer's codec.",
            "compression.type",
            _one_of("producer", *CODECS),
        ),
        Setting(
            "delete.retention.ms",
            _LONG,
            "86400000",
            "Time for which tombstones of a compacted topic stay readable.",
            "log.cleaner.delete.retention.ms",
            _at_least(0),
        ),
        Setting(
            "file.delete.delay.ms",
            _LONG,
            "60000",
            "Time for which the files of a deleted segment stay on disk, so that running reads finish.",
            "log.segment.delete.delay.ms",
            _at_least(0),
        ),
        Setting(
            "flush.messages",
            _LONG,
            str(LONG_MAX),
            "Number of records after which a log is flushed to disk.",
            "log.flush.interval.messages",
            _at_least(1),
        ),
        Setting(
            "flush.ms",
            _LONG,
            str(LONG_MAX),
            "Time after which a log is flushed to disk.",
            "log.flush.interval.ms",
            _at_least(0),
            default_elsewhere=True,
        ),
        Setting(
            "follower.replication.throttled.replicas",
            _LIST,
            "",
            "Replicas, as `partition:broker` or `*` for all, that fetch no faster than their broker's "
            "`follower.replication.throttled.rate`.",
            "follower.replication.throttled.replicas",
            is_list_of_replicas,
            read_only=True,
        ),
        Setting(
            "index.interval.bytes",
            _INT,
            "4096",
            "Bytes of log between two entries of the offset index.",
            "log.index.interval.bytes",
            _at_least(0, INT_MAX),
        ),
        Setting(
            "leader.replication.throttled.replicas",
            _LIST,
            "",
            "Replicas, as `partition:broker` or `*` for all, that get records no faster than their leader's "
            "`leader.replication.throttled.rate` while they are not in sync.",
            "leader.replication.throttled.replicas",
            is_list_of_replicas,
            read_only=True,
        ),
        Setting(
            "max.compaction.lag.ms",
            _LONG,
            str(LONG_MAX),
            "Maximum time for which a record stays uncompacted.",
            "log.cleaner.max.compaction.lag.ms",
            _at_least(1),
        ),
        Setting(
            "max.message.bytes",
            _INT,
            "1048588",
            "Maximum size of a batch in bytes, compressed and with its header.",
            "message.max.bytes",
            _at_least(0, INT_MAX),
        ),
        Setting(
            "message.downconversion.enable",
            _BOOLEAN,
            "true",
            "`true` converts records for clients older than message format 2, which costs the broker CPU time; "
            "`false` refuses such clients.",
            "log.message.downconversion.enable",
        ),
        Setting(
            "message.format.version",
            _STRING,
            "3.0-IV1",
            "Has no effect, as in Apache Kafka from 3.0 on: records are stored in message format 2 in any case.",
            "log.message.format.version",
            lambda value: _VERSION.fullmatch(value) is not None,
        ),
        Setting(
            "message.timestamp.after.max.ms",
            _LONG,
            str(LONG_MAX),
            "Maximum time by which a record's timestamp may be ahead of the broker's clock.",
            "log.message.timestamp.after.max.ms",
            _at_least(0),
        ),
        Setting(
            "message.timestamp.before.max.ms",
            _LONG,
            str(LONG_MAX),
            "Maximum time by which a record's timestamp may be behind the broker's clock.",
            "log.message.timestamp.before.max.ms",
            _at_least(0),
        ),
        Setting(
            "message.timestamp.difference.max.ms",
            _LONG,
            str(LONG_MAX),
            "Sets both timestamp bounds at once; the two separate keys take precedence.",
            "log.message.timestamp.difference.max.ms",
            _at_least(0),
        ),
        Setting(
            "message.timestamp.type",
            _STRING,
            "CreateTime",
            "Source of record timestamps: the producer (CreateTime) or the broker (LogAppendTime).",
            "log.message.timestamp.type",
            _one_of("CreateTime", "LogAppendTime"),
        ),
        Setting(
            "min.cleanable.dirty.ratio",
            _DOUBLE,
            "0.5",
            "Minimum uncompacted share of a log before it is compacted.",
            "log.cleaner.min.cleanable.ratio",
            lambda value: 0 <= float(value) <= 1,
        ),
        Setting(
            "min.compaction.lag.ms",
            _LONG,
            "0",
            "Minimum time for which a record stays uncompacted.",
            "log.cleaner.min.compaction.lag.ms",
            _at_least(0),
        ),
        Setting(
            "min.insync.replicas",
            _INT,
            "1",
            "Number of replicas that must be in sync for acks=all to succeed.",
            "min.insync.replicas",
            _at_least(1, INT_MAX),
        ),
        Setting(
            CONSUME_BYTE_RATE,
            _LONG,
            NO_LIMIT,
            "Maximum bytes per second of batches for all consumers of the topic together; -1 means no limit.",
            CONSUME_BYTE_RATE,
            _is_rate,
        ),
        Setting(
            PRODUCE_BYTE_RATE,
            _LONG,
            NO_LIMIT,
            "Maximum bytes per second of batches from all producers of the topic together; -1 means no limit.",
            PRODUCE_BYTE_RATE,
            _is_rate,
        ),
        Setting(
            "preallocate",
            _BOOLEAN,
            "false",
            "Allocates the full size of a segment at once; only `false` is supported, files grow as they are written.",
            "log.preallocate",
            lambda value: value.lower() == "false",
            read_only=True,
        ),
        Setting(
            "retention.bytes",
            _LONG,
            "-1",
            "Bytes that a partition keeps before its oldest segments are deleted; a negative number means no limit.",
            "log.retention.bytes",
            _at_least(-LONG_MAX - 1),
        ),
        Setting(
            "retention.ms",
            _LONG,
            "604800000",
            "Time for which a partition keeps records before their segments are deleted; -1 means for ever.",
            "log.retention.ms",
            _at_least(-1),
            default_elsewhere=True,
        ),
        Setting(
            "segment.bytes",
            _INT,
            "1073741824",
            "Size in bytes at which a log starts another segment; at least `log.segment.bytes.min` applies.",
            "log.segment.bytes",
            _at_least(14, INT_MAX),
        ),
        Setting(
            "segment.index.bytes",
            _INT,
            "10485760",
            "Maximum size in bytes of a segment's offset index.",
            "log.index.size.max.bytes",
            _at_least(4, INT_MAX),
        ),
        Setting(
            "segment.jitter.ms",
            _LONG,
            "0",
            "Maximum time subtracted from `segment.ms`, different for each partition, so that not all roll at once.",
            "log.roll.jitter.ms",
            _at_least(0),
            default_elsewhere=True,
        ),
        Setting(
            "segment.ms",
            _LONG,
            "604800000",
            "Time after which a log starts another segment.",
            "log.roll.ms",
            _at_least(1),
            default_elsewhere=True,
        ),
        Setting(
            "unclean.leader.election.enable",
            _BOOLEAN,
            "false",
            "`true` allows a replica that lacks records to become the leader if no other can.",
            "unclean.leader.election.enable",
        ),
    )
}
