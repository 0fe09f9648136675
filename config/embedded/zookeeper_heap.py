"""How much memory the embedded ZooKeeper gets: enough for what all instances of one machine may put into it. Pure."""

from __future__ import annotations

from math import ceil
from typing import Final

from brokers.contract import instance_limits
from brokers.contract.acls import ACL_BYTES_MAX
from instances.topics.limits import ALLOW_LIST_BYTES_MAX

MIB: Final = 1024 * 1024
# The server itself, its sessions and watches, what is being read and written, and the logs of changes.
BASE_MB: Final = 128
# What a byte that weighs (`instance_limits.NODE_BYTES`) takes of the heap, with room for its collector; measured by
# tests/component/config/test_zookeeper_heap.py.
HEAP_BYTES_PER_BYTE: Final = 2.5
# What one machine sells at most: 1,000 MB/s to instances of the smallest plan, or of those with the most partitions.
INSTANCES_MAX: Final = 200
PARTITIONS_MAX: Final = 15_000


def bytes_allowed(instances: int, partitions: int) -> int:
    """What so many instances may put into ZooKeeper, when all of them together may have so many partitions."""
    each = (
        instance_limits.DOCUMENT_BYTES_BASE
        + instance_limits.QUOTA_BYTES_MAX
        + instance_limits.USERS_BYTES_MAX
        + instance_limits.OLD_OFFSETS_BYTES_MAX
        + ALLOW_LIST_BYTES_MAX
        + ACL_BYTES_MAX
    )
    return instances * each + partitions * instance_limits.DOCUMENT_BYTES_PER_PARTITION


def heap_mb(instances: int = INSTANCES_MAX, partitions: int = PARTITIONS_MAX) -> int:
    return BASE_MB + ceil(bytes_allowed(instances, partitions) * HEAP_BYTES_PER_BYTE / MIB)
