"""State topics small enough for a test cluster."""

from __future__ import annotations

REPLICATION_FACTOR_MAX = 3


def coordinator_overrides(brokers: int) -> dict[str, str]:
    """Returns broker settings with which a cluster of this size has coordinators, created without delay."""
    factor = str(min(brokers, REPLICATION_FACTOR_MAX))
    return {
        "offsets.topic.replication.factor": factor,
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
    }
