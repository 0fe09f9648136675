"""The port to ZooKeeper: nodes, versions, one-shot watches, atomic transactions, a session. No kazoo here.

`zookeeper.ZooKeeperTree` speaks to a real ensemble; tests plug an in-process one. Every method runs on the event
loop, and every watch and session call-back is called on it. A version is an int to compare, or None for "whatever is
there".
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Watch = Callable[[], None]

READS_IN_FLIGHT_MAX = 512
# Of these, that are asked for in one turn of the loop: some 50 us each.
READS_AT_ONCE_MAX = 64


class SessionState(enum.Enum):
    """SUSPENDED: the connection is gone, the session may live. LOST: its ephemerals are gone; a next one will begin."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Node:
    """One read. `czxid` names the incarnation (a broker's epoch), `mzxid` the last write, `owner` the session or 0."""

    data: bytes
    version: int
    czxid: int
    mzxid: int
    owner: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    path: str
    data: bytes
    version: int | None


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int | None


@dataclass(frozen=True, slots=True)
class Check:
    """Holds the transaction to a node's version without writing it."""

    path: str
    version: int


Operation = Create | Set | Delete | Check


class TreeError(Exception):
    """`index` is the operation of the transaction that failed, 0 for a single call."""

    def __init__(self, message: str, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


class NodeExists(TreeError):
    pass


class NoNode(TreeError):
    pass


class BadVersion(TreeError):
    pass


class NotEmpty(TreeError):
    """A node with children cannot be deleted."""


class Tree(Protocol):
    """All calls raise `errors.StoreUnavailable` when the ensemble does not answer."""

    @property
    def session_id(self) -> int:
        """The present session, 0 while there is none."""

    async def get(self, path: str, watch: Watch | None = None) -> Node | None:
        """The node, or None; the watch fires once on change, deletion, or creation of a missing node."""

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Pipelined reads, answers in order; in flight at once at most `READS_IN_FLIGHT_MAX`."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        """Unsorted names, or None when the node is missing (the watch is then not set)."""

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """As `get_many`."""

    async def commit(self, operations: Sequence[Operation]) -> list[str]:
        """All or nothing, in order; answers the paths written (with the sequence number for sequential nodes).

        Raises:
            TreeError: of the first operation that failed; nothing was written.
        """

    def subscribe(self, on_state: Callable[[SessionState], None]) -> None:
        """Tells each change of the session's state, on the loop, in order."""
