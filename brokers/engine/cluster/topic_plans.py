"""Decisions of topic administration, from one image and without writing (CTL-17 to CTL-19, REP-35, ASG-5). Pure.

A refused request changes nothing. Messages use the tenant's names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from brokers.contract.documents import InstanceDocument, TopicDocument
from brokers.engine.cluster import errors, instance_limit_checks, stored_bytes
from brokers.engine.cluster.image import ClusterImage, TopicImage
from brokers.engine.cluster.in_flight_creations import CreatedTopic as CreatedTopic
from brokers.engine.cluster.in_flight_creations import encode_topic_id as encode_topic_id
from instances import naming
from instances.topics.limits import PARTITIONS_PER_TOPIC_MAX as PARTITIONS_PER_TOPIC_MAX
from instances.topics.limits import REPLICATION_FACTOR_MAX as REPLICATION_FACTOR_MAX

PARTITIONS_DEFAULT = 1
REPLICATION_FACTOR_DEFAULT = 1
UNSET = -1


class AssignReplicas(Protocol):
    """Assignment algorithm (ASG-1 to ASG-9).

    `brokers` maps id to rack, and `first_broker` is that of partition 0 when partitions are added. Raises
    `errors.InvalidReplicationFactor` if there are too few brokers for the replicas.
    """

    def __call__(
        self,
        brokers: Mapping[int, str | None],
        *,
        partitions: int,
        replication_factor: int,
        first_id: int = 0,
        first_broker: int | None = None,
    ) -> dict[int, tuple[int, ...]]: ...


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as CreateTopics describes it, under its owner's name (an internal topic has no instance).

    A count that is `UNSET` is the instance's default or, with `assignment` (the replicas of each partition), follows
    from that.
    """

    instance_id: str | None
    name: str
    partitions: int = UNSET
    replication_factor: int = UNSET
    assignment: Mapping[int, Sequence[int]] | None = None
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicGrowth:
    """A request for `total` partitions of a topic; `assignment` lists the replicas of the added ones only."""

    instance_id: str | None
    name: str
    total: int
    assignment: Sequence[Sequence[int]] | None = None


def plan_creation(
    image: ClusterImage,
    spec: TopicSpec,
    *,
    assign_replicas: AssignReplicas,
    topic_id: bytes,
    replication_factor_max: int,
    pending_creations: Sequence[CreatedTopic] = (),
) -> CreatedTopic:
    """Returns the topic that CreateTopics creates, decided from one image.

    `pending_creations` are earlier creations of the same request that may not be in the image yet.

    Raises:
        errors.Refused: see its subclasses; in Kafka's order: name, existence, counts, assignment.
    """
    instance_id, name, assignment = spec.instance_id, spec.name, spec.assignment
    partitions, replication_factor = spec.partitions, spec.replication_factor
    internal = _check_new_name(image, instance_id, name)
    brokers = eligible_brokers(image, instance_id)
    if assignment is not None:
        if partitions != UNSET or replication_factor != UNSET:
            raise errors.Refused("Both partition count or replication factor and an assignment were given.")
        chosen = _check_assignment(assignment, brokers, first_id=0)
    else:
        count, factor = _with_defaults(image, instance_id, partitions, replication_factor, replication_factor_max)
        _check_count(count)
        _check_factor(factor, len(brokers), replication_factor_max)
        chosen = assign_replicas(_not_stopping(image, brokers, factor), partitions=count, replication_factor=factor)
    _check_count(len(chosen))
    _check_factor(len(chosen[0]), len(brokers), replication_factor_max)
    created = CreatedTopic(
        internal_name=internal,
        user_name=name,
        instance_id=instance_id,
        topic_id=topic_id,
        assignment=chosen,
        config=dict(spec.config),
    )
    _check_limits(image, instance_id, len(chosen), created.stored_bytes, pending_creations)
    return created


def eligible_brokers(image: ClusterImage, instance_id: str | None) -> dict[int, str | None]:
    """Returns the live brokers that may get a replica of the topic, with their racks: the instance's current and future
    ones.
    """
    if instance_id is None:
        return {broker.id: broker.rack for broker in image.brokers.values()}
    instance = image.instances.get(instance_id)
    document = instance.document if instance is not None else None
    hosts = document.serving - set(document.leaving) if document is not None else set()
    return {broker.id: broker.rack for broker in image.brokers.values() if broker.id in hosts}


