"""What comes round for every partition, one in each piece: between two pieces partitions may come and go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from brokers.contract.partitions import PartitionKey
from brokers.engine.partitions.partition import Partition

Partitions = Mapping[PartitionKey, Partition]


def still_held(partitions: Partitions) -> Iterator[Partition]:
    """All of them, without those that are gone by the time it is their turn."""
    for key, partition in tuple(partitions.items()):
        if partitions.get(key) is partition:
            yield partition


def expire_producers(partitions: Partitions, now_ms: int) -> Iterator[None]:
    for partition in still_held(partitions):
        partition.log.producers.expire(now_ms)
        yield


def rest_logs(partitions: Partitions) -> Iterator[None]:
    """Logs whose files were closed let go of what they do not need until they are used again."""
    for partition in still_held(partitions):
        if partition.log.active.file.fd < 0:
            partition.log.rest()
        else:
            partition.log.rest_closed()
        yield
