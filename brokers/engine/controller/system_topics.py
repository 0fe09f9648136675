"""The cluster's own topics, whose partitions follow the live brokers. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from brokers.contract.audit import AUDIT_TOPIC
from brokers.contract.own_topics import LED_BY_EACH_BROKER
from brokers.contract.usage import USAGE_TOPIC
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.controller.events import CreateSystemTopic, GrowSystemTopic

# Retention of two weeks: the billing pipeline may be down for that long without losing usage.
USAGE_CONFIG: Mapping[str, str] = {"retention.ms": "1209600000", "segment.bytes": "67108864"}
# The same for the reader of the audit log, up to 1 GiB (some two million events) per broker.
AUDIT_CONFIG: Mapping[str, str] = {
    "retention.ms": "1209600000",
    "retention.bytes": "1073741824",
    "segment.bytes": "67108864",
}
CONFIGS: Mapping[str, Mapping[str, str]] = {USAGE_TOPIC: USAGE_CONFIG, AUDIT_TOPIC: AUDIT_CONFIG}
assert tuple(CONFIGS) == LED_BY_EACH_BROKER


def plan_system_topic(image: ClusterImage, name: str) -> CreateSystemTopic | GrowSystemTopic | None:
    """Returns the creation or growth that a system topic needs so that every live broker leads a partition of it.

    Each broker writes its usage and audit events to its own partition, without the network. A partition has one
    replica: while its broker is down, no other broker has events for it. A stopping broker gets no partition.
    """
    topic = image.topics.get(name)
    eligible = sorted(id for id, broker in image.brokers.items() if not broker.stopping)
    if topic is None:
        if not eligible:
            return None
        return CreateSystemTopic(name, {index: (broker,) for index, broker in enumerate(eligible)}, CONFIGS[name])
    # A topic does not grow during a reassignment (REP-33), whose end changes the image.
    if topic.deleting or any(partition.is_reassigning for partition in topic.partitions):
        return None
    served = {partition.replicas[0] for partition in topic.partitions}
    added = tuple((broker,) for broker in eligible if broker not in served)
    return GrowSystemTopic(name, len(topic.partitions), added) if added else None