def _not_stopping(image: ClusterImage, brokers: dict[int, str | None], factor: int) -> dict[int, str | None]:
    """Returns the brokers that are not stopping, so that a topic created during a restart starts with all replicas.

    If they are too few, or in too few racks, for `factor` replicas, it returns all brokers (decision 67).
    """
    running = {id: rack for id, rack in brokers.items() if not image.brokers[id].stopping}
    racks_min = min(factor, len(set(brokers.values())))
    return running if len(running) >= factor and len(set(running.values())) >= racks_min else brokers


def find_topic(image: ClusterImage, instance_id: str | None, name: str) -> TopicImage:
    """Returns a topic of this instance by the tenant's name; a foreign topic counts as unknown (CKA-10).

    Raises:
        errors.UnknownTopic: there is none.
    """
    if instance_id is None:
        topic = image.topics.get(name)
    else:
        instance = image.instances.get(instance_id)
        topic = instance.topic(name) if instance is not None else None
    if topic is None or topic.deleting:
        raise unknown_topic()
    return topic


def unknown_topic() -> errors.UnknownTopic:
    return errors.UnknownTopic("This server does not host this topic-partition.")


def _check_new_name(image: ClusterImage, instance_id: str | None, name: str) -> str:
    if not naming.is_valid_topic_name(name):
        raise errors.InvalidTopicName(
            f"Topic name is invalid: '{name[: naming.TOPIC_NAME_LENGTH_MAX]}' must be 1 to "
            f"{naming.TOPIC_NAME_LENGTH_MAX} of ASCII letters, digits, '.', '_' and '-', and not '.' or '..'."
        )
    if name == naming.PROHIBITED_TOPIC_NAME:
        raise errors.ProhibitedTopic(f"Creation of internal topic {name} is prohibited.")
    if instance_id is None:
        if name in image.topics:
            raise errors.TopicExists(f"Topic '{name}' already exists.")
        return name
    if name in naming.RESERVED_TOPIC_NAMES:
        raise errors.InvalidTopicName(f"Topic name '{name}' is reserved for the service's own records.")
    instance = image.instances.get(instance_id)
    if instance is None or instance.document.state == "deleting":
        raise errors.InstanceNotWritable("The instance is being deleted.")
    if instance.document.state == "frozen":
        raise errors.InstanceNotWritable("The instance is suspended.")
    internal = naming.internal_topic(instance_id, name)
    if internal in instance.hidden:
        raise errors.PolicyViolation(
            f"Topic '{name}' was deleted and can be restored. Restore it, or delete it for good, to use its name."
        )
    if internal in image.topics:
        raise errors.TopicExists(f"Topic '{name}' already exists.")
    if "." in name or "_" in name:
        other = instance.names_by_collision_key.get(naming.collision_key(name))
        if other is not None:
            raise errors.InvalidTopicName(f"Topic '{name}' collides with existing topics: {other}")
    return internal


def default_replication_factor(document: InstanceDocument, factor_max: int = REPLICATION_FACTOR_MAX) -> int:
    """Returns the default for topics of the instance. Its brokers that are down count, because they will be back."""
    configured = document.settings.default_replication_factor
    if configured != UNSET:
        return configured
    hosts = document.serving - set(document.leaving)
    return max(1, min(len(hosts), factor_max, REPLICATION_FACTOR_MAX))


def _with_defaults(
    image: ClusterImage, instance_id: str | None, partitions: int, replication_factor: int, factor_max: int
) -> tuple[int, int]:
    default_partitions, default_factor = PARTITIONS_DEFAULT, REPLICATION_FACTOR_DEFAULT
    if instance_id is not None:
        document = image.instances[instance_id].document
        default_partitions = document.settings.default_partitions
        default_factor = default_replication_factor(document, factor_max)
    count = default_partitions if partitions == UNSET else partitions
    return count, default_factor if replication_factor == UNSET else replication_factor


