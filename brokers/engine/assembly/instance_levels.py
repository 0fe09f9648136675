"""Levels of instances on this broker (stored bytes, partitions, connections) for usage reports."""

from __future__ import annotations

from collections.abc import Iterable

from brokers.engine.assembly.storage_use import StorageUse
from brokers.engine.network.listener_group import ListenerGroup
from brokers.engine.throttling.levels import InstanceLevels


def levels_of(
    instance_ids: Iterable[str], use: StorageUse, groups: Iterable[ListenerGroup]
) -> dict[str, InstanceLevels]:
    """Returns the levels of the instances, and resets the peaks of connections to the number of open ones."""
    peaks = {group.name: group.take_peak() for group in groups}
    return {
        instance_id: InstanceLevels(
            stored_bytes=use.bytes_by_instance.get(instance_id, 0),
            partitions=use.partitions_led(instance_id),
            connections=peaks.get(instance_id, 0),
        )
        for instance_id in instance_ids
    }
