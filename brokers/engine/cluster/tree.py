"""Interface to ZooKeeper: nodes, versions, one-shot watches, atomic transactions, a session. Independent of kazoo.

`zookeeper.ZooKeeperTree` uses a real ensemble, tests use one in the process. Every method runs on the event loop, and
so does every callback of watches and sessions. A version is a number to compare with, or None for any version.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Watch = Callable[[], None]

READS_IN_FLIGHT_MAX = 512
# Maximum number of reads that are sent without yielding to the event loop; each takes about 50 us.
READS_PER_TURN_MAX = 64


class SessionState(enum.Enum):
    """State of the session with ZooKeeper.

    SUSPENDED: the connection is lost, and the session may be alive. LOST: the session has ended with its ephemeral
    nodes, and another one will begin.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Node:
    """A node as read; `czxid` identifies the incarnation (broker epoch), `mzxid` the last write, `owner` the session or
    0.
    """

    data: bytes
    version: int
    czxid: int
    mzxid: int
    owner: int
    created_ms: int


@dataclass(frozen=True, slots=True)
class Create:
    """Creates a node; with `sequence`, ZooKeeper appends the next number of the parent to the path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replaces the data of a node that has this version."""

    path: str
    data: bytes
    version: int | None


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a node that has this version and no children."""

    path: str
    version: int | None


@dataclass(frozen=True, slots=True)
class Check:
    """Makes the transaction fail unless the node has this version, without writing it."""

    path: str
    version: int


Operation = Create | Set | Delete | Check


class TreeError(Exception):
    """Failure of an operation; `index` is its position in the transaction, 0 for a single call."""

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
    """The node has children and cannot be deleted."""


class Tree(Protocol):
    """ZooKeeper tree; all calls raise `errors.StoreUnavailable` when the ensemble does not answer."""

    @property
    def session_id(self) -> int:
        """Id of the current session, 0 while there is none."""

    async def get(self, path: str, watch: Watch | None = None) -> Node | None:
        """Returns the node, or None; the watch fires once on change, deletion, or creation of a missing node."""

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Returns the nodes in order, with pipelined reads of which at most `READS_IN_FLIGHT_MAX` are in flight."""

    async def children(self, path: str, watch: Watch | None = None) -> list[str] | None:
        """Returns unsorted names, or None if the node is missing (the watch is then not set)."""

    async def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Returns the names of several nodes, pipelined like `get_many`."""

    async def commit(self, operations: Sequence[Operation]) -> list[str]:
        """Executes all operations in order, or none; returns the paths written (with the number of sequential nodes).

        Raises:
            TreeError: the error of the first operation that failed; nothing was written.
        """

    def subscribe(self, on_state: Callable[[SessionState], None]) -> None:
        """Calls `on_state` for each change of the session's state, on the event loop, in order."""
