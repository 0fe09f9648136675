"""Metrics of exhausted storage: refused Produce requests, and records that were deleted early."""

from __future__ import annotations

from collections.abc import Iterator

from brokers.engine.assembly.storage_capacity import StorageCapacity
from brokers.engine.assembly.storage_shortening import StorageShortening
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.telemetry.metrics import Sample


def storage_samples(storage: StorageCapacity, shortening: StorageShortening, table: PartitionTable) -> Iterator[Sample]:
    help_text = "Partitions whose Produce was refused because storage was exhausted, by cause."
    causes = (
        ("storage_bought", storage.refused),
        ("disk_nearly_full", sum(disk.refused for disk in table.disks.values())),
    )
    for cause, count in causes:
        yield Sample("penstock_broker_storage_refusals", "counter", help_text, count, (("cause", cause),))
    help_text = "Instances whose storage is used up."
    yield Sample("penstock_broker_full_instances", "gauge", help_text, len(storage.full_instances()))
    help_text = "Segments deleted before the end of their retention because an instance was nearly full."
    yield Sample("penstock_broker_shortened_segments", "counter", help_text, shortening.segments)
    help_text = "Bytes of segments deleted before the end of their retention, on all replicas."
    yield Sample("penstock_broker_shortened_bytes", "counter", help_text, shortening.freed_bytes)
    help_text = "Log directories whose volume has less free space than the minimum."
    yield Sample("penstock_broker_nearly_full_log_directories", "gauge", help_text,
                 sum(disk.is_short for disk in table.disks.values()))  # fmt: skip
