"""Topic administration from any broker: entity and change node in one compare-and-set (CTL-17, CTL-20, REP-35).

Decisions are made in `topic_plans`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from brokers.contract import documents, paths
from brokers.contract.documents import TopicDocument
from brokers.engine.cluster import changes, errors, instance_limit_checks, stored_bytes
from brokers.engine.cluster.changes import Reservation
from brokers.engine.cluster.controller_epoch import identity_checks
from brokers.engine.cluster.image import ClusterImage, TopicImage
from brokers.engine.cluster.in_flight_creations import InFlightCreations
from brokers.engine.cluster.topic_plans import (
    AssignReplicas,
    CreatedTopic,
    TopicGrowth,
    find_topic,
    plan_growth,
    unknown_topic,
)
from brokers.engine.cluster.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Set,
    Tree,
    TreeError,
)
from instances import naming


class AlteredConfig(NamedTuple):
    """The settings as stored, and the number of the config change that announces them
    (`ClusterImage.config_change`).
    """

    config: dict[str, str]
    change: int


async def create(tree: Tree, plan: CreatedTopic, reservation: Reservation | None = None) -> None:
    """Writes topic, config, a hashed topic's name, the reservation of its partitions, and the change node in one
    transaction.

    Raises:
        errors.TopicExists: another broker created it first.
        errors.CreationsMoved: another broker created partitions of the instance meanwhile.
    """
    topic_path, config_path = paths.topic(plan.internal_name), paths.topic_config(plan.internal_name)
    config_json = documents.config_to_json(dict(plan.config))
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        operations: list[Operation] = [
            Create(topic_path, plan.document.to_json()),
            Create(config_path, config_json),
            Create(paths.topic_identity(plan.internal_name, plan.document.topic_id)),
            *await _name_operations(tree, plan),
            *_reservation_operations(reservation),
            changes.topics_announcement([plan.internal_name], reservation),
        ]
        try:
            await tree.commit(operations)
        except (NodeExists, BadVersion, NoNode) as error:
            _check_reserved(operations, error)
            if not isinstance(error, NodeExists):
                continue
            if error.index == 0:
                raise errors.TopicExists(f"Topic '{plan.user_name}' already exists.") from None
            if error.index == 1:
                # A leftover of a config that was written for a topic that did not exist.
                await _remove(tree, config_path)
        else:
            return
    raise errors.Conflict(f"Topic '{plan.user_name}' could not be written.")


def _reservation_operations(reservation: Reservation | None) -> list[Operation]:
    return [] if reservation is None else [reservation.operation]


def _check_reserved(operations: Sequence[Operation], error: TreeError) -> None:
    """Raises errors.CreationsMoved if the reservation failed."""
    if operations[error.index].path.startswith(paths.CREATIONS):
        raise errors.CreationsMoved("Other partitions of the instance were made meanwhile.") from None


async def _name_operations(tree: Tree, plan: CreatedTopic) -> list[Operation]:
    """Returns the operations that store a hashed topic's name in the instance's document of the topic.

    The document may exist already with allow-lists.
    """
    if plan.instance_id is None or not naming.is_hashed(plan.user_name, plan.instance_id):
        return []
    path = paths.instance_topic(plan.instance_id, plan.internal_name)
    present = await tree.get(path)
    if present is not None:
        return [Check(path, present.version)]
    operations: list[Operation] = [Create(path, documents.InstanceTopicDocument(name=plan.user_name).to_json())]
    parent = paths.instance_topics(plan.instance_id)
    if await tree.get(parent) is None:
        operations.insert(0, Create(parent))
    return operations


async def _remove(tree: Tree, path: str) -> None:
    try:
        await tree.commit([Delete(path, None)])
    except NoNode:
        return


async def mark_for_deletion(tree: Tree, image: ClusterImage, *, instance_id: str | None, name: str) -> TopicImage:
    """Marks the topic in `image` for deletion, and not another one that was created with its name meanwhile."""
    topic = find_topic(image, instance_id, name)
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        node = await tree.get(paths.topic(topic.name))
        if node is None:
            raise unknown_topic()
        try:
            await tree.commit(
                [
                    Check(paths.topic(topic.name), node.version),
                    *([] if topic.identity is None else [Check(topic.identity, 0)]),
                    Create(paths.topic_deletion(topic.name)),
                    changes.topics_announcement([topic.name]),
                ]
            )
        except NodeExists:
            return topic
        except NoNode:
            raise unknown_topic() from None
        except BadVersion:
            continue
        else:
            return topic
    raise errors.Conflict(f"Topic '{name}' could not be marked for deletion.")


class GrowthPlanner:
    """Plans the growth of one topic from one image; after a lost race `plan` is repeated with the new document."""

    def __init__(
        self,
        image: ClusterImage,
        growth: TopicGrowth,
        assign_replicas: AssignReplicas,
        in_flight: InFlightCreations,
        pending_creations: Sequence[CreatedTopic],
    ) -> None:
        self.topic = find_topic(image, growth.instance_id, growth.name)
        self.in_flight = in_flight
        self._image = image
        self._growth = growth
        self._assign_replicas = assign_replicas
        # Creations that are in flight now: a later image than `image` drops them from `in_flight`, but `image` does not
        # show them.
        self._beside = [*pending_creations, *in_flight.pending_except(growth.instance_id, self.topic.user_name)]

    def plan(self, present: TopicDocument) -> tuple[CreatedTopic, TopicDocument]:
        """Returns the topic as it is with the added partitions, and its document. Raises errors.Refused."""
        topic, growth = self.topic, self._growth
        others = [*self._beside, *self.in_flight.pending_except(growth.instance_id, topic.user_name)]
        added = plan_growth(self._image, topic, present, growth.total, growth.assignment, self._assign_replicas, others)
        grown = replace(present, assignment={**present.assignment, **added})
        created = CreatedTopic(
            internal_name=topic.name,
            user_name=topic.user_name,
            instance_id=topic.instance_id,
            topic_id=topic.topic_id,
            assignment=grown.assignment,
            config=topic.config,
        )
        return created, grown


async def validate_growth(tree: Tree, planner: GrowthPlanner) -> CreatedTopic:
    """Returns what `grow` would write. Raises errors.Refused."""
    node = await tree.get(paths.topic(planner.topic.name))
    if node is None:
        raise unknown_topic()
    return planner.plan(TopicDocument.from_json(node.data))[0]


async def grow(tree: Tree, planner: GrowthPlanner, reservation: Reservation | None = None) -> CreatedTopic:
    """Writes the added partitions. Raises errors.Refused, and errors.CreationsMoved as `create` does."""
    topic = planner.topic
    path = paths.topic(topic.name)
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        node = await tree.get(path)
        if node is None:
            raise unknown_topic()
        present = TopicDocument.from_json(node.data)
        created, grown = planner.plan(present)
        operations: list[Operation] = [
            Set(path, grown.to_json(), node.version),
            *identity_checks(topic.name, present),
            *_reservation_operations(reservation),
            changes.topics_announcement([topic.name], reservation),
        ]
        try:
            with planner.in_flight.counted_during_write(created):
                await tree.commit(operations)
        except (BadVersion, NoNode, NodeExists) as error:
            _check_reserved(operations, error)
            continue
        return created
    raise errors.Conflict(f"Topic '{topic.user_name}' could not be changed.")


async def alter_config(
    tree: Tree,
    image: ClusterImage,
    *,
    instance_id: str | None,
    name: str,
    change: Callable[[dict[str, str]], dict[str, str]],
) -> AlteredConfig:
    """Applies `change` to the stored settings of a topic; see `ClusterStore.alter_topic_config`.

    Raises:
        errors.Refused: the topic is unknown, or the instance's settings would be too large.
        errors.Conflict: concurrent writes prevented every attempt.
    """
    topic = find_topic(image, instance_id, name)
    path = paths.topic_config(topic.name)
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        node: Node | None = await tree.get(path)
        config = change(documents.config_from_json(node.data) if node is not None else {})
        if topic.instance_id is not None:
            added_bytes = stored_bytes.of_config(config) - stored_bytes.of_config(topic.config)
            instance_limit_checks.check_documents(image.instances.get(topic.instance_id), added_bytes)
        body = documents.config_to_json(config)
        write: Operation = Create(path, body) if node is None else Set(path, body, node.version)
        try:
            written = await tree.commit([write, changes.config_announcement(f"topics/{topic.name}")])
        except (BadVersion, NodeExists, NoNode):
            continue
        return AlteredConfig(config, changes.change_number(written))
    raise errors.Conflict(f"The configuration of '{name}' could not be changed.")
