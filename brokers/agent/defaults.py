"""Broker settings derived from the size of the cluster; settings of the operator have precedence."""

from __future__ import annotations

from brokers.contract import usage_columns
from brokers.contract.usage import RECORD_VERSION_SETTING

# Kafka's default replication factor of the state topics, used if there are enough brokers.
STATE_REPLICAS_MAX = 3


def cluster_defaults(brokers: int) -> dict[str, str]:
    """Returns the default settings of a broker; `brokers` is the size of its cluster, including that broker."""
    replicas = str(max(1, min(brokers, STATE_REPLICAS_MAX)))
    return {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        # The version of usage records that this version's pipeline reads.
        RECORD_VERSION_SETTING: str(usage_columns.VERSION),
    }
