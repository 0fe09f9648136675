"""Implements `instances.topics.interfaces.topic_report`: figures of all topics of an instance, page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from brokers import selectors
from brokers.dataplane.topics import CLEANUP, RETENTION, KafkaTopicAdminClient
from brokers.limits import TOPIC_PAGES_MAX
from brokers.monitoring import observe
from instances.interfaces import TopicDescription
from instances.topics.interfaces import BrokerTopics, ReportedTopic, TopicReport

# Retention without a limit, as in Kafka.
UNLIMITED: Final = -1


def topic_report(instance_id: str) -> TopicReport:
    """Queries all brokers of the instance at once. A broker that stops answering between two pages is in `silent`.

    Raises `Unavailable` if no gateway of an instance on a Kafka cluster describes its topics.
    """
    path = f"/v1/instances/{instance_id}/topic_figures"
    pages, silent = observe.query_all_pages(observe.targets_of_instance(instance_id), path, TOPIC_PAGES_MAX)
    if selectors.is_on_kafka(instance_id):
        reader = KafkaTopicAdminClient()
        topics = reader.topics(instance_id)
        configs = reader.topic_configs(instance_id, [topic.name for topic in topics], (RETENTION, CLEANUP))
        brokers = {number: _of_gateway(number, bodies[0], topics, configs) for number, bodies in pages.items()}
    else:
        brokers = {number: _of_broker(bodies) for number, bodies in pages.items()}
    return TopicReport(
        brokers=brokers,
        silent=silent,
        refused=observe.refused_topics(bodies[0] for bodies in pages.values()),
    )


def _of_broker(bodies: Sequence[Mapping[str, Any]]) -> BrokerTopics:
    return BrokerTopics(
        now_ms=int(bodies[-1]["now_ms"]),
        alive_since_ms=int(bodies[-1]["alive_since_ms"]),
        topics=[ReportedTopic._make(line) for body in bodies for line in body["topics"]],
    )


def _of_gateway(
    number: int,
    body: Mapping[str, Any],
    topics: Sequence[TopicDescription],
    configs: Mapping[str, Mapping[str, str]],
) -> BrokerTopics:
    """Returns the report of a gateway: it knows sizes and traffic; topics, leaders and settings are the upstream's."""
    reported = []
    for topic in topics:
        sizes = {int(index): int(size_bytes) for index, size_bytes in body["replicas"].get(topic.name, ())}
        led_bytes = [
            sizes[partition.index]
            for partition in topic.partitions
            if partition.leader == number and partition.index in sizes
        ]
        config = configs.get(topic.name, {})
        produced_bytes, consumed_bytes = body["traffic"].get(topic.name, (0, 0))
        reported.append(
            ReportedTopic(
                name=topic.name,
                topic_id=topic.topic_id.replace("-", ""),
                partition_count=len(topic.partitions),
                replication_factor=topic.replication_factor,
                retention_ms=int(config.get(RETENTION, UNLIMITED)),
                cleanup_policy=config.get(CLEANUP, ""),
                led_partitions=len(led_bytes),
                size_bytes=sum(led_bytes),
                message_count=None,
                produced_bytes=int(produced_bytes),
                consumed_bytes=int(consumed_bytes),
            )
        )
    return BrokerTopics(now_ms=int(body["now_ms"]), alive_since_ms=int(body["alive_since_ms"]), topics=reported)
