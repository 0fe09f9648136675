"""Settings of the coordinators: broker-level keys with Kafka's names and, except as noted, its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from brokers.engine.errors import SettingsWrong

GROUPS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
# Kafka's default is 104,857,600. The active segment is not compacted, so records that tenants overwrite again and again
# take up to this much disk in each partition before compaction removes any of them.
SEGMENT_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTopic:
    """Definition of a state topic, which is created when it is first needed (GRP-2, TXN-1).

    It is not created while fewer than `replication_factor` brokers are alive; until then there is no coordinator.
    """

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Settings of the group coordinator (GRP-7, GRP-9, GRP-21, GRP-22, GRP-26)."""

    initial_rebalance_delay_ms: int = 3_000
    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    # Kafka has no limit by default; a tenant's group needs one.
    members_max: int = 1_000
    metadata_bytes_max: int = 4_096
    retention_ms: int = 7 * 86_400_000
    retention_check_interval_ms: int = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """Settings of the transaction coordinator (TXN-5, TXN-17, TXN-18, TXN-27)."""

    timeout_ms_max: int = 900_000
    timeout_check_interval_ms: int = 10_000
    id_expiration_ms: int = 604_800_000
    id_expiration_check_interval_ms: int = 3_600_000
    verifies_partitions: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """Settings of both coordinators, and the definitions of their state topics."""

    groups_topic: StateTopic
    transactions_topic: StateTopic
    commit_timeout_ms: int = 5_000
    groups: GroupSettings = field(default_factory=GroupSettings)
    transactions: TransactionSettings = field(default_factory=TransactionSettings)


def from_overrides(overrides: Mapping[str, str]) -> CoordinatorSettings:
    """Returns the coordinators' settings that a broker's keys contain, with defaults for those that are absent.

    Raises:
        SettingsWrong: a value is invalid.
    """

    def read_number(key: str, default: int, minimum: int = 1) -> int:
        return _read_number(overrides, key, default, minimum)

    transactions = TransactionSettings()
    return CoordinatorSettings(
        groups_topic=StateTopic(
            name=GROUPS_TOPIC,
            partitions=read_number("offsets.topic.num.partitions", 50),
            replication_factor=read_number("offsets.topic.replication.factor", 3),
            config=_topic_config(read_number("offsets.topic.segment.bytes", SEGMENT_BYTES)),
        ),
        transactions_topic=StateTopic(
            name=TRANSACTIONS_TOPIC,
            partitions=read_number("transaction.state.log.num.partitions", 50),
            replication_factor=read_number("transaction.state.log.replication.factor", 3),
            config={
                **_topic_config(read_number("transaction.state.log.segment.bytes", SEGMENT_BYTES)),
                "min.insync.replicas": str(read_number("transaction.state.log.min.isr", 2)),
                "unclean.leader.election.enable": "false",
            },
        ),
        commit_timeout_ms=read_number("offsets.commit.timeout.ms", 5_000),
        groups=group_settings(overrides),
        transactions=TransactionSettings(
            timeout_ms_max=read_number("transaction.max.timeout.ms", transactions.timeout_ms_max),
            timeout_check_interval_ms=read_number(
                "transaction.abort.timed.out.transaction.cleanup.interval.ms", transactions.timeout_check_interval_ms
            ),
            id_expiration_ms=read_number("transactional.id.expiration.ms", transactions.id_expiration_ms),
            id_expiration_check_interval_ms=read_number(
                "transaction.remove.expired.transaction.cleanup.interval.ms",
                transactions.id_expiration_check_interval_ms,
            ),
            verifies_partitions=verifies_partitions(overrides),
        ),
    )


def group_settings(overrides: Mapping[str, str]) -> GroupSettings:
    """Returns the group settings that a broker's keys contain, with defaults for those that are absent.

    Raises:
        SettingsWrong: a value is invalid, or the smallest session timeout is above the largest.
    """

    def read_number(key: str, default: int, minimum: int = 1) -> int:
        return _read_number(overrides, key, default, minimum)

    defaults = GroupSettings()
    result = GroupSettings(
        initial_rebalance_delay_ms=read_number(
            "group.initial.rebalance.delay.ms", defaults.initial_rebalance_delay_ms, minimum=0
        ),
        session_timeout_ms_min=read_number("group.min.session.timeout.ms", defaults.session_timeout_ms_min),
        session_timeout_ms_max=read_number("group.max.session.timeout.ms", defaults.session_timeout_ms_max),
        members_max=read_number("group.max.size", defaults.members_max),
        metadata_bytes_max=read_number("offset.metadata.max.bytes", defaults.metadata_bytes_max, minimum=0),
        retention_ms=read_number("offsets.retention.minutes", defaults.retention_ms // 60_000) * 60_000,
        retention_check_interval_ms=read_number(
            "offsets.retention.check.interval.ms", defaults.retention_check_interval_ms
        ),
    )
    if result.session_timeout_ms_min > result.session_timeout_ms_max:
        raise SettingsWrong(
            f"group.min.session.timeout.ms ({result.session_timeout_ms_min}) is above "
            f"group.max.session.timeout.ms ({result.session_timeout_ms_max})"
        )
    return result


def verifies_partitions(overrides: Mapping[str, str]) -> bool:
    """True if transactional records are accepted only on partitions that were added to the transaction.

    Raises:
        SettingsWrong: the value is neither true nor false.
    """
    return _read_flag(overrides, "transaction.partition.verification.enable", True)


def _topic_config(segment_bytes: int) -> dict[str, str]:
    return {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes), "compression.type": "producer"}


def _read_number(overrides: Mapping[str, str], key: str, default: int, minimum: int) -> int:
    text = overrides.get(key, str(default))
    try:
        value = int(text)
    except ValueError:
        raise SettingsWrong(f"{key} is not a whole number: {text!r}") from None
    if value < minimum:
        raise SettingsWrong(f"{key} must be at least {minimum}, not {value}")
    return value


def _read_flag(overrides: Mapping[str, str], key: str, default: bool) -> bool:
    word = overrides.get(key, str(default)).strip().lower()
    if word not in ("true", "false"):
        raise SettingsWrong(f"{key} is neither true nor false: {word!r}")
    return word == "true"
