"""Limits on an instance's data in ZooKeeper and on the rate of its changes, over all interfaces. Pure.

ZooKeeper keeps the data of all instances in memory; `config/embedded/zookeeper_heap.py` computes its heap from these
numbers.
"""

from __future__ import annotations

import json
from typing import Final

# Length of a user's or client's name as encoded in ZooKeeper: other characters than letters, digits, `-`, `_` and `.`
# take three bytes for each byte of UTF-8.
QUOTA_NAME_BYTES_MAX: Final = 255
# Entities with client quotas of an instance.
QUOTA_ENTITIES_MAX: Final = 1_000
# Weight of all client quotas of an instance.
QUOTA_BYTES_MAX: Final = 256 * 1024

# Weight of one user of an instance, with two secrets for both mechanisms, and of all its users.
USER_BYTES_MAX: Final = 4 * 1024
USERS_BYTES_MAX: Final = 800 * 1024

# Length of one value of a topic's configuration, and of all values of one topic.
CONFIG_VALUE_BYTES_MAX: Final = 1_024
TOPIC_CONFIG_BYTES_MAX: Final = 8 * 1024

# Weight of all documents of an instance's topics: a base, and an amount for each partition of its plan.
DOCUMENT_BYTES_BASE: Final = 256 * 1024
DOCUMENT_BYTES_PER_PARTITION: Final = 3 * 1024

# Consumers before 0.8.2 store offsets in ZooKeeper: length of a group's name, and weight of all offsets of an instance.
OLD_GROUP_BYTES_MAX: Final = 255
OLD_OFFSETS_BYTES_MAX: Final = 256 * 1024

# The weight is the total size of paths and documents plus this for each node.
NODE_BYTES: Final = 100

# Changes of one instance through one broker: partitions that are created, added or deleted, and changes of topic
# configurations, client quotas, users and ACLs. Long-term rate, and burst after a pause.
CHANGES_PER_S_MAX: Final = 50
CHANGES_BURST: Final = 5_000


def document_bytes_max(partitions_max: int) -> int:
    """Returns the maximum weight of an instance's topic documents for a plan of `partitions_max` partitions."""
    return DOCUMENT_BYTES_BASE + DOCUMENT_BYTES_PER_PARTITION * partitions_max


def encoded_bytes(text: str) -> int:
    """Returns the length of a string in JSON, which encodes other characters than ASCII in six or twelve bytes."""
    return len(text) if text.isascii() and text.isprintable() else len(json.dumps(text)) - 2
