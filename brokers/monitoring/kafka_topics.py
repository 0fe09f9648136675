"""Figures of topics on a Kafka cluster. Gateways know the sizes of the replicas on their brokers, and the upstream
knows topics, leaders, settings and offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from brokers.dataplane import offsets
from brokers.dataplane.topics import KafkaTopicAdminClient
from instances.groups.interfaces import EARLIEST, LATEST
from instances.interfaces import TopicDescription
from tenants.errors import NotFound

_NO_EPOCH: Final = -1


class LogSpan(NamedTuple):
    """First offset of a partition, and the one after its last message."""

    start: int
    end: int


def with_led_partitions(
    instance_id: str, topic: str, bodies: Mapping[int, Mapping[str, Any]]
) -> dict[int, Mapping[str, Any]]:
    """Adds the partitions of one topic to the reports of the gateways whose brokers lead them, in the form of a
    broker's report. Partitions without a known size or offset are left out.
    """
    try:
        description = KafkaTopicAdminClient().topic(instance_id, topic)
    except NotFound:
        return dict(bodies)
    spans = log_spans(instance_id, [description])
    rows: dict[int, list[dict[str, int]]] = {}
    for partition in description.partitions:
        size_bytes = replica_sizes(bodies.get(partition.leader, {}), topic).get(partition.index)
        span = spans.get((topic, partition.index))
        if size_bytes is not None and span is not None:
            row = {
                "partition": partition.index,
                "leader_epoch": _NO_EPOCH,
                "log_start_offset": span.start,
                "high_watermark": span.end,
                "size_bytes": size_bytes,
                "replicas": len(partition.replicas),
            }
            rows.setdefault(partition.leader, []).append(row)
    return {
        number: {**body, "topics": {topic: rows[number]} if number in rows else {}} for number, body in bodies.items()
    }


def replica_sizes(body: Mapping[str, Any], topic: str) -> dict[int, int]:
    """Returns the sizes in bytes of a topic's replicas on one upstream broker, by partition."""
    return {int(index): int(size_bytes) for index, size_bytes in body.get("replicas", {}).get(topic, ())}


def stored_by_topic(bodies: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Returns the bytes of all replicas of each topic."""
    result: dict[str, int] = {}
    for body in bodies:
        for topic, replicas in body.get("replicas", {}).items():
            result[topic] = result.get(topic, 0) + sum(int(size_bytes) for _, size_bytes in replicas)
    return result


def log_spans(instance_id: str, topics: Sequence[TopicDescription]) -> dict[tuple[str, int], LogSpan]:
    """Returns the offsets of partitions whose leaders answer."""
    partitions = [(topic.name, partition.index) for topic in topics for partition in topic.partitions]
    starts = offsets.bounds(instance_id, partitions, EARLIEST)
    ends = offsets.bounds(instance_id, partitions, LATEST)
    return {key: LogSpan(starts[key], ends[key]) for key in starts.keys() & ends.keys()}
