"""Aborted transactions that are returned with the records of a read_committed fetch (TXN-21)."""

from __future__ import annotations

from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import Uncached
from brokers.engine.records import error_codes
from brokers.engine.storage.files import FileSlice, NotCached, StorageFailed
from brokers.engine.storage.transactions import aborted_within

# (topic key, partition index) → (producer id, first offset) of aborted transactions.
AbortedByPartition = dict[tuple[bytes, int], list[tuple[int, int]]]


def list_aborted(
    listed: AbortedByPartition, key: bytes, partition: Partition, offset: int, records: FileSlice, wait: bool
) -> tuple[int, FileSlice | None, Uncached | None]:
    """Adds the aborted transactions for `records`, read from `offset` on, to `listed`.

    Returns (error code, records, uncached file) as a read does. If the list cannot be read, `records` are released.
    """
    try:
        listed[key, partition.index] = aborted_within(partition.log, offset, records, wait)
    except NotCached as missing:
        records.release()
        return error_codes.NONE, None, missing.uncached
    except StorageFailed as failure:
        records.release()
        partition.storage_failed(failure)
        return error_codes.KAFKA_STORAGE_ERROR, None, None
    return error_codes.NONE, records, None
