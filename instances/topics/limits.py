"""Limits of topics. Brokers enforce them, and the control plane publishes them at `/limits`. Pure."""

from __future__ import annotations

from typing import Final

PARTITIONS_PER_TOPIC_MAX: Final = 1_000
# More replicas make every acknowledgement slower, and nothing safer in a cluster that replaces its brokers.
REPLICATION_FACTOR_MAX: Final = 3
# Size of an instance's allow-lists in ZooKeeper, deleted topics included: `ALLOW_LIST_BYTES_PER_TOPIC` for each topic,
# and its addresses.
ALLOW_LIST_BYTES_MAX: Final = 512 * 1024
ALLOW_LIST_BYTES_PER_TOPIC: Final = 400
