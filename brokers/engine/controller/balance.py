"""Automatic election of preferred leaders (REP-31). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from brokers.contract.partitions import NO_LEADER
from brokers.engine.cluster.controller_epoch import StateWrite
from brokers.engine.cluster.image import PartitionImage, TopicImage
from brokers.engine.controller.partition_states import ElectionContext, preferred_state


def preferred_writes(
    topics: Iterable[TopicImage], context: ElectionContext, *, imbalance_percent_max: int
) -> list[StateWrite]:
    """Returns the writes that elect preferred leaders, for brokers whose imbalance is above the maximum.

    Imbalance of a broker: the percentage of partitions led by another broker among those of which it is first replica.
    Partitions without a leader are not counted as led by another broker.
    """
    preferred: dict[int, int] = {}
    led_by_others: dict[int, list[tuple[TopicImage, PartitionImage]]] = {}
    for topic in topics:
        if topic.deleting:
            continue
        for partition in topic.partitions:
            first = partition.replicas[0]
            preferred[first] = preferred.get(first, 0) + 1
            if partition.leader not in (first, NO_LEADER):
                led_by_others.setdefault(first, []).append((topic, partition))
    writes: list[StateWrite] = []
    for broker, partitions in led_by_others.items():
        if not context.is_eligible(broker) or len(partitions) * 100 <= imbalance_percent_max * preferred[broker]:
            continue
        for topic, partition in partitions:
            document = preferred_state(partition, context)
            if document is not None:
                writes.append(
                    StateWrite(topic.name, partition.index, document, partition.version, identity=topic.identity)
                )
    return writes
