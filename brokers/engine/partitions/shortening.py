"""Deletes the oldest segments of a log before retention would, for an instance that is nearly full (decision 114)."""

from __future__ import annotations

from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.storage.files import StorageFailed


def delete_oldest(table: PartitionTable, partition: Partition, count: int, now_ms: int) -> bool:
    """So many segments of a partition that is led here, as retention does it; whoever follows hears of it at once.
    Whether its disk allowed it.
    """
    try:
        gone = partition.log.delete_oldest(count)
    except StorageFailed as failure:
        table.storage_failed(failure)
        return False
    table.remove_later(partition, gone, now_ms)
    if partition.leadership is not None:
        for fetch in tuple(partition.leadership.fetches):
            fetch.on_start(partition)
    return True


def close_active(table: PartitionTable, partition: Partition, now_ms: int) -> None:
    """Begins another segment, so that what the active one holds can be deleted."""
    try:
        partition.log.roll(now_ms)
    except StorageFailed as failure:
        table.storage_failed(failure)
