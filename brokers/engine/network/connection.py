"""One client's socket: frames in, one request in processing at a time, responses out in order (WIRE-9, QUO-30, QUO-32).

`receiving` reads frames. Output that the socket does not take at once waits in a `Backlog`. A deferred response
(`defer`) does not delay the next requests; `pending_responses` keeps the order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from socket import MSG_NOSIGNAL, socket
from typing import Final

from brokers.engine.network.backlog import Backlog
from brokers.engine.network.buffers import FrameBuffers, RetainedFrame
from brokers.engine.network.interfaces import CLOSED_SESSION, Cancellable, ConnectionOwner, Mute
from brokers.engine.network.pending_responses import PendingResponse, PendingResponses
from brokers.engine.network.receiving import (
    DELAYED_BY_BROKER,
    MUTED,
    NO_BUFFER,
    PROCESSING,
    TOO_MANY_PENDING,
    WRITING,
    Receiver,
)
from brokers.engine.network.sending import OnWritten, Outgoing, as_single_frame, merge_plain_responses
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.scheduling.fair_turns import QueuedWork
from brokers.engine.values import Slice

# Larger responses are sent at once, after those before them: joining them would take memory.
CORKED_BYTES_MAX: Final = 16_384


class Connection(Receiver):
    """A client's connection. `peer_host` is the textual address. Each frame needs exactly one response."""

    __slots__ = ("_backlog", "_mute_timer", "_pending_responses", "_unsent", "number", "started_s")

    def __init__(
        self,
        sock: socket,
        peer_host: str,
        owner: ConnectionOwner,
        buffers: FrameBuffers,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(sock, peer_host, owner, buffers, loop)
        self._unsent = owner.unsent
        # Number of the connection in this process, and its start by the event loop's clock.
        self.number = 0
        self.started_s = 0.0
        self._mute_timer: asyncio.TimerHandle | Cancellable | None = None
        # Output that waits for the socket, or for an earlier response.
        self._backlog: Backlog | None = None
        self._pending_responses: PendingResponses | None = None

    # -- output -------------------------------------------------------------------------------------------------------

    def respond(self, frame: bytes, delay_ms: int = 0, mute: Mute | None = None) -> None:
        """Sends the response to the request in processing, then reads nothing for `delay_ms` (QUO-30), or until `mute`
        is over. If the owner delays responses, the response is sent only then.
        """
        if self.is_closed or (delay_ms > 0 and self._mute(delay_ms, mute, frame)):
            return
        if self._pending_responses is not None:
            self._queue_response(self._pending_responses, Outgoing([frame], None))
            return
        if self._corked_frames is not None:
            self._corked_frames.append(frame)
            self._busy &= ~PROCESSING
            if len(frame) > CORKED_BYTES_MAX:
                self._uncork()
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
            self._send_later(Outgoing([frame], None, count))
        else:
            self._resume_if_idle()

    def respond_parts(
        self,
        parts: Sequence[bytes | Slice],
        delay_ms: int = 0,
        on_written: OnWritten | None = None,
        mute: Mute | None = None,
    ) -> None:
        """Sends parts, and takes over their slices. `on_written` is called once, when all is sent or has failed."""
        outgoing = Outgoing(parts, on_written)
        if self.is_closed:
            outgoing.finish()
            return
        if delay_ms > 0 and self._mute(delay_ms, mute, None if on_written is not None else as_single_frame(parts)):
            return
        if self._pending_responses is not None:
            self._queue_response(self._pending_responses, outgoing)
            return
        if self._corked_frames is not None:
            self._uncork()
        self._busy &= ~PROCESSING
        self._send(outgoing)
        self._resume_if_idle()

    def charge_request_copy(self, count: int) -> None:
        self.inbound.charge_request_copy(count)

    def release_request_copy(self) -> None:
        self.inbound.release_request_copy()

    def retain_frame(self) -> RetainedFrame | None:
        return self.inbound.retain_frame()

    def finish_without_response(self, delay_ms: int = 0, mute: Mute | None = None) -> None:
        """Ends a request with acks=0: nothing is sent, but the mute applies (QUO-32)."""
        if self.is_closed:
            return
        if delay_ms > 0:
            self._mute(delay_ms, mute, None)
        self._busy &= ~PROCESSING
        self._resume_if_idle()

    def defer(self, on_closed: Callable[[], object]) -> PendingResponse:
        """Defers the response until `PendingResponse.complete`, or `on_closed` if the connection closes."""
        pending_responses = self._pending_responses
        if pending_responses is None:
            pending_responses = self._pending_responses = PendingResponses(self._on_first_complete, self._unsent)
        pending = pending_responses.defer(on_closed)
        self._busy &= ~PROCESSING
        if pending_responses.is_full:
            self._busy |= TOO_MANY_PENDING
        return pending

    def _queue_response(self, pending_responses: PendingResponses, outgoing: Outgoing) -> None:
        pending_responses.add(outgoing)
        self._busy &= ~PROCESSING
        if pending_responses.is_full:
            self._busy |= TOO_MANY_PENDING
        else:
            self._resume_if_idle()

    def _on_first_complete(self) -> None:
        # Not at once: this runs inside another connection's request, and the next responses are usually completed with
        # it.
        self._loop.call_soon(QueuedWork(self.turns, self._send_pending).begin)

    def _send_pending(self) -> None:
        pending_responses = self._pending_responses
        if pending_responses is None or self.is_closed:
            return
        complete_responses = pending_responses.pop_complete()
        if not pending_responses:
            self._pending_responses = None
        if len(complete_responses) > 1:
            complete_responses = merge_plain_responses(complete_responses)
        for outgoing in complete_responses:
            self._send(outgoing)
        if self._busy & TOO_MANY_PENDING and pending_responses.may_resume:
            self._busy &= ~TOO_MANY_PENDING
        self._resume_if_idle()

    def _uncork(self) -> None:
        if self._corked_frames:
            self._send(Outgoing(self._corked_frames, None))
        self._corked_frames = None

    def _send(self, outgoing: Outgoing) -> None:
        """Sends as much as the socket takes; the remaining bytes are queued after earlier output."""
        if self.is_closed:
            outgoing.finish()
            return
        if self._backlog is None:
            try:
                if outgoing.send(self._socket):
                    outgoing.finish()
                    return
            except OSError as error:
                outgoing.finish()
                self.close(error.strerror or "connection lost")
                return
        self._send_later(outgoing)

    def _send_later(self, outgoing: Outgoing) -> None:
        """Queues output that is sent when the socket is writable, after earlier output."""
        backlog = self._backlog
        if backlog is None:
            self._busy |= WRITING
            backlog = self._backlog = Backlog(
                self._socket, self._loop, self._owner.readers, self._on_backlog_event, self._unsent, self.turns
            )
        backlog.add(outgoing)

    def _on_backlog_event(self, error: str | None) -> None:
        """Handles progress or failure of the backlog."""
        self.idle_sweeps = 0
        if error is not None:
            self.close(error)
        elif self._backlog is not None and self._backlog.is_empty:
            self._backlog = None
            self._busy &= ~WRITING
            if not self._busy:
                self._resume()

    # -- flow ---------------------------------------------------------------------------------------------------------

    def _mute(self, delay_ms: int, mute: Mute | None, frame: bytes | None) -> bool:
        """Mutes the connection. Returns True if `frame` is sent at the end of the mute (DEC-17)."""
        on_over: Callable[[], object] = self._unmute
        is_response_delayed = frame is not None and self._owner.delays_responses
        if frame is not None and is_response_delayed:
            # The response is dropped with its connection.
            on_over = partial(self._respond_and_unmute, self.defer(lambda: None), frame)
        self._busy |= MUTED
        self._mute_timer = self._loop.call_later(delay_ms / 1000, on_over) if mute is None else mute.begin(on_over)
        return is_response_delayed

    def _respond_and_unmute(self, pending: PendingResponse, frame: bytes) -> None:
        pending.complete(frame)
        self._unmute()

    def _unmute(self) -> None:
        self._mute_timer = None
        self._busy &= ~MUTED
        if not self._busy and not self.is_closed:
            self._resume()

    @property
    def is_stalled(self) -> bool:
        return bool(self.inbound.large_frame or self._backlog or self.inbound.pending)

    @property
    def is_waiting(self) -> bool:
        is_prefetching = self._backlog is not None and self._backlog.is_prefetching
        is_delayed_by_broker = bool(self._busy & DELAYED_BY_BROKER)
        return is_delayed_by_broker or is_prefetching or self._pending_responses is not None

    @property
    def is_busy(self) -> bool:
        return bool(self._busy)

    @property
    def unsent_bytes(self) -> int:
        backlog, pending_responses = self._backlog, self._pending_responses
        count = 0 if backlog is None else backlog.memory_bytes
        return count if pending_responses is None else count + pending_responses.memory_bytes

    def fail(self, error: Exception) -> None:
        """Closes the connection after a protocol error of the peer or an internal error; earlier responses are sent."""
        if isinstance(error, MalformedRequest):
            self._owner.on_malformed(self.peer_host, error)
        else:
            self._owner.on_fault(self.peer_host, error)
        self._uncork()
        self.close("malformed request" if isinstance(error, MalformedRequest) else "internal error")

    def close(self, reason: str) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._stop_reading()
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        backlog, self._backlog = self._backlog, None
        if backlog is not None:
            backlog.close()
        self._socket.close()
        if self._busy & NO_BUFFER:
            self._buffers.cancel_wait(self._owner.group, self)
        frame, self.inbound.large_frame = self.inbound.large_frame, None
        if frame is not None:
            self._buffers.return_buffer(frame.buffer, self._owner.group)
        self.inbound.release_all()
        self._corked_frames = None
        pending_responses, self._pending_responses = self._pending_responses, None
        if pending_responses is not None:
            pending_responses.drop()
        session, self.session = self.session, CLOSED_SESSION
        session.on_closed()
        self._owner.on_closed(self, reason)