def _check_count(count: int) -> None:
    if count <= 0:
        raise errors.InvalidPartitions("Number of partitions must be larger than 0.")
    if count > PARTITIONS_PER_TOPIC_MAX:
        raise errors.InvalidPartitions(f"Number of partitions must not exceed {PARTITIONS_PER_TOPIC_MAX}.")


def _check_limits(
    image: ClusterImage,
    instance_id: str | None,
    added: int,
    added_bytes: int,
    pending_creations: Sequence[CreatedTopic],
) -> None:
    instance = None if instance_id is None else image.instances.get(instance_id)
    instance_limit_checks.check_partitions(instance, added, pending_creations)
    instance_limit_checks.check_documents(instance, added_bytes, pending_creations)


def _check_factor(factor: int, live: int, factor_max: int) -> None:
    if factor <= 0:
        raise errors.InvalidReplicationFactor("Replication factor must be larger than 0.")
    if factor > live:
        raise errors.InvalidReplicationFactor(f"Replication factor: {factor} larger than available brokers: {live}.")
    if factor > factor_max:
        raise errors.InvalidReplicationFactor(f"This cluster keeps at most {factor_max} replica(s) of a partition.")


def _check_assignment(
    assignment: Mapping[int, Sequence[int]], brokers: Mapping[int, str | None], *, first_id: int
) -> dict[int, tuple[int, ...]]:
    """Checks a given assignment (CTL-19); an unknown or dead broker is refused at once."""
    expected = range(first_id, first_id + len(assignment))
    if not assignment or sorted(assignment) != list(expected):
        raise errors.InvalidReplicaAssignment("Partitions should be a consecutive 0-based integer sequence.")
    sizes = {len(replicas) for replicas in assignment.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise errors.InvalidReplicaAssignment("All partitions should have the same number of replicas, at least one.")
    for index, replicas in assignment.items():
        if len(set(replicas)) != len(replicas):
            raise errors.InvalidReplicaAssignment(f"Duplicate brokers in the replica assignment of partition {index}.")
        if any(broker not in brokers for broker in replicas):
            raise errors.InvalidReplicaAssignment(f"Unknown broker in the replica assignment of partition {index}.")
    return {index: tuple(assignment[index]) for index in expected}


def plan_growth(
    image: ClusterImage,
    topic: TopicImage,
    present: TopicDocument,
    total: int,
    assignment: Sequence[Sequence[int]] | None,
    assign_replicas: AssignReplicas,
    pending_creations: Sequence[CreatedTopic] = (),
) -> dict[int, tuple[int, ...]]:
    """Returns the added partitions with their replicas; `pending_creations` as in `plan_creation`.

    Raises:
        errors.Refused: see its subclasses.
    """
    if present.adding or present.removing:
        raise errors.ReassignmentInProgress("Partitions of the topic are being reassigned.")
    count = len(present.assignment)
    if total < count:
        raise errors.InvalidPartitions(
            f"The topic {topic.user_name} currently has {count} partition(s); {total} would not be an increase."
        )
    if total == count:
        raise errors.InvalidPartitions(f"Topic already has {count} partition(s).")
    _check_count(total)
    factor = len(present.assignment[0])
    added_bytes = stored_bytes.of_partitions(topic.name, total - count, (total - count) * factor)
    _check_limits(image, topic.instance_id, total - count, added_bytes, pending_creations)
    brokers = eligible_brokers(image, topic.instance_id)
    if assignment is None:
        return assign_replicas(
            _not_stopping(image, brokers, factor),
            partitions=total - count,
            replication_factor=factor,
            first_id=count,
            first_broker=present.assignment[0][0],
        )
    if len(assignment) != total - count:
        raise errors.InvalidReplicaAssignment(
            f"Increasing the number of partitions by {total - count} but {len(assignment)} assignments provided."
        )
    added = _check_assignment(dict(enumerate(assignment, start=count)), brokers, first_id=count)
    if any(len(replicas) != factor for replicas in added.values()):
        raise errors.InvalidReplicaAssignment(f"Existing partitions have {factor} replica(s).")
    return added
