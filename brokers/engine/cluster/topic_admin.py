"""Topic administration, written by any broker: entity and change node in one compare-and-set (CTL-17, CTL-20, REP-35).

What may be written is decided in `topic_plans`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from brokers.contract import documents, paths
from brokers.contract.documents import TopicDocument
from brokers.engine.cluster import changes, errors
from brokers.engine.cluster.image import ClusterImage, TopicImage
from brokers.engine.cluster.topic_plans import CreatedTopic, Place, find_topic, plan_growth, unknown_topic
from brokers.engine.cluster.tree import BadVersion, Check, Create, Node, NodeExists, NoNode, Operation, Set, Tree
from instances import naming


async def create(tree: Tree, plan: CreatedTopic) -> None:
    """Topic, config, the tenant's name when it is hashed, and the change node, in one transaction.

    Raises:
        errors.TopicExists: somebody was faster.
    """
    config_path = paths.topic_config(plan.internal_name)
    config_json = documents.config_to_json(dict(plan.config))
    leftover_config = False
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        operations: list[Operation] = [
            Create(paths.topic(plan.internal_name), plan.document.to_json()),
            Set(config_path, config_json, None) if leftover_config else Create(config_path, config_json),
        ]
        if plan.instance_id is not None and naming.is_hashed(plan.user_name, plan.instance_id):
            document = documents.InstanceTopicDocument(name=plan.user_name)
            operations.append(Create(paths.instance_topic(plan.instance_id, plan.internal_name), document.to_json()))
        operations.append(changes.topics_changed([plan.internal_name]))
        try:
            await tree.commit(operations)
        except NodeExists as error:
            if error.index == 0:
                raise errors.TopicExists(f"Topic '{plan.user_name}' already exists.") from None
            if error.index != 1:
                raise errors.Conflict(str(error)) from None
            leftover_config = True
        except NoNode as error:
            if error.index == 1:
                leftover_config = False
            elif plan.instance_id is not None:
                await _ensure(tree, paths.instance_topics(plan.instance_id))
        else:
            return
    raise errors.Conflict(f"Topic '{plan.user_name}' could not be written.")


async def mark_for_deletion(tree: Tree, image: ClusterImage, *, instance_id: str | None, name: str) -> TopicImage:
    topic = find_topic(image, instance_id, name)
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        node = await tree.get(paths.topic(topic.name))
        if node is None:
            raise unknown_topic()
        try:
            await tree.commit(
                [
                    Check(paths.topic(topic.name), node.version),
                    Create(paths.topic_deletion(topic.name)),
                    changes.topics_changed([topic.name]),
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


async def grow(
    tree: Tree,
    image: ClusterImage,
    *,
    instance_id: str | None,
    name: str,
    total: int,
    assignment: Sequence[Sequence[int]] | None,
    place: Place,
    validate_only: bool,
) -> CreatedTopic:
    topic = find_topic(image, instance_id, name)
    path = paths.topic(topic.name)
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        node = await tree.get(path)
        if node is None:
            raise unknown_topic()
        present = TopicDocument.from_json(node.data)
        added = plan_growth(image, topic, present, total, assignment, place)
        grown = TopicDocument(topic_id=present.topic_id, assignment={**present.assignment, **added})
        if not validate_only:
            try:
                await tree.commit([Set(path, grown.to_json(), node.version), changes.topics_changed([topic.name])])
            except (BadVersion, NoNode):
                continue
        return CreatedTopic(
            internal_name=topic.name,
            user_name=topic.user_name,
            instance_id=topic.instance_id,
            topic_id=topic.topic_id,
            assignment=grown.assignment,
            config=topic.config,
        )
    raise errors.Conflict(f"Topic '{name}' could not be changed.")


async def alter_config(
    tree: Tree,
    image: ClusterImage,
    *,
    instance_id: str | None,
    name: str,
    change: Callable[[dict[str, str]], dict[str, str]],
) -> dict[str, str]:
    topic = find_topic(image, instance_id, name)
    path = paths.topic_config(topic.name)
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        node: Node | None = await tree.get(path)
        config = change(documents.config_from_json(node.data) if node is not None else {})
        body = documents.config_to_json(config)
        write: Operation = Create(path, body) if node is None else Set(path, body, node.version)
        try:
            await tree.commit([write, changes.config_changed(f"topics/{topic.name}")])
        except (BadVersion, NodeExists, NoNode):
            continue
        return config
    raise errors.Conflict(f"The configuration of '{name}' could not be changed.")


async def _ensure(tree: Tree, path: str) -> None:
    """Makes a missing path, parents first. A path that appears meanwhile is as good."""
    parts = path.strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        node = "/" + "/".join(parts[:depth])
        if await tree.get(node) is None:
            try:
                await tree.commit([Create(node)])
            except NodeExists:
                continue
