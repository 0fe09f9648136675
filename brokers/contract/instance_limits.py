"""What one instance may keep in ZooKeeper and how fast it may change it, whichever door it uses. Pure.

ZooKeeper holds all of it in memory, for all instances together: `config/embedded/zookeeper_heap.py` computes the heap
from these numbers.
"""

from __future__ import annotations

import json
from typing import Final

# Of a user's or client's name as it stands in ZooKeeper: what is not a letter, digit, `-`, `_` or `.` takes three bytes
# for each byte of UTF-8.
QUOTA_NAME_BYTES_MAX: Final = 255
# Whom an instance may have client quotas for.
QUOTA_ENTITIES_MAX: Final = 1_000
# What all client quotas of an instance weigh.
QUOTA_BYTES_MAX: Final = 256 * 1024

# What one user of an instance weighs, with two secrets under both mechanisms, and all of them together.
USER_BYTES_MAX: Final = 4 * 1024
USERS_BYTES_MAX: Final = 800 * 1024

# Of one value of a topic's configuration, and of all that one topic sets.
CONFIG_VALUE_BYTES_MAX: Final = 1_024
TOPIC_CONFIG_BYTES_MAX: Final = 8 * 1024

# What all documents of an instance's topics weigh: so much for itself and so much for each partition of its plan.
DOCUMENT_BYTES_BASE: Final = 256 * 1024
DOCUMENT_BYTES_PER_PARTITION: Final = 3 * 1024

# Consumers of before 0.8.2 keep offsets in ZooKeeper: what the name of a group may take, and all of an instance weigh.
OLD_GROUP_BYTES_MAX: Final = 255
OLD_OFFSETS_BYTES_MAX: Final = 256 * 1024

# What weighs is paths and documents, in bytes, and so much more for each node.
NODE_BYTES: Final = 100

# Changes that one instance makes through one broker: partitions made, added or deleted, topics' configurations, client
# quotas, users and access control entries changed. So many a second in the long run, and so many at once after a pause.
CHANGES_PER_S_MAX: Final = 50
CHANGES_BURST: Final = 5_000


def document_bytes_max(partitions_max: int) -> int:
    """What all documents of an instance of this plan may weigh."""
    return DOCUMENT_BYTES_BASE + DOCUMENT_BYTES_PER_PARTITION * partitions_max


def encoded_bytes(text: str) -> int:
    """Of a text within a document: JSON writes what is not ASCII as six bytes or twelve."""
    return len(text) if text.isascii() and text.isprintable() else len(json.dumps(text)) - 2
