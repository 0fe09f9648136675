"""Sharing of threads among requests: lanes by path, and round robin over clients in each lane.

`config.web.threads` runs it. A flood in one lane does not affect other lanes, and a flood of one client does not affect
other clients of its lane.
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
    """Threads for paths that begin with one of `prefixes`; a client gets at most `threads_per_client` of them.

    While a preferred lane has requests, a yielding lane runs at most `threads_beside_preferred` at a time: all threads
    share one interpreter, so a page beside a dozen others takes a dozen times as long.
    """

    name: str
    threads: int
    threads_per_client: int
    prefixes: tuple[str, ...] = ()
    is_preferred: bool = False
    threads_beside_preferred: int | None = None


# Steps of live responses (`config.web.live`). The tenant is the client in this lane, and no path leads into it.
LIVE = Lane("live", 3, 1)
# The first matching lane is used; the last one matches everything.
LANES = (
    Lane("health", 2, 2, ("/healthz",)),
    Lane("probes", 2, 1, ("/readyz", "/metrics")),
    Lane("operators", 4, 3, ("/operator/", "/api/v1/operator/"), is_preferred=True),
    # Agents of hosts: many at once must not wait for pages, nor pages for them.
    Lane("agents", 2, 2, ("/api/v1/agent/",)),
    Lane("sign-in", 3, 2, ("/accounts/",)),
    Lane("files", 2, 2, ("/static/", "/favicon.ico")),
    LIVE,
    Lane("tenants", 14, 8, threads_beside_preferred=2),
)
THREADS = sum(lane.threads for lane in LANES)


def lane_of(path: str) -> Lane:
    """Returns the lane of a request's path as it was sent; unusual spellings go to the tenants' lane."""
    return next((lane for lane in LANES if path.startswith(lane.prefixes)), LANES[-1])


@dataclass(slots=True)
class WaitingRequest(Generic[Item]):
    """Request that waits for a thread."""

    client: str
    since_s: float
    item: Item


@dataclass(slots=True)
class LaneQueue(Generic[Item]):
    """Requests of one lane: waiting ones by client, and the number of running ones by client."""

    lane: Lane
    _waiting: OrderedDict[str, deque[WaitingRequest[Item]]] = field(default_factory=OrderedDict)
    _running: Counter[str] = field(default_factory=Counter)
    _length: int = 0

    def __len__(self) -> int:
        return self._length

    @property
    def running(self) -> int:
        return self._running.total()

    def put(self, waiting: WaitingRequest[Item]) -> WaitingRequest[Item] | None:
        """Enqueues a request. Returns the request that is displaced by it, None if there was room.

        In a full lane that is the latest request of the client with the most requests, so that a client with few is
        never refused because of others.
        """
        client_queue = self._waiting.get(waiting.client)
        if client_queue is not None and len(client_queue) >= QUEUED_PER_CLIENT_MAX:
            return waiting
        displaced = None
        if self._length >= QUEUED_MAX:
            busiest = max(self._waiting, key=lambda client: len(self._waiting[client]))
            if len(self._waiting[busiest]) <= len(client_queue or ()) + 1:
                return waiting
            displaced = self._waiting[busiest].pop()
            self._length -= 1
        self._waiting.setdefault(waiting.client, deque()).append(waiting)
        self._length += 1
        return displaced

    def take(self, *, is_preferred_busy: bool = False) -> WaitingRequest[Item] | None:
        """Returns the next request: round robin over clients below their share of threads."""
        running_max = self.lane.threads_beside_preferred
        if is_preferred_busy and running_max is not None and self.running >= running_max:
            return None
        client = next(
            (candidate for candidate in self._waiting if self._running[candidate] < self.lane.threads_per_client), None
        )
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
        """Records that a thread finished a request of this client."""
        self._running[client] -= 1
        if self._running[client] <= 0:
            del self._running[client]

    def pop_expired(self, now_s: float) -> Iterator[WaitingRequest[Item]]:
        """Removes and yields requests that waited too long."""
        for client in list(self._waiting):
            queue = self._waiting[client]
            while queue and now_s - queue[0].since_s > QUEUED_S_MAX:
                self._length -= 1
                yield queue.popleft()
            if not queue:
                del self._waiting[client]
