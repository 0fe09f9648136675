"""Data of the simulated ZooKeeper: nodes with versions, atomic transactions, one-shot watches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from brokers.engine.cluster import tree
from brokers.engine.cluster.tree import Create, Delete, Node, Operation, Set

Undo = Callable[[], object]


class StoredNode:
    """One node. `sent` is its form for readers, made at the first read after a change."""

    __slots__ = ("children", "created_count", "created_ms", "czxid", "data", "mzxid", "node_read", "owner", "version")

    def __init__(self, data: bytes, zxid: int, owner: int, created_ms: int) -> None:
        self.data = data
        self.version = 0
        self.czxid = self.mzxid = zxid
        self.owner = owner
        self.created_ms = created_ms
        self.children: dict[str, None] = {}
        # Number of children ever created, the number of the next sequential one.
        self.created_count = 0
        self.node_read: Node | None = None


class CommittedChanges(NamedTuple):
    """A committed transaction: `touched` are written or removed paths, `listed` paths whose children have changed."""

    paths: list[str]
    touched: list[str]
    listed: list[str]


class StoredTree:
    """The tree that all sessions see. `on_write(path, data)` is called for every write, with None for a removal."""

    def __init__(self) -> None:
        self.nodes: dict[str, StoredNode] = {"/": StoredNode(b"", 0, 0, 0)}
        self.zxid = 0
        self.on_write: Callable[[str, bytes | None, int], object] = lambda path, data, session: None

    def read(self, path: str) -> Node | None:
        node = self.nodes.get(path)
        if node is None:
            return None
        result = node.node_read
        if result is None:
            result = Node(node.data, node.version, node.czxid, node.mzxid, node.owner, node.created_ms)
            node.node_read = result
        return result

    def children(self, path: str) -> list[str] | None:
        node = self.nodes.get(path)
        return None if node is None else list(node.children)

    def of_session(self, session: int) -> list[str]:
        return [path for path, node in self.nodes.items() if node.owner == session]

    def commit(self, operations: Sequence[Operation], session: int, now_ms: int) -> CommittedChanges:
        """Commits operations atomically. Raises the TreeError of the first operation that fails."""
        self.zxid += 1
        undo: list[Undo] = []
        written = CommittedChanges([], [], [])
        changed: list[tuple[str, bytes | None]] = []
        try:
            for index, operation in enumerate(operations):
                self._apply(operation, index, session, now_ms, undo, written, changed)
        except tree.TreeError:
            for take_back in reversed(undo):
                take_back()
            raise
        for path, data in changed:
            self.on_write(path, data, session)
        return written

    def _apply(
        self,
        operation: Operation,
        index: int,
        session: int,
        now_ms: int,
        undo: list[Undo],
        written: CommittedChanges,
        changed: list[tuple[str, bytes | None]],
    ) -> None:
        if isinstance(operation, Create):
            path = self._create(operation, index, session, now_ms, undo)
            written.paths.append(path)
            written.touched.append(path)
            written.listed.append(_parent(path))
            changed.append((path, operation.data))
            return
        path = operation.path
        node = self.nodes.get(path)
        if node is None:
            raise tree.NoNode(path, index)
        if operation.version is not None and operation.version != node.version:
            raise tree.BadVersion(path, index)
        written.paths.append(path)
        if isinstance(operation, Set):
            before = (node.data, node.version, node.mzxid)

            def restore(node: StoredNode = node, before: tuple[bytes, int, int] = before) -> None:
                node.data, node.version, node.mzxid = before
                node.node_read = None

            undo.append(restore)
            node.data, node.version, node.mzxid = operation.data, node.version + 1, self.zxid
            node.node_read = None
            written.touched.append(path)
            changed.append((path, operation.data))
        elif isinstance(operation, Delete):
            if node.children:
                raise tree.NotEmpty(path, index)
            parent, name = self.nodes[_parent(path)], path.rpartition("/")[2]
            del self.nodes[path]
            del parent.children[name]

            def put_back(
                path: str = path, node: StoredNode = node, parent: StoredNode = parent, name: str = name
            ) -> None:
                self.nodes[path] = node
                parent.children[name] = None

            undo.append(put_back)
            written.touched.append(path)
            written.listed.append(_parent(path))
            changed.append((path, None))

    def _create(self, operation: Create, index: int, session: int, now_ms: int, undo: list[Undo]) -> str:
        parent = self.nodes.get(_parent(operation.path))
        if parent is None:
            raise tree.NoNode(operation.path, index)
        path = f"{operation.path}{parent.created_count:010d}" if operation.sequence else operation.path
        if path in self.nodes:
            raise tree.NodeExists(path, index)
        name = path.rpartition("/")[2]
        self.nodes[path] = StoredNode(operation.data, self.zxid, session if operation.ephemeral else 0, now_ms)
        parent.children[name] = None
        parent.created_count += 1

        def remove() -> None:
            del self.nodes[path]
            del parent.children[name]
            parent.created_count -= 1

        undo.append(remove)
        return path


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
