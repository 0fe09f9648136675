"""Broker settings derived from the cluster; settings of the operator have precedence."""

from __future__ import annotations

from brokers.contract import usage_columns
from brokers.contract.usage import RECORD_VERSION_SETTING

# Kafka's replication factor of coordinators' topics, if there are enough brokers.
STATE_REPLICAS_MAX = 3


def cluster_defaults(brokers: int) -> dict[str, str]:
    """Returns the defaults of a broker in a cluster of this size, including the starting one."""
    replicas = str(max(1, min(brokers, STATE_REPLICAS_MAX)))
    return {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        # The pipeline of this version reads it.
        RECORD_VERSION_SETTING: str(usage_columns.VERSION),
    }
