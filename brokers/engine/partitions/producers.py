"""Active producers of a partition, for DescribeProducers."""

from __future__ import annotations

from typing import NamedTuple

from brokers.engine.partitions.partition import Partition
from brokers.engine.storage.producer_state import NO_SEQUENCE


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
