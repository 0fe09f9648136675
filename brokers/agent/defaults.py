"""Broker keys that follow from the cluster: what the operator set for a broker goes before them."""

from __future__ import annotations

# As many copies of what coordinators remember as Kafka keeps, where there are so many brokers.
STATE_REPLICAS_MAX = 3


def cluster_defaults(brokers: int) -> dict[str, str]:
    """For a broker of a cluster that has so many, one that starts included."""
    replicas = str(max(1, min(brokers, STATE_REPLICAS_MAX)))
    return {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
    }
