"""Implements `instances.topics.interfaces.topic_report`: figures of all topics of an instance, page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from brokers import selectors
from brokers.dataplane.topics import CLEANUP, RETENTION, KafkaTopicAdminClient
from brokers.limits import TOPIC_PAGES_MAX
from brokers.monitoring import kafka_topics, observe
from instances.interfaces import TopicDescription
from instances.topics.interfaces import BrokerTopics, ReportedTopic, TopicReport

# Retention without a limit, as in Kafka.
UNLIMITED: Final = -1
# Messages are not counted in an instance with more partitions on a Kafka cluster: two offsets of each are requested.
COUNTED_PARTITIONS_MAX: Final = 2_000


def topic_report(instance_id: str) -> TopicReport:
    """Queries all brokers of the instance at once. A broker that stops answering between two pages is in `silent`.

    Raises `Unavailable` if no gateway of an instance on a Kafka cluster describes its topics.
    """
    path = f"/v1/instances/{instance_id}/topic_figures"
    pages, silent = observe.query_all_pages(observe.targets_of_instance(instance_id), path, TOPIC_PAGES_MAX)
    if selectors.is_on_kafka(instance_id):
        brokers = _of_gateways(instance_id, {number: bodies[0] for number, bodies in pages.items()})
    else:
        brokers = {number: _broker_topics(bodies) for number, bodies in pages.items()}
    return TopicReport(
        brokers=brokers,
        silent=silent,
        refused=observe.refused_topics(bodies[0] for bodies in pages.values()),
    )


def _broker_topics(bodies: Sequence[Mapping[str, Any]]) -> BrokerTopics:
    return BrokerTopics(
        now_ms=int(bodies[-1]["now_ms"]),
        alive_since_ms=int(bodies[-1]["alive_since_ms"]),
        topics=[ReportedTopic._make(figures) for body in bodies for figures in body["topics"]],
    )


def _of_gateways(instance_id: str, bodies: Mapping[int, Mapping[str, Any]]) -> dict[int, BrokerTopics]:
    """Returns the report of each gateway about all topics of the instance. Raises `Unavailable` if no gateway describes
    the topics.
    """
    reader = KafkaTopicAdminClient()
    topics = reader.topics(instance_id)
    configs = reader.topic_configs(instance_id, [topic.name for topic in topics], (RETENTION, CLEANUP))
    is_counted = sum(len(topic.partitions) for topic in topics) <= COUNTED_PARTITIONS_MAX
    spans = kafka_topics.log_spans(instance_id, topics) if is_counted else {}
    return {
        number: BrokerTopics(
            now_ms=int(body["now_ms"]),
            alive_since_ms=int(body["alive_since_ms"]),
            topics=[_reported(number, body, topic, configs.get(topic.name, {}), spans) for topic in topics],
        )
        for number, body in bodies.items()
    }


def _reported(
    number: int,
    body: Mapping[str, Any],
    topic: TopicDescription,
    config: Mapping[str, str],
    spans: Mapping[tuple[str, int], kafka_topics.LogSpan],
) -> ReportedTopic:
    sizes = kafka_topics.replica_sizes(body, topic.name)
    led = [partition.index for partition in topic.partitions if partition.leader == number and partition.index in sizes]
    counts = [span.end - span.start for index in led if (span := spans.get((topic.name, index))) is not None]
    produced_bytes, consumed_bytes = body.get("traffic", {}).get(topic.name, (0, 0))
    return ReportedTopic(
        name=topic.name,
        topic_id=topic.topic_id.replace("-", ""),
        partition_count=len(topic.partitions),
        replication_factor=topic.replication_factor,
        retention_ms=int(config.get(RETENTION, UNLIMITED)),
        cleanup_policy=config.get(CLEANUP, ""),
        led_partitions=len(led),
        size_bytes=sum(sizes[index] for index in led),
        message_count=sum(counts) if len(counts) == len(led) else None,
        produced_bytes=int(produced_bytes),
        consumed_bytes=int(consumed_bytes),
    )
