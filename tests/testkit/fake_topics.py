"""Reports of topics, made from the fakes of topics and sizes."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from instances.topics.interfaces import BrokerTopics, ReportedTopic, TopicReport
from tenants.errors import Unavailable

BROKER = 1
RETENTION_MS = "604800000"


def reporter(data_plane: Any, observation: Any) -> Callable[[str], TopicReport]:
    """Returns an `instances.topics.interfaces.topic_report` of one broker that leads all partitions of known size."""

    def report(instance_id: str) -> TopicReport:
        try:
            topics = data_plane.topics(instance_id)
        except Unavailable:
            return TopicReport(brokers={}, silent=observation.silent)
        sizes = observation.topic_sizes(instance_id)
        lines = []
        for topic in topics:
            size_bytes, messages = sizes.topics.get(topic.name, (0, 0))
            known = sizes.partitions.get(topic.name, {})
            config = {entry.name: entry.value for entry in data_plane.topic_config(instance_id, topic.name)}
            lines.append(
                ReportedTopic(
                    name=topic.name,
                    topic_id=uuid.uuid5(uuid.NAMESPACE_OID, topic.name).hex,
                    partition_count=len(topic.partitions),
                    replication_factor=topic.replication_factor,
                    retention_ms=int(config.get("retention.ms") or RETENTION_MS),
                    cleanup_policy=config.get("cleanup.policy") or "delete",
                    led_partitions=len([1 for partition in topic.partitions if partition.index in known]),
                    size_bytes=size_bytes,
                    message_count=messages,
                    produced_bytes=0,
                    consumed_bytes=0,
                )
            )
        broker = BrokerTopics(now_ms=1_000, alive_since_ms=0, topics=lines)
        return TopicReport(brokers={BROKER: broker}, silent=observation.silent, refused=sizes.refused)

    return report
