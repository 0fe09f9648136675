"""Replacement of ZooKeeper's tree in a process without ZooKeeper: every read and write raises StoreUnavailable."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from brokers.engine.cluster.errors import StoreUnavailable
from brokers.engine.cluster.tree import Node, Operation, SessionState, Watch


class NoTree:
    """Implementation of `tree.Tree` that always raises StoreUnavailable."""

    session_id = 0

    async def get(self, path: str, watch: Watch | None = None) -> Node | None:
        raise StoreUnavailable(_REASON)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        raise StoreUnavailable(_REASON)

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        raise StoreUnavailable(_REASON)

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        raise StoreUnavailable(_REASON)

    async def commit(self, operations: Sequence[Operation]) -> list[str]:
        raise StoreUnavailable(_REASON)

    def subscribe(self, on_state: Callable[[SessionState], None]) -> None:
        """Does nothing, since there are no sessions."""


_REASON = "a gateway has no ZooKeeper"
