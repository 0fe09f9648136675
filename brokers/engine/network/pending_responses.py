"""Answers that wait for their turn: requests of one connection that were processed while an earlier one still waits.

Only a request that is over but for its acknowledgement may be overtaken so (decision 56): its answer is promised, the
next requests are processed, and everything leaves in the order of the requests (WIRE-9).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from brokers.engine.network.sending import Outgoing
from brokers.engine.network.unsent import UnsentBytes

# So many answers of one connection may be promised and not there; then it waits for the first of them.
PENDING_RESPONSES_MAX: Final = 128
# Or so many bytes of answers that are there, behind one that is not.
PENDING_BYTES_MAX: Final = 1_048_576


class PendingResponse:
    """One answer: there from the beginning, or promised and given by `complete`."""

    __slots__ = ("_is_complete", "_on_closed", "_pending_responses", "memory_bytes", "outgoing")

    def __init__(
        self, pending_responses: PendingResponses, outgoing: Outgoing | None, on_closed: Callable[[], object] | None
    ) -> None:
        self._pending_responses = pending_responses
        self._on_closed = on_closed
        self._is_complete = outgoing is not None
        self.outgoing = outgoing
        # Of an answer that was there from the beginning; one that is completed is small.
        self.memory_bytes = 0

    def complete(self, frame: bytes) -> None:
        """The answer is there. Nothing happens when the connection is gone."""
        if not self._is_complete:
            self._is_complete = True
            self._on_closed = None
            self.outgoing = Outgoing([frame], None)
            self._pending_responses.on_completed()

    def drop(self) -> None:
        """The connection is gone."""
        on_closed, self._on_closed = self._on_closed, None
        if self.outgoing is not None:
            self.outgoing.finish()
        elif not self._is_complete and on_closed is not None:
            self._is_complete = True
            on_closed()


class PendingResponses:
    """In order of the requests. `on_first` is called when the first one is there, once until `take` was called.
    `memory_bytes` of answers that were added are part of the instance's `unsent`.
    """

    __slots__ = ("_is_notified", "_on_first", "_queue", "_unsent", "memory_bytes")

    def __init__(self, on_first: Callable[[], object], unsent: UnsentBytes) -> None:
        self._unsent = unsent
        self.memory_bytes = 0
        self._queue: deque[PendingResponse] = deque()
        self._on_first = on_first
        self._is_notified = False

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def are_too_many(self) -> bool:
        return len(self._queue) >= PENDING_RESPONSES_MAX or self.memory_bytes >= PENDING_BYTES_MAX

    @property
    def are_few(self) -> bool:
        """Enough of them left to go on."""
        return len(self._queue) < PENDING_RESPONSES_MAX // 2 and self.memory_bytes < PENDING_BYTES_MAX // 2

    def defer(self, on_closed: Callable[[], object]) -> PendingResponse:
        pending = PendingResponse(self, None, on_closed)
        self._queue.append(pending)
        return pending

    def add(self, outgoing: Outgoing) -> None:
        """An answer that is there already, behind one that is not."""
        pending = PendingResponse(self, outgoing, None)
        self._queue.append(pending)
        memory_bytes = pending.memory_bytes = outgoing.memory_bytes
        self.memory_bytes += memory_bytes
        self._unsent.add(memory_bytes)

    def on_completed(self) -> None:
        if not self._is_notified and self._queue and self._queue[0].outgoing is not None:
            self._is_notified = True
            self._on_first()

    def take(self) -> list[Outgoing]:
        """Everything whose turn it is."""
        self._is_notified = False
        queue = self._queue
        taken: list[Outgoing] = []
        while queue:
            first = queue[0]
            outgoing = first.outgoing
            if outgoing is None:
                break
            taken.append(outgoing)
            queue.popleft()
            if first.memory_bytes:
                self._forget(first.memory_bytes)
        return taken

    def _forget(self, memory_bytes: int) -> None:
        self.memory_bytes -= memory_bytes
        self._unsent.remove(memory_bytes)

    def drop(self) -> None:
        """The connection is gone: who promised is told, files are let go."""
        queue = self._queue
        self._forget(self.memory_bytes)
        while queue:
            queue.popleft().drop()
