"""ACLs of an instance in ZooKeeper: one document per pattern, written by compare-and-set (KIP-290).

Their parent node has the total number of entries and bytes, and each transaction that writes a document writes it as
well: so two brokers never allocate the same capacity, and the total is never older than the documents.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from brokers.contract import paths
from brokers.contract.acls import ACL_BYTES_MAX, ENTRIES_MAX, AclDocument, AclEntry, ResourcePattern
from brokers.contract.instance_limits import NODE_BYTES
from brokers.engine.cluster import changes, errors
from brokers.engine.cluster.instance_documents import ACLS, change_entry
from brokers.engine.cluster.tree import (
    BadVersion,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    Operation,
    Set,
    Tree,
)

# Maximum number of patterns in one transaction. All documents of an instance together are smaller than a ZooKeeper
# frame.
PATTERNS_PER_TRANSACTION_MAX: Final = 50

Entries = frozenset[AclEntry]
Change = Callable[[ResourcePattern, Entries], Entries]


async def add(tree: Tree, instance_id: str, entries: Mapping[ResourcePattern, Iterable[AclEntry]]) -> int | None:
    """Adds entries to the ACLs of resource patterns, all or none; existing entries stay.

    Returns the config change that announces the last of them, None if nothing had to be written.

    Raises:
        errors.PolicyViolation: the instance would have too many entries, or entries of too many bytes.
        errors.Conflict: concurrent changes of the instance's ACLs prevented every attempt.
    """
    added = {pattern: frozenset(of_pattern) for pattern, of_pattern in entries.items()}
    return await _write(tree, instance_id, list(added), lambda pattern, before: before | added[pattern])


async def remove(tree: Tree, instance_id: str, entries: Mapping[ResourcePattern, Iterable[AclEntry]]) -> int | None:
    """Removes entries; a document is deleted with its last one. Returns a config change like `add`.

    A document that cannot be read is deleted with the entry that represents it (`AclDocument.closed`).

    Raises:
        errors.Conflict: as in `add`.
    """
    removed = {pattern: frozenset(of_pattern) for pattern, of_pattern in entries.items()}
    return await _write(tree, instance_id, list(removed), lambda pattern, before: before - removed[pattern])


async def _write(tree: Tree, instance_id: str, patterns: Sequence[ResourcePattern], change: Change) -> int | None:
    for _ in range(changes.COMPARE_AND_SET_ATTEMPTS_MAX):
        operations = await _plan(tree, instance_id, patterns, change)
        if not operations:
            return None
        try:
            return changes.change_number(await tree.commit(operations))
        except (BadVersion, NodeExists, NoNode):
            continue
    raise errors.Conflict("Others change access control lists at the same time; try again.")


async def _plan(tree: Tree, instance_id: str, patterns: Sequence[ResourcePattern], change: Change) -> list[Operation]:
    folder_path = paths.instance_acls(instance_id)
    node_paths = [paths.instance_acl(instance_id, pattern.node_name) for pattern in patterns]
    folder, *nodes = await tree.get_many([folder_path, *node_paths])
    is_readable = all(node is None or _read(node) is not None for node in nodes)
    stored = total = _total(folder) if is_readable else await _recount(tree, instance_id)
    documents: list[Operation] = []
    announcements: list[Operation] = []
    for pattern, path, node in zip(patterns, node_paths, nodes, strict=True):
        before = _read_entries(pattern, node)
        after = change(pattern, before)
        if after == before:
            continue
        data = AclDocument(pattern=pattern, entries=after).to_json() if after else b""
        total = _Total(
            total.entries + len(after) - len(before),
            total.size_bytes + _stored_bytes(path, data) - _stored_bytes(path, b"" if node is None else node.data),
        )
        documents.append(_operation(path, node, data))
        announcements.append(changes.config_announcement(change_entry(instance_id, ACLS, pattern.node_name)))
    if not documents:
        return []
    _check(stored, total)
    data = total.to_json()
    total_write = Create(folder_path, data) if folder is None else Set(folder_path, data, folder.version)
    return [total_write, *documents, *announcements]


def _check(before: _Total, after: _Total) -> None:
    """Checks the limits; an instance that exceeds them since they were lowered may still replace and remove entries."""
    if after.entries > max(ENTRIES_MAX, before.entries):
        raise errors.PolicyViolation(
            f"The instance would have more than {ENTRIES_MAX} access control entries; remove some, or use prefixed "
            "patterns."
        )
    if after.size_bytes > max(ACL_BYTES_MAX, before.size_bytes):
        raise errors.PolicyViolation(
            f"The access control entries of the instance would weigh more than {ACL_BYTES_MAX} bytes; remove some, or "
            "use shorter names."
        )


class _Total(NamedTuple):
    """Total of all ACL documents of an instance, as stored in their parent node."""

    entries: int = 0
    size_bytes: int = 0

    def to_json(self) -> bytes:
        return json.dumps({"version": 1, "entries": self.entries, "bytes": self.size_bytes}, sort_keys=True).encode()


def _stored_bytes(path: str, data: bytes) -> int:
    """Returns the size in ZooKeeper, 0 without data."""
    return len(path) + len(data) + NODE_BYTES if data else 0


def _operation(path: str, node: Node | None, data: bytes) -> Operation:
    if data:
        return Create(path, data) if node is None else Set(path, data, node.version)
    assert node is not None, "only an existing document can lose its last entry"
    return Delete(path, node.version)


def _read(node: Node) -> Entries | None:
    try:
        return AclDocument.from_json(node.data).entries
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _read_entries(pattern: ResourcePattern, node: Node | None) -> Entries:
    """Returns the stored entries; an unreadable document denies all (`AclDocument.closed`), also after additions."""
    if node is None:
        return frozenset()
    entries = _read(node)
    return AclDocument.closed(pattern.node_name).entries if entries is None else entries


def _total(folder: Node | None) -> _Total:
    try:
        body = json.loads(folder.data) if folder is not None and folder.data else {}
        return _Total(int(body.get("entries", 0)), int(body.get("bytes", 0)))
    except (ValueError, TypeError, AttributeError):
        return _Total()


async def _recount(tree: Tree, instance_id: str) -> _Total:
    """Counts the stored documents: the count of an unreadable one in the stored total is unknown."""
    node_paths = [
        paths.instance_acl(instance_id, name) for name in await tree.children(paths.instance_acls(instance_id)) or []
    ]
    entries = size_bytes = 0
    for path, node in zip(node_paths, await tree.get_many(node_paths), strict=True):
        if node is not None:
            read = _read(node)
            entries += 1 if read is None else len(read)
            size_bytes += _stored_bytes(path, node.data)
    return _Total(entries, size_bytes)


def split_into_transactions(
    entries: Mapping[ResourcePattern, Sequence[AclEntry]],
) -> list[dict[ResourcePattern, Sequence[AclEntry]]]:
    """Splits patterns into parts that fit into one transaction each."""
    parts: list[dict[ResourcePattern, Sequence[AclEntry]]] = []
    for number, (pattern, of_pattern) in enumerate(entries.items()):
        if number % PATTERNS_PER_TRANSACTION_MAX == 0:
            parts.append({})
        parts[-1][pattern] = of_pattern
    return parts
