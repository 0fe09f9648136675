"""Heap size of the embedded ZooKeeper, sufficient for all instances of one machine. Pure."""

from __future__ import annotations

from math import ceil
from typing import Final

from brokers.contract import instance_limits
from brokers.contract.acls import ACL_BYTES_MAX
from instances.topics.limits import ALLOW_LIST_BYTES_MAX

MIB: Final = 1024 * 1024
# Server, sessions, watches, requests in progress, and transaction logs.
BASE_MB: Final = 128
# Heap per counted byte (`instance_limits.NODE_BYTES`), including room for garbage collection; measured by
# tests/component/config/test_zookeeper_heap.py.
HEAP_BYTES_PER_BYTE: Final = 2.5
# Maximum sold by one machine: 1,000 MB/s to instances of the smallest plan, or of those with the most partitions.
INSTANCES_MAX: Final = 200
PARTITIONS_MAX: Final = 15_000


def bytes_allowed(instances: int, partitions: int) -> int:
    """Returns the bytes that this number of instances may store in ZooKeeper with this number of partitions
    in total.
    """
    per_instance = (
        instance_limits.DOCUMENT_BYTES_BASE
        + instance_limits.QUOTA_BYTES_MAX
        + instance_limits.USERS_BYTES_MAX
        + instance_limits.OLD_OFFSETS_BYTES_MAX
        + ALLOW_LIST_BYTES_MAX
        + ACL_BYTES_MAX
    )
    return instances * per_instance + partitions * instance_limits.DOCUMENT_BYTES_PER_PARTITION


def heap_mb(instances: int = INSTANCES_MAX, partitions: int = PARTITIONS_MAX) -> int:
    return BASE_MB + ceil(bytes_allowed(instances, partitions) * HEAP_BYTES_PER_BYTE / MIB)
