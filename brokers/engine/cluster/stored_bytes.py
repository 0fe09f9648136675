"""Size of the documents of an instance's topics in ZooKeeper (`instance_limits.NODE_BYTES`). Pure.

Documents of partitions count with their maximum length, so that existing topics never grow beyond the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from brokers.contract import instance_limits
from instances import naming

# /brokers/topics/<t>, its id, its parent of partitions, and /config/topics/<t>, without the topic's name.
NODES_PER_TOPIC: Final = 4
TOPIC_BYTES: Final = 250 + NODES_PER_TOPIC * instance_limits.NODE_BYTES
# A partition and its state: two paths, and the state with its leader.
NODES_PER_PARTITION: Final = 2
PARTITION_BYTES: Final = 130 + NODES_PER_PARTITION * instance_limits.NODE_BYTES
# A broker id in the assignment, one in the ISR, and its broker epoch.
REPLICA_BYTES: Final = 40
# The document of a topic with a hashed name, and the overhead of a setting.
OWNER_BYTES: Final = 100 + instance_limits.NODE_BYTES
ITEM_BYTES: Final = 6


def of_topic(internal_name: str, user_name: str, config: Mapping[str, str], partitions: int, replicas: int) -> int:
    """Returns the size of a topic without its allow-lists, which have their own limit (`instances.topics.limits`).

    `replicas` is the total of all partitions.
    """
    return _of_names(internal_name, user_name) + of_config(config) + of_partitions(internal_name, partitions, replicas)


def of_partitions(internal_name: str, partitions: int, replicas: int) -> int:
    """Returns the size of partitions with `replicas` in total."""
    return partitions * (PARTITION_BYTES + NODES_PER_PARTITION * len(internal_name)) + REPLICA_BYTES * replicas


def of_config(config: Mapping[str, str]) -> int:
    """Returns the size of a topic's settings."""
    return sum(len(key) + instance_limits.encoded_bytes(value) + ITEM_BYTES for key, value in config.items())


def _of_names(internal_name: str, user_name: str) -> int:
    size_bytes = TOPIC_BYTES + NODES_PER_TOPIC * len(internal_name)
    if naming.plain_topic(internal_name) is None:
        size_bytes += OWNER_BYTES + len(internal_name) + len(user_name)
    return size_bytes
