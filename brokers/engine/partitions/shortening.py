"""Early retention for an instance that is nearly full: deletes the oldest segments of a log (decision 114)."""

from __future__ import annotations

from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.storage.files import StorageFailed


def delete_oldest(table: PartitionTable, partition: Partition, count: int, now_ms: int) -> bool:
    """Deletes `count` of the oldest segments of a partition led here, and notifies its followers at once.

    Returns False if the disk failed.
    """
    try:
        deleted_paths = partition.log.delete_oldest(count)
    except StorageFailed as failure:
        table.storage_failed(failure)
        return False
    table.remove_later(partition, deleted_paths, now_ms)
    if partition.leadership is not None:
        for fetch in tuple(partition.leadership.fetches):
            fetch.on_start(partition)
    return True


def close_active(table: PartitionTable, partition: Partition, now_ms: int) -> None:
    """Rolls the active segment, so that its records can be deleted."""
    try:
        partition.log.roll(now_ms)
    except StorageFailed as failure:
        table.storage_failed(failure)
