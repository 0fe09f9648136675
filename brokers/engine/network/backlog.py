"""Queue of a connection's unsent output, which is sent in order when the socket is writable and the data is cached."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from socket import socket
from time import perf_counter
from typing import Final

from brokers.engine.network.buffers import UnsentBytes
from brokers.engine.network.sending import Outgoing
from brokers.engine.scheduling.fair_turns import InstanceTurns, QueuedWork
from brokers.engine.values import Slice

# Bytes that a thread reads for one connection before it serves the next: some milliseconds of a disk.
PREFETCHED_BYTES_MAX: Final = 1_048_576


class Backlog:
    """Unsent output of one connection. `on_event` is called with None after progress, or with the reason why the
    connection is unusable; the owner then calls `close`.

    `is_empty`: all output is sent. `is_prefetching`: a thread of `readers` waits for the disk. `memory_bytes` is also
    counted in `unsent`, which limits the memory of an instance. A writable socket waits for the turn of its instance.
    """

    __slots__ = (
        "_is_closed", "_is_queued", "_is_watching", "_loop", "_on_event", "_queue", "_readers", "_socket", "_turns",
        "_unsent", "is_prefetching", "memory_bytes",
    )  # fmt: skip

    def __init__(
        self,
        sock: socket,
        loop: asyncio.AbstractEventLoop,
        readers: Executor,
        on_event: Callable[[str | None], object],
        unsent: UnsentBytes,
        turns: InstanceTurns,
    ) -> None:
        self._unsent = unsent
        self._turns = turns
        self._is_queued = False
        self.memory_bytes = 0
        self._socket = sock
        self._loop = loop
        self._readers = readers
        self._on_event = on_event
        self._queue: deque[Outgoing] = deque()
        self._is_watching = False
        self._is_closed = False
        self.is_prefetching = False

    @property
    def is_empty(self) -> bool:
        return not self._queue

    def add(self, outgoing: Outgoing) -> None:
        """Queues `outgoing` to be sent after all before it; with an empty queue the caller has tried to send it."""
        self._queue.append(outgoing)
        memory_bytes = outgoing.memory_bytes
        self.memory_bytes += memory_bytes
        self._unsent.add(memory_bytes)
        if len(self._queue) == 1:
            self._await_writable_or_disk(outgoing.uncached)

    def _await_writable_or_disk(self, uncached: Slice | None) -> None:
        self._watch(uncached is None)
        if uncached is None:
            return
        self.is_prefetching = True
        length = min(uncached.length, PREFETCHED_BYTES_MAX)
        prefetching = self._loop.run_in_executor(self._readers, uncached.prefetch, length)
        prefetching.add_done_callback(lambda future: self._on_prefetched(future, length))

    def _on_prefetched(self, future: asyncio.Future[None], length: int) -> None:
        self.is_prefetching = False
        failure = None if future.cancelled() else future.exception()
        if self._is_closed:
            self._finish_queued()
            return
        outgoing = self._queue[0]
        if future.cancelled():
            self._on_event("the broker stops")
            return
        if failure is not None:
            if isinstance(failure, OSError) and outgoing.uncached is not None:
                outgoing.uncached.report_failure(failure)
            self._on_event(f"a segment cannot be read: {failure}")
            return
        outgoing.on_prefetched(length)
        QueuedWork(self._turns, self._send_after_prefetch).begin()

    def _send_after_prefetch(self) -> None:
        """Continues when the disk has delivered and the turn of the instance has come."""
        if not self._is_closed:
            self._send_queued()

    def _on_writable(self) -> None:
        if self._is_queued:
            self._watch(False)
            return
        turns = self._turns
        began_s = perf_counter()
        if turns.may_have_to_queue and turns.must_queue(began_s):
            self._is_queued = True
            turns.enqueue(self)
            return
        self._send_queued()
        turns.charge(began_s, perf_counter())

    def on_turn(self) -> None:
        """Continues in the turn of the instance (`fair_turns.Waiter`)."""
        self._is_queued = False
        if not self._is_closed and not self.is_prefetching:
            self._send_queued()

    def _send_queued(self) -> None:
        """Sends until the queue is empty, the socket has no room, or the next data is not in the page cache."""
        queue = self._queue
        while queue:
            outgoing = queue[0]
            try:
                if not outgoing.send(self._socket):
                    self._await_writable_or_disk(outgoing.uncached)
                    break
            except OSError as error:
                self._on_event(error.strerror or "connection lost")
                return
            self._finish(queue.popleft())
        if not queue:
            self._watch(False)
        self._on_event(None)

    def _watch(self, is_enabled: bool) -> None:
        """Starts or stops watching for a writable socket."""
        if is_enabled == self._is_watching:
            return
        self._is_watching = is_enabled
        if is_enabled:
            self._loop.add_writer(self._socket.fileno(), self._on_writable)
        else:
            self._loop.remove_writer(self._socket.fileno())

    def close(self) -> None:
        """Ends the output before the socket is closed. Files stay open while a thread reads them."""
        self._is_closed = True
        self._watch(False)
        if not self.is_prefetching:
            self._finish_queued()

    def _finish_queued(self) -> None:
        queue = self._queue
        while queue:
            self._finish(queue.popleft())

    def _finish(self, outgoing: Outgoing) -> None:
        memory_bytes = outgoing.memory_bytes
        self.memory_bytes -= memory_bytes
        self._unsent.remove(memory_bytes)
        outgoing.finish()
