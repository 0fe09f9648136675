"""Metrics of exhausted storage: refused produces, and records that were deleted early."""

from __future__ import annotations

from collections.abc import Iterator

from brokers.engine.assembly.storage_capacity import StorageCapacity
from brokers.engine.assembly.storage_shortening import StorageShortening
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.telemetry.metrics import Sample


def storage_samples(storage: StorageCapacity, shortening: StorageShortening, table: PartitionTable) -> Iterator[Sample]:
    text = "Produces to partitions that were refused for want of storage, by cause."
    causes = (
        ("storage_bought", storage.refused),
        ("disk_nearly_full", sum(disk.refused for disk in table.disks.values())),
    )
    for cause, count in causes:
        yield Sample("penstock_broker_storage_refusals", "counter", text, count, (("cause", cause),))
    text = "Instances whose storage is used up."
    yield Sample("penstock_broker_full_instances", "gauge", text, len(storage.full_instances()))
    text = "Segments that were deleted before their time because an instance was nearly full."
    yield Sample("penstock_broker_shortened_segments", "counter", text, shortening.segments)
    text = "Bytes of these segments, of all replicas."
    yield Sample("penstock_broker_shortened_bytes", "counter", text, shortening.freed_bytes)
    text = "Log directories whose volume has less free than the floor."
    yield Sample("penstock_broker_nearly_full_log_directories", "gauge", text,
                 sum(disk.is_short for disk in table.disks.values()))  # fmt: skip
