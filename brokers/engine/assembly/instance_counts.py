"""Counts of instances for the admin port and for usage reports: connections, authentications, storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict

from brokers.engine.assembly.storage_capacity import StorageCapacity
from brokers.engine.assembly.storage_shortening import StorageShortening
from brokers.engine.assembly.storage_use import InstanceStorage
from brokers.engine.handlers.authentication import Authentication
from brokers.engine.network.admission import REFUSALS
from brokers.engine.network.closing import REASONS
from brokers.engine.network.listener import Listeners
from brokers.engine.network.listener_group import ListenerGroup
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.telemetry.metrics import Sample
from brokers.engine.throttling.levels import InstanceLevels


def take_levels(
    instance_ids: Iterable[str], use: InstanceStorage, groups: Iterable[ListenerGroup]
) -> dict[str, InstanceLevels]:
    """Returns the levels of the instances, and resets the peaks of connections to the number of open ones."""
    peaks = {group.name: group.pop_connections_peak() for group in groups}
    return {
        instance_id: InstanceLevels(
            stored_bytes=use.bytes_by_instance.get(instance_id, 0),
            partitions=use.led_partition_count(instance_id),
            connections=peaks.get(instance_id, 0),
        )
        for instance_id in instance_ids
    }


def authentications_by_instance(authentication: Authentication) -> dict[str, dict[str, int]]:
    """Returns the counters of all instances with authentication attempts."""
    return {instance_id: asdict(counts) for instance_id, counts in authentication.counts()}


def authentication_samples(authentication: Authentication) -> Iterator[Sample]:
    help_text = "Authentications of an instance's clients: succeeded, failed, or refused after too many failures."
    for instance_id, counts in authentications_by_instance(authentication).items():
        for result, count in counts.items():
            labels = (("instance", instance_id), ("result", result))
            yield Sample("penstock_broker_authentications", "counter", help_text, count, labels)


def connections_by_instance(listeners: Listeners) -> dict[str, int]:
    """Returns the number of connections of each instance that has any."""
    return {group.name: group.count for group in listeners.groups() if group.count}


def connection_samples(listeners: Listeners) -> Iterator[Sample]:
    counters = listeners.counters
    help_text = "Open connections of an instance, by its id."
    for name, count in sorted(connections_by_instance(listeners).items()):
        yield Sample("penstock_broker_connections_of_instance", "gauge", help_text, count, (("instance", name),))
    yield Sample("penstock_broker_connections_accepted", "counter", "Connections accepted.", counters.accepted)
    help_text = (
        "Connections refused: no list admits it, an instance, address, route or broker has all, or it came too fast."
    )
    for cause in REFUSALS:
        count = counters.refused.get(cause, 0)
        yield Sample("penstock_broker_connections_refused", "counter", help_text, count, (("cause", cause),))
    help_text = "Connections that lost their place, by the reason."
    for reason in REASONS:
        count = counters.ended.get(reason, 0)
        yield Sample("penstock_broker_connections_ended", "counter", help_text, count, (("reason", reason),))
    help_text = "Pauses in which an instance's new connections were not accepted because there were many."
    yield Sample("penstock_broker_accept_pauses", "counter", help_text, counters.paced)
    help_text = "Bytes of requests that are not whole or not processed yet."
    yield Sample("penstock_broker_unread_bytes", "gauge", help_text, listeners.unread_bytes)
    help_text = "Bytes of memory of answers that their clients have not read."
    yield Sample("penstock_broker_unsent_bytes", "gauge", help_text, listeners.unsent_bytes)


def storage_samples(storage: StorageCapacity, shortening: StorageShortening, table: PartitionTable) -> Iterator[Sample]:
    help_text = "Partitions whose Produce was refused because storage was exhausted, by cause."
    causes = (
        ("storage_bought", storage.refused_count),
        ("disk_nearly_full", sum(disk.refused_count for disk in table.disks.values())),
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
