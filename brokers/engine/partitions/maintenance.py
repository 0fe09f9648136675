"""Periodic maintenance of all partitions, one partition per step: partitions may be added and removed between steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from brokers.contract.partitions import PartitionKey
from brokers.engine.partitions.partition import Partition

Partitions = Mapping[PartitionKey, Partition]


def existing_partitions(partitions: Partitions) -> Iterator[Partition]:
    """Yields all partitions, except those that are removed before their turn."""
    for key, partition in tuple(partitions.items()):
        if partitions.get(key) is partition:
            yield partition


def expire_producers(partitions: Partitions, now_ms: int) -> Iterator[None]:
    for partition in existing_partitions(partitions):
        partition.log.producers.expire(now_ms)
        yield


def free_idle_memory(partitions: Partitions) -> Iterator[None]:
    """Frees the memory of logs whose files were closed because they are idle."""
    for partition in existing_partitions(partitions):
        if partition.log.active.file.fd < 0:
            partition.log.free_memory()
        else:
            partition.log.free_memory_of_closed_segments()
        yield


def set_keeps_min_isr(partitions: Iterable[Partition], keeps_min_isr: bool) -> None:
    """Sets whether partitions commit nothing while fewer replicas are in sync than their topics require, and then
    commits the records that may be committed.
    """
    for partition in partitions:
        partition.keeps_min_isr = keeps_min_isr
        if partition.is_leader:
            partition.advance_high_watermark()
