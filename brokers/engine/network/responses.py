"""The answering half of a connection: responses leave in the order of the requests, what the socket does not take at
once waits, and a client over its limits is left in silence (WIRE-9, QUO-30, QUO-32).

An answer that is only owed (`defer`) does not keep the next requests waiting; `pending_responses` keeps the order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from socket import MSG_NOSIGNAL, socket
from typing import Final

from brokers.engine.network.backlog import Backlog
from brokers.engine.network.pending_responses import PendingResponse, PendingResponses
from brokers.engine.network.sending import OnWritten, Outgoing, joined_up
from brokers.engine.values import Slice

# Why nothing is read.
PROCESSING: Final = 1
WRITING: Final = 2
MUTED: Final = 4
NO_BUFFER: Final = 8
TOO_MANY_PENDING: Final = 16

# So many answers of one connection may be promised and not there; then it waits for the first of them.
PENDING_RESPONSES_MAX: Final = 128


class Answering:
    """What a `Connection` is to whoever answers its requests."""

    __slots__ = (
        "_backlog",
        "_busy",
        "_consuming",
        "_corked",
        "_loop",
        "_mute_timer",
        "_pending_responses",
        "_readers",
        "_socket",
        "closed",
        "idle_ticks",
    )

    def __init__(self, sock: socket, loop: asyncio.AbstractEventLoop, readers: Executor) -> None:
        self._socket = sock
        self._loop = loop
        self._readers = readers
        self._busy = 0
        self._consuming = False
        self._corked: list[bytes] | None = None
        self._backlog: Backlog | None = None
        self._pending_responses: PendingResponses | None = None
        self._mute_timer: asyncio.TimerHandle | None = None
        self.closed = False
        self.idle_ticks = 0

    def _resume(self) -> None:
        """Nothing keeps the next request from being read."""
        raise AssertionError("the reading half says how")

    def close(self, reason: str) -> None:
        """Ends it all; harmless when repeated."""
        raise AssertionError("the reading half says how")

    def respond(self, frame: bytes, delay_ms: int = 0) -> None:
        """The answer to the request in processing, then silence for `delay_ms` (QUO-30)."""
        if self.closed:
            return
        if delay_ms > 0:
            self._mute(delay_ms)
        if self._pending_responses is not None:
            self._queue_response(self._pending_responses, Outgoing([frame], None))
            return
        if self._corked is not None:
            self._corked.append(frame)
            self._busy &= ~PROCESSING
            return
        if self._backlog is not None:
            self._busy &= ~PROCESSING
            self._backlog.add(Outgoing([frame], None))
            return
        try:
            count = self._socket.send(frame, MSG_NOSIGNAL)
        except (BlockingIOError, InterruptedError):
            count = 0
        except OSError as error:
            self.close(error.strerror or "connection lost")
            return
        self._busy &= ~PROCESSING
        if count < len(frame):
            self._write_later(Outgoing([frame[count:]], None))
        elif not self._busy and not self._consuming:
            self._resume()

    def respond_parts(
        self, parts: Sequence[bytes | Slice], delay_ms: int = 0, on_written: OnWritten | None = None
    ) -> None:
        """As `respond`, for a frame in pieces; takes over the slices. `on_written` is called once, at the end of it
        all.
        """
        outgoing = Outgoing(parts, on_written)
        if self.closed:
            outgoing.finish()
            return
        if delay_ms > 0:
            self._mute(delay_ms)
        if self._pending_responses is not None:
            self._queue_response(self._pending_responses, outgoing)
            return
        if self._corked is not None:
            self._uncork()
        self._busy &= ~PROCESSING
        if self._backlog is not None or not self._try_sending(outgoing):
            self._write_later(outgoing)
        elif not self._busy and not self._consuming and not self.closed:
            self._resume()

    def finish_without_response(self, delay_ms: int = 0) -> None:
        """For acks=0: nothing is sent, but the mute holds (QUO-32)."""
        if self.closed:
            return
        if delay_ms > 0:
            self._mute(delay_ms)
        self._busy &= ~PROCESSING
        if not self._busy and not self._consuming:
            self._resume()

    def defer(self, on_closed: Callable[[], object]) -> PendingResponse:
        """The request in processing is answered later, by `complete`, and the next ones are processed meanwhile.
        `on_closed` is called instead if the connection goes first.
        """
        pending_responses = self._pending_responses
        if pending_responses is None:
            pending_responses = self._pending_responses = PendingResponses(self._on_first_complete)
        pending = pending_responses.defer(on_closed)
        self._busy &= ~PROCESSING
        if len(pending_responses) >= PENDING_RESPONSES_MAX:
            self._busy |= TOO_MANY_PENDING
        return pending

    def _queue_response(self, pending_responses: PendingResponses, outgoing: Outgoing) -> None:
        pending_responses.add(outgoing)
        self._busy &= ~PROCESSING
        if len(pending_responses) >= PENDING_RESPONSES_MAX:
            self._busy |= TOO_MANY_PENDING
        elif not self._busy and not self._consuming:
            self._resume()

    def _on_first_complete(self) -> None:
        # Not at once: this runs inside another connection's request, and the next promises are mostly kept with it.
        self._loop.call_soon(self._send_pending)

    def _send_pending(self) -> None:
        pending_responses = self._pending_responses
        if pending_responses is None or self.closed:
            return
        taken = pending_responses.take()
        if not pending_responses:
            self._pending_responses = None
        if len(taken) > 1:
            taken = joined_up(taken)
        for outgoing in taken:
            if self.closed:
                outgoing.finish()
            elif self._backlog is not None or not self._try_sending(outgoing):
                self._write_later(outgoing)
        if self._busy & TOO_MANY_PENDING and len(pending_responses) < PENDING_RESPONSES_MAX // 2:
            self._busy &= ~TOO_MANY_PENDING
        if not self._busy and not self._consuming and not self.closed:
            self._resume()

    def _try_sending(self, outgoing: Outgoing) -> bool:
        """True when it is done with, one way or the other."""
        try:
            if not outgoing.send(self._socket):
                return False
        except OSError as error:
            outgoing.finish()
            self.close(error.strerror or "connection lost")
            return True
        outgoing.finish()
        return True

    def _uncork(self) -> None:
        frames, self._corked = self._corked, None
        if not frames or self.closed:
            return
        outgoing = Outgoing(frames, None)
        if not self._try_sending(outgoing):
            self._write_later(outgoing)

    def _write_later(self, outgoing: Outgoing) -> None:
        backlog = self._backlog
        if backlog is None:
            self._busy |= WRITING
            backlog = self._backlog = Backlog(self._socket, self._loop, self._readers, self._on_writing)
        backlog.add(outgoing)

    def _on_writing(self, trouble: str | None) -> None:
        """The backlog moved on, or cannot."""
        self.idle_ticks = 0
        if trouble is not None:
            self.close(trouble)
        elif self._backlog is not None and self._backlog.is_over:
            self._backlog = None
            self._busy &= ~WRITING
            if not self._busy:
                self._resume()

    def _mute(self, delay_ms: int) -> None:
        self._busy |= MUTED
        self._mute_timer = self._loop.call_later(delay_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._mute_timer = None
        self._busy &= ~MUTED
        if not self._busy and not self.closed:
            self._resume()
