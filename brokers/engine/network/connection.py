"""One client's socket: frames in, one request in processing at a time, responses out in order (WIRE-9, QUO-30, QUO-32).

While a request is in processing, a response is being written, or the client is muted, nothing is read but the peer's
farewell, so that a waiting fetch of a dead client ends. What the socket does not take at once waits in a `Backlog`. A
response that is only owed (`defer`) does not keep the next requests waiting; `pending_responses` keeps the order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from socket import MSG_NOSIGNAL, MSG_PEEK, socket
from time import perf_counter
from typing import Final

from brokers.engine.network.backlog import Backlog
from brokers.engine.network.buffers import SHARED_BYTES, TINY_BYTES_MAX, FrameBuffers, HeldFrame, LargeFrame
from brokers.engine.network.busy import IN_LINE, MUTED, NO_BUFFER, PROCESSING, TOO_MANY_PENDING, WRITING
from brokers.engine.network.fair_turns import TURN_S
from brokers.engine.network.gone import GONE
from brokers.engine.network.interfaces import Cancellable, ConnectionOwner, Mute, Session
from brokers.engine.network.pending_responses import PendingResponse, PendingResponses
from brokers.engine.network.received import SIZE, Received, end_of_frame
from brokers.engine.network.sending import OnWritten, Outgoing, joined_up
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.framing import API_KEY_BYTES, SIZE_BYTES, check_frame_size
from brokers.engine.values import Slice

# Small requests that arrived together are processed together, at most so many before others get a turn.
FRAMES_PER_TURN_MAX: Final = 64
# An answer beyond this is sent at once, with those before it: together they would take memory.
CORKED_BYTES_MAX: Final = 16_384


class Connection:
    """`peer_host` is the textual address. Give exactly one response per frame, then forget the frame."""

    __slots__ = (
        "_backlog", "_buffers", "_busy", "_consuming", "_corked", "_loop", "_mute_timer", "_owner",
        "_pending_responses", "_reading", "_resume_scheduled", "_socket", "_turns", "_unread", "_unsent",
        "closed", "fd", "idle_ticks", "peer_host", "received", "session",
    )  # fmt: skip

    session: Session

    def __init__(
        self,
        sock: socket,
        peer_host: str,
        owner: ConnectionOwner,
        buffers: FrameBuffers,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._socket = sock
        self._owner = owner
        self._buffers = buffers
        self._loop = loop
        self.fd = sock.fileno()
        self.peer_host = peer_host
        self.idle_ticks = self._busy = 0
        self.received = Received(owner.unread, buffers, owner.group)
        # What all connections of one instance share.
        self._turns = owner.turns
        self._unread = owner.unread
        self._unsent = owner.unsent
        self.closed = self._resume_scheduled = self._reading = self._consuming = False
        self._mute_timer: asyncio.TimerHandle | Cancellable | None = None
        # Out: what waits for the socket, for an earlier response, or for the other frames that arrived together.
        self._backlog: Backlog | None = None
        self._pending_responses: PendingResponses | None = None
        self._corked: list[bytes] | None = None

    def start(self, session: Session) -> None:
        self.session = session
        self._start_reading()

    # -- in -----------------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        if self._busy:
            if self._busy & IN_LINE:
                self._stop_reading()  # the line is long
            else:
                self._watch_for_farewell()
            return
        if self._resume_scheduled:
            return
        if self._turns.is_spent and self._turns.must_wait(perf_counter()):
            self._busy |= IN_LINE
            self._turns.join(self)
        else:
            self._read()

    def on_turn(self) -> None:
        self._busy &= ~IN_LINE
        if self._resume_scheduled:
            self._consume_kept()
        elif not self._busy and not self.closed:
            self._read()
            if not self._busy and not self.closed:
                self._start_reading()

    def _read(self) -> None:
        self.idle_ticks = 0
        received, shared = self.received, self._buffers.shared
        kept = len(received.pending)
        try:
            if received.large is not None:
                self._receive_large()
                return
            if kept:
                shared[:kept] = received.pending
            if self._unread.are_many:
                count = self._socket.recv_into(shared[kept : end_of_frame(shared, kept)])
            else:
                count = self._socket.recv_into(shared[kept:] if kept else shared)
        except OSError as error:
            self._not_received(error)
            return
        if count == 0:
            self.close("closed by the peer")
            return
        if kept:
            received.keep(b"")
        self._consume(kept + count)

    def _consume(self, end: int) -> None:
        """Hands over the whole frames in `shared[:end]` until one is not answered at once; keeps the rest."""
        shared = self._buffers.shared
        began_s = now_s = perf_counter()
        position = 0
        frames_left = FRAMES_PER_TURN_MAX
        self._consuming = True
        try:
            while end - position >= SIZE_BYTES:
                (size_bytes,) = SIZE.unpack_from(shared, position)
                start = position + SIZE_BYTES
                stop = start + size_bytes
                session = self.session
                if stop > end or size_bytes > session.frame_bytes_max or size_bytes < 8:
                    check_frame_size(size_bytes, session.frame_bytes_max)
                    large_bytes = TINY_BYTES_MAX if self._unread.are_many else SHARED_BYTES
                    if stop - position > large_bytes and end - start >= API_KEY_BYTES:
                        check_frame_size(size_bytes, session.frame_bytes_max_of(shared[start] << 8 | shared[start + 1]))
                        self._begin_large(size_bytes, shared[start:end])
                        return
                    break
                if stop < end and self._corked is None:
                    self._corked = []
                position = stop
                self._busy |= PROCESSING
                self.received.frames += 1
                session.on_frame(shared, start, stop)
                now_s = perf_counter()
                frames_left = frames_left - 1 if now_s - began_s < TURN_S else 0
                if self._busy or self.closed or not frames_left:
                    break
        except Exception as error:  # one tenant's request must not take the others' broker down
            self.fail(error)
            return
        finally:
            self._consuming = False
            self._turns.used(began_s, now_s)
        if self._corked is not None:
            self._uncork()
        if self.closed:
            return
        if position < end:
            self.received.keep(bytes(shared[position:end]))
            if self._busy & PROCESSING:
                self.session.on_more()  # what follows came with the request, and is not seen on the socket any more
            elif not self._busy and not frames_left:
                self._resume_soon()

    def _begin_large(self, size_bytes: int, received: memoryview) -> None:
        buffer = self._buffers.rent(size_bytes, self._owner.group)
        if buffer is None:
            self.received.keep(SIZE.pack(size_bytes) + received)
            self._busy |= NO_BUFFER
            self._buffers.wait(size_bytes, self._owner.group, self)
        else:
            self.received.large = LargeFrame(buffer, size_bytes, received)
        if self._corked is not None:
            self._uncork()
        if not self._busy and not self.closed:  # the rest of it has mostly arrived already: no trip through the loop
            try:
                self._receive_large()
            except OSError as error:
                self._not_received(error)

    def _receive_large(self) -> None:
        """Raises OSError."""
        frame = self.received.large
        assert frame is not None, "no large frame is being received"
        turns, began_s = self._turns, perf_counter()
        if not frame.receive(self._socket):
            turns.used(began_s, perf_counter())
            return
        self.received.large = None
        self.received.frames += 1
        self._busy |= PROCESSING
        self._consuming = True
        self.received.processed = frame
        try:
            self.session.on_frame(frame.buffer.view, 0, frame.size_bytes)
        except Exception as error:  # as in `_consume`
            self.fail(error)
        finally:
            self._consuming = False
            turns.used(began_s, perf_counter())
            self.received.give_back_processed()

    def _not_received(self, error: OSError) -> None:
        if not isinstance(error, (BlockingIOError, InterruptedError)):
            self.close(error.strerror or "connection lost")

    def fail(self, error: Exception) -> None:
        """The peer broke the protocol, or we made a mistake with its request: what was answered before still leaves."""
        if isinstance(error, MalformedRequest):
            self._owner.on_malformed(self.peer_host, error)
        else:
            self._owner.on_fault(self.peer_host, error)
        self._uncork()
        self.close("malformed request" if isinstance(error, MalformedRequest) else "internal error")

    def on_memory(self) -> None:
        """There is room for the large frame that was announced."""
        self._busy &= ~NO_BUFFER
        self._resume_soon()

    def _watch_for_farewell(self) -> None:
        """Readable while busy: either the next request, which waits, or the end of the stream."""
        try:
            if self._socket.recv(1, MSG_PEEK) == b"":
                self.close("closed by the peer")
                return
        except OSError as error:
            self._not_received(error)
            return
        self._stop_reading()
        self.session.on_more()

    # -- out ----------------------------------------------------------------------------------------------------------

    def respond(self, frame: bytes, delay_ms: int = 0, mute: Mute | None = None) -> None:
        """Sends the response to the request in processing, then reads nothing for `delay_ms` (QUO-30), or until `mute`
        is over.
        """
        if self.closed:
            return
        self._mute(delay_ms, mute)
        if self._pending_responses is not None:
            self._queue_response(self._pending_responses, Outgoing([frame], None))
            return
        if self._corked is not None:
            self._corked.append(frame)
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
            self._send(Outgoing([frame], None, count))
        elif not self._busy and not self._consuming:
            self._resume()

    def respond_parts(
        self,
        parts: Sequence[bytes | Slice],
        delay_ms: int = 0,
        on_written: OnWritten | None = None,
        mute: Mute | None = None,
    ) -> None:
        """Sends a response in pieces, as `respond`; takes over the slices. `on_written` is called once, at the end."""
        outgoing = Outgoing(parts, on_written)
        if self.closed:
            outgoing.finish()
            return
        self._mute(delay_ms, mute)
        if self._pending_responses is not None:
            self._queue_response(self._pending_responses, outgoing)
            return
        if self._corked is not None:
            self._uncork()
        self._busy &= ~PROCESSING
        self._send(outgoing)
        if not self._busy and not self._consuming and not self.closed:
            self._resume()

    def hold(self, count: int) -> None:
        self.received.hold(count)

    def release(self) -> None:
        self.received.release()

    def hold_frame(self) -> HeldFrame | None:
        return self.received.hold_frame()

    def finish_without_response(self, delay_ms: int = 0, mute: Mute | None = None) -> None:
        """Ends a request with acks=0: nothing is sent, but the mute holds (QUO-32)."""
        if self.closed:
            return
        self._mute(delay_ms, mute)
        self._busy &= ~PROCESSING
        if not self._busy and not self._consuming:
            self._resume()

    def defer(self, on_closed: Callable[[], object]) -> PendingResponse:
        """The request in processing is answered later, by `complete`, and the next ones are processed meanwhile.
        `on_closed` is called instead if the connection goes first.
        """
        pending_responses = self._pending_responses
        if pending_responses is None:
            pending_responses = self._pending_responses = PendingResponses(self._on_first_complete, self._unsent)
        pending = pending_responses.defer(on_closed)
        self._busy &= ~PROCESSING
        if pending_responses.are_too_many:
            self._busy |= TOO_MANY_PENDING
        return pending

    def _queue_response(self, pending_responses: PendingResponses, outgoing: Outgoing) -> None:
        pending_responses.add(outgoing)
        self._busy &= ~PROCESSING
        if pending_responses.are_too_many:
            self._busy |= TOO_MANY_PENDING
        elif not self._busy and not self._consuming:
            self._resume()

    def _on_first_complete(self) -> None:
        # Not at once: this runs inside another connection's request, and the next ones are mostly complete with it.
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
            self._send(outgoing)
        if self._busy & TOO_MANY_PENDING and pending_responses.are_few:
            self._busy &= ~TOO_MANY_PENDING
        if not self._busy and not self._consuming and not self.closed:
            self._resume()

    def _uncork(self) -> None:
        if self._corked:
            self._send(Outgoing(self._corked, None))
        self._corked = None

    def _send(self, outgoing: Outgoing) -> None:
        """Now, as far as the socket takes it; the rest later, and behind what waits already."""
        if self.closed:
            outgoing.finish()
            return
        backlog = self._backlog
        if backlog is None:
            try:
                if outgoing.send(self._socket):
                    outgoing.finish()
                    return
            except OSError as error:
                outgoing.finish()
                self.close(error.strerror or "connection lost")
                return
            self._busy |= WRITING
            backlog = self._backlog = Backlog(
                self._socket, self._loop, self._owner.readers, self._on_writing, self._unsent, self._turns
            )
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

    # -- flow ---------------------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        """Nothing is in the way any more: frames kept from earlier reads first, then the socket."""
        if self.received.pending:
            self._resume_soon()
        else:
            self._start_reading()

    def _resume_soon(self) -> None:
        # Not at once: this may run inside another connection's request, while the shared buffer is in use.
        if not self._resume_scheduled:
            self._resume_scheduled = True
            self._loop.call_soon(self._consume_pending)

    def _consume_pending(self) -> None:
        turns = self._turns
        if turns.is_spent and not self._busy and turns.must_wait(perf_counter()):
            self._busy |= IN_LINE
            turns.join(self)
        else:
            self._consume_kept()

    def _consume_kept(self) -> None:
        self._resume_scheduled = False
        if self._busy or self.closed:
            self._buffers.wake()  # if it was told of room for a frame, somebody else may have it
            return
        end = self.received.take_into(self._buffers.shared)
        if end:
            self._consume(end)
            if self.received.large is None:
                self._buffers.wake()  # as above
        if not self._busy and not self.closed:
            self._start_reading()

    def _start_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self.fd, self._on_readable)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self.fd)

    def _mute(self, delay_ms: int, mute: Mute | None) -> None:
        if delay_ms > 0:
            self._busy |= MUTED
            later = self._loop.call_later
            self._mute_timer = later(delay_ms / 1000, self._unmute) if mute is None else mute.begin(self._unmute)

    def _unmute(self) -> None:
        self._mute_timer = None
        self._busy &= ~MUTED
        if not self._busy and not self.closed:
            self._resume()

    @property
    def is_stalled(self) -> bool:
        return bool(self.received.large or self._backlog or self.received.pending)

    @property
    def is_waiting(self) -> bool:
        prefetching = self._backlog is not None and self._backlog.is_prefetching
        ours = bool(self._busy & (PROCESSING | MUTED | NO_BUFFER | IN_LINE))
        return ours or prefetching or self._pending_responses is not None

    @property
    def is_busy(self) -> bool:
        return bool(self._busy)

    @property
    def unsent_bytes(self) -> int:
        backlog, pending_responses = self._backlog, self._pending_responses
        count = 0 if backlog is None else backlog.memory_bytes
        return count if pending_responses is None else count + pending_responses.memory_bytes

    def close(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self._stop_reading()
        if self._mute_timer is not None:
            self._mute_timer.cancel()
        backlog, self._backlog = self._backlog, None
        if backlog is not None:
            backlog.close()
        self._socket.close()
        frame, self.received.large = self.received.large, None
        if frame is not None:
            self._buffers.give_back(frame.buffer, self._owner.group)
        elif self._busy & NO_BUFFER:
            self._buffers.forget(self._owner.group, self)
        self.received.forget()
        self._corked = None
        pending_responses, self._pending_responses = self._pending_responses, None
        if pending_responses is not None:
            pending_responses.drop()
        session, self.session = self.session, GONE
        session.on_closed()
        self._owner.on_closed(self, reason)
