"""An in-process ZooKeeper ensemble for fast tests: versions, transactions, sequences, ephemerals, one-shot watches,
sessions.

    ensemble = FakeEnsemble()
    tree = ensemble.connect()          # one session, usable wherever a `cluster.tree.Tree` is
    ensemble.expire(tree)              # its ephemerals go; its states are LOST, then CONNECTED with another session
    ensemble.suspend(tree); ensemble.resume(tree)
    tree.before_commit = hook          # called with the operations; may raise or change the tree first

Watches and session changes are delivered through the loop, never inside the call that caused them, as with the real
one.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from brokers.engine.cluster import tree
from brokers.engine.cluster.errors import StoreUnavailable
from brokers.engine.cluster.tree import Check, Create, Delete, Node, Operation, SessionState, Set, Watch


@dataclass
class _Stored:
    data: bytes
    czxid: int
    mzxid: int
    owner: int
    created_ms: int
    version: int = 0
    created_children: int = 0
    children: set[str] = field(default_factory=set)

    def copy(self) -> _Stored:
        return _Stored(
            self.data, self.czxid, self.mzxid, self.owner, self.created_ms, self.version, self.created_children,
            set(self.children),
        )  # fmt: skip


class FakeEnsemble:
    """An in-memory ensemble. `now_ms` is its clock, which a test sets."""

    def __init__(self) -> None:
        self.nodes: dict[str, _Stored] = {"/": _Stored(b"", 0, 0, 0, 0)}
        self.zxid = 0
        self.now_ms = 1_000_000
        self.transactions = 0
        self._sessions = itertools.count(1)
        self._data_watches: dict[str, list[tuple[FakeTree, Watch]]] = {}
        self._child_watches: dict[str, list[tuple[FakeTree, Watch]]] = {}

    def connect(self) -> FakeTree:
        return FakeTree(self, next(self._sessions))

    def expire(self, session: FakeTree) -> None:
        """Ends the session; the client gets another one at once."""
        self.end(session)
        session._notify_state(SessionState.LOST)
        session.session_id = next(self._sessions)
        session.available = True
        session._notify_state(SessionState.CONNECTED)

    def end(self, session: FakeTree) -> None:
        """Ends a session whose process is dead: its ephemerals go, and only watchers are notified."""
        ended_session_id = session.session_id
        session.session_id = 0
        session.available = False
        self._drop_watches(session)
        for path in [path for path, node in self.nodes.items() if node.owner == ended_session_id]:
            self.commit(session, [Delete(path, None)])

    def suspend(self, session: FakeTree) -> None:
        session.available = False
        session._notify_state(SessionState.SUSPENDED)
        for watches in (self._data_watches, self._child_watches):
            for path in list(watches):
                for owner, watch in watches[path]:
                    if owner is session:
                        _call_soon(watch)
        self._drop_watches(session)

    def resume(self, session: FakeTree) -> None:
        session.available = True
        session._notify_state(SessionState.CONNECTED)

    def _drop_watches(self, session: FakeTree) -> None:
        for watches in (self._data_watches, self._child_watches):
            for path in list(watches):
                watches[path] = [pair for pair in watches[path] if pair[0] is not session]

    def commit(self, session: FakeTree, operations: Sequence[Operation]) -> list[str]:
        paths_ = {path for operation in operations for path in (operation.path, _parent(operation.path))}
        before = {path: self.nodes[path].copy() for path in paths_ if path in self.nodes}
        changed_paths: list[str] = []
        self.zxid += 1
        try:
            created_paths = [
                self._apply(session, operation, index, changed_paths) for index, operation in enumerate(operations)
            ]
        except tree.TreeError:
            for path in paths_.union(changed_paths) - before.keys():
                self.nodes.pop(path, None)
            self.nodes.update(before)
            raise
        self.transactions += 1
        for path in changed_paths:
            self._fire(self._data_watches, path)
        for operation, path in zip(operations, created_paths, strict=True):
            if isinstance(operation, Create | Delete):
                self._fire(self._child_watches, _parent(path))
        return created_paths

    def _apply(self, session: FakeTree, operation: Operation, index: int, touched: list[str]) -> str:
        if isinstance(operation, Create):
            return self._create(session, operation, index, touched)
        node = self.nodes.get(operation.path)
        if node is None:
            raise tree.NoNode(operation.path, index)
        if operation.version is not None and operation.version != node.version:
            raise tree.BadVersion(operation.path, index)
        if isinstance(operation, Set):
            node.data, node.version, node.mzxid = operation.data, node.version + 1, self.zxid
            touched.append(operation.path)
        elif isinstance(operation, Delete):
            if node.children:
                raise tree.NotEmpty(operation.path, index)
            del self.nodes[operation.path]
            self.nodes[_parent(operation.path)].children.discard(operation.path.rpartition("/")[2])
            touched.append(operation.path)
        else:
            assert isinstance(operation, Check)
        return operation.path

    def _create(self, session: FakeTree, operation: Create, index: int, touched: list[str]) -> str:
        parent = self.nodes.get(_parent(operation.path))
        if parent is None:
            raise tree.NoNode(operation.path, index)
        path = f"{operation.path}{parent.created_children:010d}" if operation.sequence else operation.path
        if path in self.nodes:
            raise tree.NodeExists(path, index)
        owner = session.session_id if operation.ephemeral else 0
        self.nodes[path] = _Stored(operation.data, self.zxid, self.zxid, owner, self.now_ms)
        parent.children.add(path.rpartition("/")[2])
        parent.created_children += 1
        touched.append(path)
        return path

    def _fire(self, watches: dict[str, list[tuple[FakeTree, Watch]]], path: str) -> None:
        for _, watch in watches.pop(path, []):
            _call_soon(watch)

    def watch_data(self, session: FakeTree, path: str, watch: Watch) -> None:
        self._data_watches.setdefault(path, []).append((session, watch))

    def watch_children(self, session: FakeTree, path: str, watch: Watch) -> None:
        self._child_watches.setdefault(path, []).append((session, watch))


class FakeTree:
    """One session with the ensemble, implementing `cluster.tree.Tree`."""

    def __init__(self, ensemble: FakeEnsemble, session_id: int) -> None:
        self.ensemble = ensemble
        self.session_id = session_id
        self.available = True
        self.before_commit: Callable[[Sequence[Operation]], None] | None = None
        self.reads = 0
        self._subscribers: list[Callable[[SessionState], None]] = []

    def subscribe(self, on_state: Callable[[SessionState], None]) -> None:
        self._subscribers.append(on_state)

    async def get(self, path: str, watch: Watch | None = None) -> Node | None:
        await self._respond_later()
        if watch is not None:
            self.ensemble.watch_data(self, path, watch)
        return self._read(path)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        if paths:
            await self._respond_later()
        return [self._read(path) for path in paths]

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        await self._respond_later()
        node = self.ensemble.nodes.get(path)
        if node is None:
            return None
        if watch is not None:
            self.ensemble.watch_children(self, path, watch)
        return list(node.children)

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        return [await self.children(path) for path in paths]

    async def commit(self, operations: Sequence[Operation]) -> list[str]:
        await self._respond_later()
        if self.before_commit is not None:
            self.before_commit(operations)
        return self.ensemble.commit(self, operations)

    async def _respond_later(self) -> None:
        if not self.available:
            raise StoreUnavailable("suspended")
        self.reads += 1
        # Yields, so that two tasks interleave as they would over a network.
        await _yield()
        if not self.available:
            raise StoreUnavailable("suspended")

    def _read(self, path: str) -> Node | None:
        node = self.ensemble.nodes.get(path)
        if node is None:
            return None
        return Node(node.data, node.version, node.czxid, node.mzxid, node.owner, node.created_ms)

    def _notify_state(self, state: SessionState) -> None:
        for subscriber in self._subscribers:
            _call_soon(lambda subscriber=subscriber: subscriber(state))


async def _yield() -> None:
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(lambda: future.done() or future.set_result(None))
    await future


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _call_soon(call: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(call)
