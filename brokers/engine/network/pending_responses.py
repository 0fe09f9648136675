"""Responses that wait for an earlier response of their connection.

Only a request that waits for nothing but its acknowledgement may be overtaken in this way (decision 56): its response
is deferred, the next requests are processed, and all responses are sent in the order of the requests (WIRE-9).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from brokers.engine.network.buffers import UnsentBytes
from brokers.engine.network.sending import Outgoing

# Maximum number of deferred responses of one connection; then it reads no request until few are left.
PENDING_RESPONSES_MAX: Final = 128
# Maximum number of bytes of complete responses behind an incomplete one.
PENDING_BYTES_MAX: Final = 1_048_576


class PendingResponse:
    """One response, complete from the beginning, or deferred and completed by `complete`."""

    __slots__ = ("_is_complete", "_on_closed", "_pending_responses", "memory_bytes", "outgoing")

    def __init__(
        self, pending_responses: PendingResponses, outgoing: Outgoing | None, on_closed: Callable[[], object] | None
    ) -> None:
        self._pending_responses = pending_responses
        self._on_closed = on_closed
        self._is_complete = outgoing is not None
        self.outgoing = outgoing
        # Memory of a response that was complete from the beginning; a deferred one is small.
        self.memory_bytes = 0

    def complete(self, frame: bytes) -> None:
        """Sets the response. Does nothing if the connection has closed."""
        if not self._is_complete:
            self._is_complete = True
            self._on_closed = None
            self.outgoing = Outgoing([frame], None)
            self._pending_responses.on_completed()

    def drop(self) -> None:
        """Drops the response because the connection has closed."""
        on_closed, self._on_closed = self._on_closed, None
        if self.outgoing is not None:
            self.outgoing.finish()
        elif not self._is_complete and on_closed is not None:
            self._is_complete = True
            on_closed()


class PendingResponses:
    """Responses in the order of the requests. `on_first_complete` is called when the first one is complete, once until
    `pop_complete` is called. `memory_bytes` of added responses are counted in the instance's `unsent`.
    """

    __slots__ = ("_is_notified", "_on_first_complete", "_queue", "_unsent", "memory_bytes")

    def __init__(self, on_first_complete: Callable[[], object], unsent: UnsentBytes) -> None:
        self._unsent = unsent
        self.memory_bytes = 0
        self._queue: deque[PendingResponse] = deque()
        self._on_first_complete = on_first_complete
        self._is_notified = False

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        return len(self._queue) >= PENDING_RESPONSES_MAX or self.memory_bytes >= PENDING_BYTES_MAX

    @property
    def may_resume(self) -> bool:
        """True if few enough are left to continue reading."""
        return len(self._queue) < PENDING_RESPONSES_MAX // 2 and self.memory_bytes < PENDING_BYTES_MAX // 2

    def defer(self, on_closed: Callable[[], object]) -> PendingResponse:
        pending = PendingResponse(self, None, on_closed)
        self._queue.append(pending)
        return pending

    def add(self, outgoing: Outgoing) -> None:
        """Adds a complete response behind an incomplete one."""
        pending = PendingResponse(self, outgoing, None)
        self._queue.append(pending)
        memory_bytes = pending.memory_bytes = outgoing.memory_bytes
        self.memory_bytes += memory_bytes
        self._unsent.add(memory_bytes)

    def on_completed(self) -> None:
        if not self._is_notified and self._queue and self._queue[0].outgoing is not None:
            self._is_notified = True
            self._on_first_complete()

    def pop_complete(self) -> list[Outgoing]:
        """Removes and returns the complete responses at the head of the queue."""
        self._is_notified = False
        queue = self._queue
        complete_responses: list[Outgoing] = []
        while queue:
            pending = queue[0]
            outgoing = pending.outgoing
            if outgoing is None:
                break
            complete_responses.append(outgoing)
            queue.popleft()
            if pending.memory_bytes:
                self._uncount(pending.memory_bytes)
        return complete_responses

    def _uncount(self, memory_bytes: int) -> None:
        self.memory_bytes -= memory_bytes
        self._unsent.remove(memory_bytes)

    def drop(self) -> None:
        """Drops all responses because the connection has closed: calls `on_closed` of deferred ones, closes files."""
        queue = self._queue
        self._uncount(self.memory_bytes)
        while queue:
            queue.popleft().drop()
