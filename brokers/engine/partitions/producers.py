"""Producers of a partition, for DescribeProducers, and their aborted transactions, which are returned with the records
of a read_committed fetch (TXN-21).
"""

from __future__ import annotations

from typing import NamedTuple

from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import Uncached
from brokers.engine.records import error_codes
from brokers.engine.storage.files import FileSlice, NotCached, StorageFailed
from brokers.engine.storage.producer_state import NO_SEQUENCE
from brokers.engine.storage.transactions import find_aborted

# (topic key, partition index) → (producer id, first offset) of aborted transactions.
AbortedByPartition = dict[tuple[bytes, int], list[tuple[int, int]]]


class KnownProducer(NamedTuple):
    """State of one producer.

    `transaction_first_offset` is -1 without an open transaction, and `last_sequence` is -1 if it wrote no data.
    """

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


def known_producers(partition: Partition) -> list[KnownProducer]:
    return [
        KnownProducer(
            producer_id,
            entry.epoch,
            entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
            entry.transaction_first_offset,
        )
        for producer_id, entry in partition.log.producers.producers.items()
    ]


def list_aborted(
    listed: AbortedByPartition, key: bytes, partition: Partition, offset: int, records: FileSlice, may_wait: bool
) -> tuple[int, FileSlice | None, Uncached | None]:
    """Adds the aborted transactions for `records`, read from `offset` on, to `listed`.

    Returns (error code, records, uncached file) as a read does. If the list cannot be read, `records` are released.
    """
    try:
        listed[key, partition.index] = find_aborted(partition.log, offset, records, may_wait)
    except NotCached as missing:
        records.release()
        return error_codes.NONE, None, missing.uncached
    except StorageFailed as failure:
        records.release()
        partition.on_storage_failure(failure)
        return error_codes.KAFKA_STORAGE_ERROR, None, None
    return error_codes.NONE, records, None
