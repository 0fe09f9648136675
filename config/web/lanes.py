"""Which threads a request may have: lanes by path, and in each lane the clients in turn. `config.web.threads` runs it.

A flood of one lane leaves the others their threads; a flood of one client leaves the others of its lane their turns.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from config.web.limits import QUEUED_MAX, QUEUED_PER_CLIENT_MAX, QUEUED_S_MAX

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Lane:
    """Threads for the paths that begin with one of `prefixes`; one client has `per_client` of them at most.

    While a preferred lane has requests, a lane that yields begins no more than `beside_preferred` at a time: all
    threads share one interpreter, and a page among a dozen others takes a dozen times as long.
    """

    name: str
    threads: int
    per_client: int
    prefixes: tuple[str, ...] = ()
    is_preferred: bool = False
    beside_preferred: int | None = None


# The first that fits; the last one is for everything else.
LANES = (
    Lane("health", 2, 2, ("/healthz",)),
    Lane("probes", 2, 1, ("/readyz", "/metrics")),
    Lane("operators", 4, 3, ("/operator/", "/api/v1/operator/"), is_preferred=True),
    Lane("sign-in", 3, 2, ("/accounts/",)),
    Lane("files", 2, 2, ("/static/", "/favicon.ico")),
    Lane("tenants", 14, 8, beside_preferred=2),
)
THREADS = sum(lane.threads for lane in LANES)


def lane_of(path: str) -> Lane:
    """The lane of a request's path as it was sent; a path that is spelled differently is a tenant's."""
    return next((lane for lane in LANES if path.startswith(lane.prefixes)), LANES[-1])


@dataclass(slots=True)
class Waiting(Generic[Item]):
    """A request that wants a thread."""

    client: str
    since_s: float
    item: Item


@dataclass(slots=True)
class LaneQueue(Generic[Item]):
    """The requests of one lane: those that wait, by client, and how many of each client have a thread."""

    lane: Lane
    _waiting: OrderedDict[str, deque[Waiting[Item]]] = field(default_factory=OrderedDict)
    _running: Counter[str] = field(default_factory=Counter)
    _length: int = 0

    def __len__(self) -> int:
        return self._length

    @property
    def running(self) -> int:
        return self._running.total()

    def put(self, waiting: Waiting[Item]) -> Waiting[Item] | None:
        """Lets a request wait. Returns the one that waits no more for it, None if there was room.

        In a full lane that is the latest request of the client with the most of them: a client that has few is never
        refused because others have many.
        """
        own = self._waiting.get(waiting.client)
        if own is not None and len(own) >= QUEUED_PER_CLIENT_MAX:
            return waiting
        displaced = None
        if self._length >= QUEUED_MAX:
            most = max(self._waiting, key=lambda client: len(self._waiting[client]))
            if len(self._waiting[most]) <= len(own or ()) + 1:
                return waiting
            displaced = self._waiting[most].pop()
            self._length -= 1
        self._waiting.setdefault(waiting.client, deque()).append(waiting)
        self._length += 1
        return displaced

    def take(self, *, is_preferred_busy: bool = False) -> Waiting[Item] | None:
        """The next one: clients in turn, and nobody above a client's share of the threads."""
        beside = self.lane.beside_preferred
        if is_preferred_busy and beside is not None and self.running >= beside:
            return None
        client = next((one for one in self._waiting if self._running[one] < self.lane.per_client), None)
        if client is None:
            return None
        queue = self._waiting[client]
        result = queue.popleft()
        if queue:
            self._waiting.move_to_end(client)
        else:
            del self._waiting[client]
        self._running[client] += 1
        self._length -= 1
        return result

    def finish(self, client: str) -> None:
        """A thread is done with a request of this client."""
        self._running[client] -= 1
        if self._running[client] <= 0:
            del self._running[client]

    def expired(self, now_s: float) -> Iterator[Waiting[Item]]:
        """Those that waited too long, and wait no more."""
        for client in list(self._waiting):
            queue = self._waiting[client]
            while queue and now_s - queue[0].since_s > QUEUED_S_MAX:
                self._length -= 1
                yield queue.popleft()
            if not queue:
                del self._waiting[client]
