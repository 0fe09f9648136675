"""What instances have on this broker, for their usage."""

from __future__ import annotations

from collections.abc import Iterable

from brokers.engine.assembly.storage_use import StorageUse
from brokers.engine.network.listener_group import ListenerGroup
from brokers.engine.throttling.levels import InstanceLevels


def levels_of(
    instance_ids: Iterable[str], use: StorageUse, groups: Iterable[ListenerGroup]
) -> dict[str, InstanceLevels]:
    """Takes the peaks of connections: those of the next time begin with what is open now."""
    peaks = {group.name: group.take_peak() for group in groups}
    return {
        instance_id: InstanceLevels(
            stored_bytes=use.bytes_by_instance.get(instance_id, 0),
            partitions=use.partitions_led(instance_id),
            connections=peaks.get(instance_id, 0),
        )
        for instance_id in instance_ids
    }
