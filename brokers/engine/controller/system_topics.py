"""The cluster's own topics, kept in step with who lives. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from brokers.contract.audit import AUDIT_TOPIC
from brokers.contract.own_topics import LED_BY_EACH_BROKER
from brokers.contract.usage import USAGE_TOPIC
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.controller.events import CreateSystemTopic, GrowSystemTopic

# Two weeks: the billing pipeline may be away that long without losing usage.
USAGE_CONFIG: Mapping[str, str] = {"retention.ms": "1209600000", "segment.bytes": "67108864"}
# So may the reader of the audit log, while a broker has written no more than this meanwhile: 1 GiB, some two million
# events.
AUDIT_CONFIG: Mapping[str, str] = {
    "retention.ms": "1209600000",
    "retention.bytes": "1073741824",
    "segment.bytes": "67108864",
}
CONFIGS: Mapping[str, Mapping[str, str]] = {USAGE_TOPIC: USAGE_CONFIG, AUDIT_TOPIC: AUDIT_CONFIG}
assert tuple(CONFIGS) == LED_BY_EACH_BROKER


def wanted_topic(image: ClusterImage, name: str) -> CreateSystemTopic | GrowSystemTopic | None:
    """Every live broker leads a partition of `__usage` and of `__audit`, so that what it has to say never crosses the
    network to be written.

    Each has one replica. While its broker is away nobody else can write there, and nobody needs to: it holds what
    that broker alone can say. A broker about to stop gets none.
    """
    topic = image.topics.get(name)
    staying = sorted(id for id, broker in image.brokers.items() if not broker.stopping)
    if topic is None:
        if not staying:
            return None
        return CreateSystemTopic(name, {index: (broker,) for index, broker in enumerate(staying)}, CONFIGS[name])
    # A topic that moves does not grow (REP-33): the end of the move is another image.
    if topic.deleting or any(partition.is_reassigning for partition in topic.partitions):
        return None
    served = {partition.replicas[0] for partition in topic.partitions}
    added = tuple((broker,) for broker in staying if broker not in served)
    return GrowSystemTopic(name, len(topic.partitions), added) if added else None
