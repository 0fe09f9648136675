"""Default settings: the state topics, limits and intervals are Kafka's (GRP-2, TXN-1)."""

from __future__ import annotations

import pytest

from brokers.engine.coordinators.settings import from_overrides
from brokers.engine.errors import SettingsWrong

SEGMENT = {"segment.bytes": "16777216", "cleanup.policy": "compact", "compression.type": "producer"}


def test_groups_are_kept_in_fifty_compacted_partitions_of_three_replicas() -> None:
    topic = from_overrides({}).groups_topic

    assert (topic.name, topic.partitions, topic.replication_factor) == ("__consumer_offsets", 50, 3)
    assert topic.config == SEGMENT


def test_transactions_are_kept_where_one_replica_may_be_lost_and_no_record() -> None:
    topic = from_overrides({}).transactions_topic

    assert (topic.name, topic.partitions, topic.replication_factor) == ("__transaction_state", 50, 3)
    assert topic.config == {**SEGMENT, "min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


def test_limits_and_intervals_are_kafkas() -> None:
    """GRP-7, GRP-9, GRP-21, GRP-22, GRP-26, TXN-5, TXN-17, TXN-18, TXN-27."""
    settings = from_overrides({})
    groups, transactions = settings.groups, settings.transactions

    assert settings.commit_timeout_ms == 5_000
    assert (groups.session_timeout_ms_min, groups.session_timeout_ms_max) == (6_000, 1_800_000)
    assert (groups.initial_rebalance_delay_ms, groups.metadata_bytes_max) == (3_000, 4_096)
    assert (groups.retention_ms, groups.retention_check_interval_ms) == (10_080 * 60_000, 600_000)
    assert (transactions.timeout_ms_max, transactions.timeout_check_interval_ms) == (900_000, 10_000)
    assert transactions.id_expiration_ms == 604_800_000
    assert transactions.id_expiration_check_interval_ms == 3_600_000
    assert transactions.verifies_partitions


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("offsets.topic.num.partitions", "0"),
        ("transaction.state.log.min.isr", "two"),
        ("transaction.partition.verification.enable", "perhaps"),
        ("group.min.session.timeout.ms", "1800001"),
        ("group.max.session.timeout.ms", "5999"),
    ],
)
def test_an_invalid_value_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(SettingsWrong, match=key):
        from_overrides({key: value})
