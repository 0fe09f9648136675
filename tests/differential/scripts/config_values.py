"""Every key of a topic with values at, around and far from its limits: what is taken and what it is then said to be."""

from __future__ import annotations

from typing import Final

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
)
from tests.differential.play import Player
from tests.differential.scripts.configs import TOPIC, described

PREFIX = "diff.values"
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1

_WHOLE = ("0", "1", "-1", "-2", "", " 5 ", "5.0", "0x10", "1_000", "+7", "seven", "1e3", "007")
_INT = (*_WHOLE, str(INT_MAX), str(INT_MAX + 1), str(LONG_MAX))
_LONG = (*_WHOLE, str(INT_MAX + 1), str(LONG_MAX), str(LONG_MAX + 1))
_BOOLEAN = ("true", "false", "TRUE", "False", " true ", "yes", "1", "")

VALUES: Final[dict[str, tuple[str, ...]]] = {
    "cleanup.policy": (
        "delete",
        "compact",
        "compact,delete",
        "delete, compact",
        "delete,delete",
        "shred",
        "delete,shred",
        "Delete",
        "",
        ",",
        " compact ",
    ),
    "compression.type": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd", "none", "GZIP", "rar", ""),
    "delete.retention.ms": _LONG,
    "file.delete.delay.ms": _LONG,
    "flush.messages": _LONG,
    "flush.ms": _LONG,
    "index.interval.bytes": _INT,
    "max.compaction.lag.ms": _LONG,
    "max.message.bytes": _INT,
    "message.downconversion.enable": _BOOLEAN,
    "message.timestamp.after.max.ms": _LONG,
    "message.timestamp.before.max.ms": _LONG,
    "message.timestamp.difference.max.ms": _LONG,
    "message.timestamp.type": ("CreateTime", "LogAppendTime", "createtime", "Mine", ""),
    "min.cleanable.dirty.ratio": ("0", "1", "0.5", "1.0", "1.01", "-0.1", "half", "", " 0.3 ", "1e-1", "NaN", "5E-2"),
    "min.compaction.lag.ms": _LONG,
    "min.insync.replicas": _INT,
    "retention.bytes": _LONG,
    "retention.ms": _LONG,
    "segment.bytes": (*_INT, "13", "14", "15", "1048576"),
    "segment.index.bytes": (*_INT, "3", "4", "5"),
    "segment.jitter.ms": _LONG,
    "segment.ms": _LONG,
    "unclean.leader.election.enable": _BOOLEAN,
}
# Keys that depend on each other.
TOGETHER: Final[dict[str, dict[str, str]]] = {
    "lags in order": {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "20"},
    "lags crossed": {"min.compaction.lag.ms": "20", "max.compaction.lag.ms": "10"},
    "lags crossed, not compacted": {
        "min.compaction.lag.ms": "20",
        "max.compaction.lag.ms": "10",
        "cleanup.policy": "delete",
    },
    "lags crossed, compacted": {
        "min.compaction.lag.ms": "20",
        "max.compaction.lag.ms": "10",
        "cleanup.policy": "compact",
    },
    "jitter above the time": {"segment.ms": "1000", "segment.jitter.ms": "2000"},
}


def script(player: Player) -> None:
    player.make_topic(PREFIX)
    for key, values in VALUES.items():
        for value in values:
            _try(player, f"{key}={value!r}", {key: value})
    for what, configs in TOGETHER.items():
        _try(player, what, configs)
    _try(player, "nothing", {})
    _defaults(player)


def _try(player: Player, label: str, configs: dict[str, str]) -> None:
    """Replaces the topic's settings and writes down the error and what the keys then are: [value, source]."""
    given = [AlterableConfig(name=key, value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=PREFIX, configs=given)
    request = AlterConfigsRequest(resources=[resource])
    sent = player.call(ApiKey.ALTER_CONFIGS, 2, request).responses[0].error_code
    resources = [described(PREFIX, sorted(configs))]
    lines = player.call(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=resources)).results[0].configs
    values = {line.name: [line.value, line.config_source] for line in lines if line.name in configs}
    # A refused value leaves what the question before it set, which has been written down there.
    player.write_down(label, {"error": sent} if sent else dict(sorted(values.items())))


def _defaults(player: Player) -> None:
    """Describes each key that is not set."""
    for version in range(1, 5):
        request = DescribeConfigsRequest(resources=[described(PREFIX, sorted(VALUES))], include_synonyms=True)
        (result,) = player.call(ApiKey.DESCRIBE_CONFIGS, version, request).results
        for line in sorted(result.configs, key=lambda line: line.name):
            player.write_down(
                f"v{version}: {line.name}",
                {
                    "value": line.value,
                    "source": line.config_source,
                    "read_only": line.read_only,
                    "sensitive": line.is_sensitive,
                    "type": line.config_type,
                    "synonyms": [[synonym.name, synonym.value, synonym.source] for synonym in line.synonyms],
                },
            )
