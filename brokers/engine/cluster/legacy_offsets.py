"""Offsets of consumers before Kafka 0.8.2: `/consumers/<group>/offsets/<topic>/<partition>` (ZK-21, GRP-40).

Group and topic are internal names, escaped as far as ZooKeeper requires; the offset is decimal text. Every write checks
the versions that were read, so two writers cannot overwrite each other's partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from brokers.contract import paths
from brokers.contract.instance_limits import NODE_BYTES, OLD_GROUP_BYTES_MAX, OLD_OFFSETS_BYTES_MAX
from brokers.contract.partitions import PartitionKey
from brokers.engine.cluster import changes, errors
from brokers.engine.cluster.tree import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
    Tree,
)
from instances.naming import split_internal

# Maximum number of groups of one instance; the data is in the memory of every ZooKeeper server.
GROUPS_PER_INSTANCE_MAX: Final = 100
# Number of digits of an offset.
OFFSET_BYTES: Final = 20
# Far below ZooKeeper's 1 MB frame.
WRITES_PER_TRANSACTION_MAX: Final = 200


def group_path(group: str) -> str:
    return f"{paths.CONSUMERS}/{_escape(group)}"


def offset_path(group: str, topic: str, partition: int) -> str:
    return f"{group_path(group)}/offsets/{topic}/{partition}"


async def read(tree: Tree, group: str, keys: Sequence[PartitionKey]) -> list[int | None]:
    """Returns the offset of each key, None if there is none or it is invalid. Raises StoreUnavailable."""
    nodes = await tree.get_many([offset_path(group, topic, partition) for topic, partition in keys])
    return [None if node is None else _offset(node.data) for node in nodes]


async def write(tree: Tree, group: str, offsets: Mapping[PartitionKey, int]) -> None:
    """Writes all offsets, in several transactions if there are many.

    Raises:
        PolicyViolation: the instance has the maximum number of groups here.
        Conflict: concurrent writes prevented every attempt.
        StoreUnavailable: each offset may have been written or not.
    """
    keys = list(offsets)
    for start in range(0, len(keys), WRITES_PER_TRANSACTION_MAX):
        chunk = {key: offsets[key] for key in keys[start : start + WRITES_PER_TRANSACTION_MAX]}
        for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
            try:
                await tree.commit(await _plan(tree, group, chunk))
            except (NodeExists, BadVersion, NoNode):
                continue
            break
        else:
            raise errors.Conflict("The offsets could not be written.")


async def remove_orphans(tree: Tree) -> int:
    """Removes groups of deleted instances and returns how many; running it twice does no harm.

    Instances are read after the groups, so that the instance of every listed group is known if it still exists.
    """
    names = await tree.children(paths.CONSUMERS) or []
    existing_ids = frozenset(await tree.children(paths.INSTANCES) or ())
    orphans = []
    for name in names:
        instance_id = split_internal(paths.desanitise(name))[0]
        if instance_id is not None and instance_id not in existing_ids:
            orphans.append(name)
    for name in orphans:
        await _remove(tree, f"{paths.CONSUMERS}/{name}")
    return len(orphans)


async def _plan(tree: Tree, group: str, offsets: Mapping[PartitionKey, int]) -> list[Operation]:
    root = group_path(group)
    topics = dict.fromkeys(topic for topic, _ in offsets)
    parents = [root, f"{root}/offsets", *(f"{root}/offsets/{topic}" for topic in topics)]
    keys = list(offsets)
    offset_paths = [offset_path(group, *key) for key in keys]
    nodes = await tree.get_many([*parents, *offset_paths])
    if None in nodes:
        await _check_limits(
            tree, group, [path for path, node in zip([*parents, *offset_paths], nodes, strict=True) if not node]
        )
    operations: list[Operation] = [
        Create(path) for path, node in zip(parents, nodes[: len(parents)], strict=True) if node is None
    ]
    for key, path, node in zip(keys, offset_paths, nodes[len(parents) :], strict=True):
        data = str(offsets[key]).encode()
        operations.append(Create(path, data) if node is None else Set(path, data, node.version))
    return operations


async def _check_limits(tree: Tree, group: str, missing: Sequence[str]) -> None:
    instance_id = split_internal(group)[0]
    if instance_id is None:
        return
    if len(_escape(group)) > OLD_GROUP_BYTES_MAX:
        raise errors.PolicyViolation(f"A group in ZooKeeper has a name of at most {OLD_GROUP_BYTES_MAX} bytes.")
    names = [name for name in await tree.children(paths.CONSUMERS) or [] if name.startswith(f"{instance_id}.")]
    if _escape(group) not in names and len(names) >= GROUPS_PER_INSTANCE_MAX:
        raise errors.PolicyViolation(
            f"At most {GROUPS_PER_INSTANCE_MAX} groups may keep their offsets in ZooKeeper; use the coordinator's."
        )
    if await _stored_bytes(tree, names) + sum(map(node_bytes, missing)) > OLD_OFFSETS_BYTES_MAX:
        raise errors.PolicyViolation(
            f"The instance may keep {OLD_OFFSETS_BYTES_MAX} bytes of offsets in ZooKeeper; use the coordinator's."
        )


async def _stored_bytes(tree: Tree, names: Sequence[str]) -> int:
    """Returns the size of all nodes below these groups."""
    roots = [f"{paths.CONSUMERS}/{name}/offsets" for name in names]
    topics = [
        f"{root}/{topic}"
        for root, children in zip(roots, await tree.children_many(roots), strict=True)
        for topic in children or ()
    ]
    below = await tree.children_many(topics)
    offsets = [f"{topic}/{index}" for topic, children in zip(topics, below, strict=True) for index in children or ()]
    return sum(map(node_bytes, [*roots, *topics, *offsets]))


def node_bytes(path: str) -> int:
    """Returns the size of a node with an offset in ZooKeeper."""
    return len(path) + OFFSET_BYTES + NODE_BYTES


async def _remove(tree: Tree, path: str) -> None:
    for name in await tree.children(path) or []:
        await _remove(tree, f"{path}/{name}")
    try:
        await tree.commit([Delete(path, None)])
    except (NoNode, NotEmpty):
        # Another broker removes it too, or wrote below it: the next sweep finds it.
        return


def _offset(data: bytes) -> int | None:
    try:
        return int(data.decode("ascii"))
    except (UnicodeDecodeError, ValueError):
        return None


def _escape(group: str) -> str:
    """Returns the name if ZooKeeper accepts it, which it does not for `.` and `..`, else the escaped one."""
    escaped = paths.sanitise(group)
    return escaped.replace(".", "%2E") if escaped in (".", "..") else escaped
