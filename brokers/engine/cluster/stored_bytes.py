"""What the documents of an instance's topics weigh in ZooKeeper (`instance_limits.NODE_BYTES`). Pure.

Documents of partitions are taken at their longest, so that nothing an instance keeps grows past its limit by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from brokers.contract import instance_limits
from brokers.engine.cluster import errors
from brokers.engine.cluster.created_topic import CreatedTopic
from brokers.engine.cluster.image import InstanceImage, TopicImage
from instances import naming

# /brokers/topics/<t>, its id and its parent of partitions, and /config/topics/<t>, but for the topic's name.
NODES_PER_TOPIC: Final = 4
TOPIC_BYTES: Final = 250 + NODES_PER_TOPIC * instance_limits.NODE_BYTES
# A partition and its state: two paths, and the state with its leader.
NODES_PER_PARTITION: Final = 2
PARTITION_BYTES: Final = 130 + NODES_PER_PARTITION * instance_limits.NODE_BYTES
# A broker's id in the assignment, among the in-sync replicas, and the epoch in which it was in sync.
REPLICA_BYTES: Final = 40
# The document of a topic whose name is hashed; and what surrounds a setting.
OWNER_BYTES: Final = 100 + instance_limits.NODE_BYTES
ITEM_BYTES: Final = 6


def of_topic(topic: TopicImage) -> int:
    """Without its allow-lists, which have a limit of their own (`instances.topics.limits`)."""
    return (
        _of_names(topic.name, topic.user_name)
        + of_config(topic.config)
        + of_partitions(
            topic.name, len(topic.partitions), sum(len(partition.replicas) for partition in topic.partitions)
        )
    )


def of_created(topic: CreatedTopic) -> int:
    return (
        _of_names(topic.internal_name, topic.user_name)
        + of_config(topic.config)
        + of_partitions(topic.internal_name, len(topic.assignment), sum(map(len, topic.assignment.values())))
    )


def of_partitions(internal_name: str, partitions: int, replicas: int) -> int:
    """`replicas` of all these partitions together."""
    return partitions * (PARTITION_BYTES + NODES_PER_PARTITION * len(internal_name)) + REPLICA_BYTES * replicas


def of_config(config: Mapping[str, str]) -> int:
    return sum(len(key) + instance_limits.encoded_bytes(value) + ITEM_BYTES for key, value in config.items())


def _of_names(internal_name: str, user_name: str) -> int:
    weight = TOPIC_BYTES + NODES_PER_TOPIC * len(internal_name)
    if naming.plain_topic(internal_name) is None:
        weight += OWNER_BYTES + len(internal_name) + len(user_name)
    return weight


def of_instance(instance: InstanceImage, in_flight: Iterable[CreatedTopic] = ()) -> int:
    """Of all its topics, those that no image shows yet among them."""
    weights = {topic.name: of_topic(topic) for topic in instance.topics.values()}
    for plan in in_flight:
        weights[plan.internal_name] = max(of_created(plan), weights.get(plan.internal_name, 0))
    return sum(weights.values())


def check_documents(instance: InstanceImage | None, added_bytes: int, in_flight: Iterable[CreatedTopic] = ()) -> None:
    """Raises errors.PolicyViolation where the topics of the instance would weigh more than its plan allows."""
    if instance is None or instance.document.partitions_max is None or added_bytes <= 0:
        return
    bytes_max = instance_limits.document_bytes_max(instance.document.partitions_max)
    if of_instance(instance, in_flight) + added_bytes > bytes_max:
        raise errors.PolicyViolation(
            f"Names and configurations of the instance's topics would weigh more than {bytes_max} bytes. "
            "Delete topics, or remove configuration that is not needed."
        )
