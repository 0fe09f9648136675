"""Writes of the controller; each transaction checks the version of `/controller_epoch` (CTL-1, CTL-4, ZK-4)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from brokers.contract import paths
from brokers.contract.documents import TopicDocument
from brokers.engine.cluster import changes, elected_roles, errors
from brokers.engine.cluster.controller_epoch import ControllerEpoch, StateWrite, operations_of
from brokers.engine.cluster.image import TopicImage
from brokers.engine.cluster.topic_plans import encode_topic_id
from brokers.engine.cluster.tree import (
    BadVersion,
    Check,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Tree,
    TreeError,
)
from instances import naming

WRITES_PER_TRANSACTION_MAX = 1_000
# Half of the maximum frame size of ZooKeeper.
TRANSACTION_BYTES_MAX = 512 * 1024
# Sizes of the transactions of successive attempts. First all writes in one transaction, so that readers see a broker's
# death as one change; then those of a failed transaction in smaller ones.
WRITES_PER_TRANSACTION = (WRITES_PER_TRANSACTION_MAX, 32, 1)
DELETED_PER_TRANSACTION_MAX = 200
# Maximum number of change nodes that are kept, however young: every reader lists them at each change.
CHANGES_KEPT_MAX = 1_000


async def elect(tree: Tree, broker_id: int, now_ms: int) -> ControllerEpoch | None:
    """Returns the controller epoch if this broker won the election or is the controller already; None otherwise."""
    elected = await elected_roles.elect(tree, elected_roles.CONTROLLER, broker_id, now_ms)
    return None if elected is None else ControllerEpoch(broker_id, elected.epoch, elected.version)


async def resign(tree: Tree, held_epoch: ControllerEpoch) -> None:
    """Resigns as controller if this session still has the role; a later controller epoch is never affected."""
    node = await tree.get(paths.CONTROLLER)
    if node is not None and node.owner == tree.session_id:
        try:
            await tree.commit([held_epoch.guard, Delete(paths.CONTROLLER, node.version)])
        except (NoNode, BadVersion):
            return


async def write_states(tree: Tree, held_epoch: ControllerEpoch, writes: Sequence[StateWrite]) -> list[StateWrite]:
    """Writes partition states and returns those that lost a race. Raises errors.ControllerMoved.

    Transactions are sent without waiting for each other, because requests of a session keep their order (CTL-8). A
    write that lost a race makes its whole transaction fail; the others are sent again in smaller ones.
    """
    failed: list[StateWrite] = list(writes)
    for size in WRITES_PER_TRANSACTION:
        chunks = _chunks(failed, size)
        outcomes = await asyncio.gather(
            *(_commit_states(tree, held_epoch, chunk) for chunk in chunks), return_exceptions=True
        )
        failed = []
        for chunk, outcome in zip(chunks, outcomes, strict=True):
            if isinstance(outcome, TreeError):
                failed.extend(chunk)
            elif isinstance(outcome, BaseException):
                raise outcome
        if not failed:
            break
    return failed


def _chunks(writes: Iterable[StateWrite], count_max: int) -> list[list[StateWrite]]:
    chunks: list[list[StateWrite]] = []
    chunk_bytes = 0
    for write in writes:
        if not chunks or len(chunks[-1]) >= count_max or chunk_bytes + write.bytes_max > TRANSACTION_BYTES_MAX:
            chunks.append([])
            chunk_bytes = 0
        chunks[-1].append(write)
        chunk_bytes += write.bytes_max
    return chunks


async def _commit_states(tree: Tree, held_epoch: ControllerEpoch, writes: Sequence[StateWrite]) -> None:
    operations: list[Operation] = [held_epoch.guard, *operations_of(writes)]
    operations.append(changes.states_announcement(writes))
    await _commit_guarded(tree, operations)


async def finish_reassignments(
    tree: Tree, held_epoch: ControllerEpoch, topic: TopicImage, writes: Sequence[StateWrite]
) -> bool:
    """Writes the last states and the final replicas of reassigned partitions in one transaction (REP-32).

    Returns False, writing nothing, if the topic or a state changed since `topic` was read.
    """
    finished = {write.index for write in writes}
    still_moving = [partition for partition in topic.partitions if partition.index not in finished]
    document = TopicDocument(
        topic_id=encode_topic_id(topic.topic_id),
        assignment={
            partition.index: partition.target if partition.index in finished else partition.replicas
            for partition in topic.partitions
        },
        adding={partition.index: partition.adding for partition in still_moving if partition.adding},
        removing={partition.index: partition.removing for partition in still_moving if partition.removing},
        identified=topic.identity is not None,
    )
    operations: list[Operation] = [
        held_epoch.guard,
        Set(paths.topic(topic.name), document.to_json(), topic.version),
        *operations_of(writes),
    ]
    operations.append(changes.states_announcement(writes, [topic.name]))
    try:
        await _commit_guarded(tree, operations)
    except TreeError:
        return False
    return True


async def finish_deletion(tree: Tree, held_epoch: ControllerEpoch, topic: TopicImage) -> None:
    """Deletes a topic: its partitions first, in parts, the topic and its deletion marker last; it may be repeated at
    any time.

    A new controller may have an image in which a topic is being deleted that was deleted and recreated since. So every
    transaction checks the marker.

    Raises:
        errors.Conflict: the topic of that name is not marked.
    """
    marker = await tree.get(paths.topic_deletion(topic.name))
    if marker is None:
        await _commit_guarded(tree, [held_epoch.guard])
        raise errors.Conflict(f"{topic.name} is not marked for deletion")
    guards: list[Operation] = [held_epoch.guard, Check(paths.topic_deletion(topic.name), marker.version)]
    indexes = await tree.children(paths.partitions(topic.name)) or []
    states = await tree.children_many([f"{paths.partitions(topic.name)}/{index}" for index in indexes])
    removals: list[Operation] = []
    for index, names in zip(indexes, states, strict=True):
        parent = f"{paths.partitions(topic.name)}/{index}"
        removals += [Delete(f"{parent}/{name}", None) for name in names or ()]
        removals.append(Delete(parent, None))
    for start in range(0, len(removals), WRITES_PER_TRANSACTION_MAX):
        await _commit_guarded(tree, [*guards, *removals[start : start + WRITES_PER_TRANSACTION_MAX]])
    children = await tree.children(paths.topic(topic.name)) or []
    last = [
        *(f"{paths.topic(topic.name)}/{child}" for child in children),
        paths.topic(topic.name),
        paths.topic_config(topic.name),
        paths.topic_deletion(topic.name),
    ]
    instance_id = naming.split_internal(topic.name)[0]
    # IP allow-lists outlive the topic, so that a recreated one is not temporarily open to everybody (CKA-11).
    if instance_id is not None and not (topic.produce_ips or topic.consume_ips or topic.administer_ips):
        last.append(paths.instance_topic(instance_id, topic.name))
    present = await tree.get_many(last)
    result: Iterable[Operation] = (Delete(p, None) for p, node in zip(last, present, strict=True) if node is not None)
    await _commit_guarded(tree, [*guards, *result, changes.topics_announcement([topic.name])])


async def clean_changes(tree: Tree, created_before_ms: int) -> int:
    """Deletes change nodes that were created before a wall time in ms, and the oldest ones above CHANGES_KEPT_MAX.

    Returns the number of deleted nodes.
    """
    cleaned = 0
    for parent in (paths.CHANGES, paths.CONFIG_CHANGES):
        names = await tree.children(parent) or []
        oldest_first = sorted(names, key=lambda name: changes.sequence_of(name) or 0)
        excess = max(0, len(oldest_first) - CHANGES_KEPT_MAX)
        # The newest node is never deleted: a reader that has not read it could not detect that it missed changes.
        candidates = [f"{parent}/{name}" for name in oldest_first[:-1][: max(DELETED_PER_TRANSACTION_MAX, excess)]]
        nodes = await tree.get_many(candidates)
        expired_paths: list[str] = []
        for position, (path, node) in enumerate(zip(candidates, nodes, strict=True)):
            if node is None:
                continue
            if node.created_ms >= created_before_ms and position >= excess:
                break
            expired_paths.append(path)
        for start in range(0, len(expired_paths), DELETED_PER_TRANSACTION_MAX):
            cleaned += await _delete_all(tree, expired_paths[start : start + DELETED_PER_TRANSACTION_MAX])
    return cleaned


async def _delete_all(tree: Tree, node_paths: Sequence[str]) -> int:
    """Deletes the nodes in one transaction; if one is missing, they are deleted one by one."""
    try:
        await tree.commit([Delete(path, None) for path in node_paths])
    except NoNode:
        if len(node_paths) == 1:
            return 0
        return sum([await _delete_all(tree, [path]) for path in node_paths])
    return len(node_paths)


async def _commit_guarded(tree: Tree, operations: Sequence[Operation]) -> None:
    """Commits operations of which the first is the guard.

    Raises:
        errors.ControllerMoved: the guard failed.
        TreeError: another operation failed.
    """
    try:
        await tree.commit(operations)
    except (BadVersion, NoNode, NodeExists, NotEmpty) as error:
        if error.index == 0:
            raise errors.ControllerMoved("another controller was elected") from None
        raise
