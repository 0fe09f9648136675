"""The incoming half of a connection: received bytes are split into frames, and each is handed over when complete.

A connection reads frames while it is not busy. Each reason is set by one event and cleared by another, and several may
apply at once; when the last one is cleared, frames kept from earlier reads are processed, then the socket is read.

    reason            set when                                      cleared when
    PROCESSING        a frame is handed to the session              it is answered, deferred, or needs no answer
    WRITING           the socket does not take a whole response     the backlog is written
    MUTED             a response comes with a delay                 the delay is over
    NO_BUFFER         there is no memory for a large frame          other connections freed memory
    TOO_MANY_PENDING  too many deferred responses wait              few are left
    QUEUED            the instance used its share of the loop       its turn comes

A busy connection watches its socket only for the peer's close, so that a waiting fetch of a dead client ends. `close`
ends every state; `ClosedSession` then replaces the session.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from enum import IntFlag
from socket import MSG_PEEK, socket
from time import perf_counter
from typing import Final

from brokers.engine.network.buffers import SHARED_BYTES, TINY_BYTES_MAX, FrameBuffers, LargeFrame
from brokers.engine.network.inbound_frames import SIZE, InboundFrames, end_of_frame
from brokers.engine.network.interfaces import ConnectionOwner, Session
from brokers.engine.protocol.framing import API_KEY_BYTES, SIZE_BYTES, check_frame_size
from brokers.engine.scheduling.fair_turns import TURN_S, QueuedWork


class Busy(IntFlag):
    """Reasons for which a connection does not read."""

    PROCESSING = 1
    WRITING = 2
    MUTED = 4
    NO_BUFFER = 8
    TOO_MANY_PENDING = 16
    QUEUED = 32


# Plain numbers: an operator of an IntFlag creates a member, which takes a measurable part of each request's time.
PROCESSING: Final = int(Busy.PROCESSING)
WRITING: Final = int(Busy.WRITING)
MUTED: Final = int(Busy.MUTED)
NO_BUFFER: Final = int(Busy.NO_BUFFER)
TOO_MANY_PENDING: Final = int(Busy.TOO_MANY_PENDING)
QUEUED: Final = int(Busy.QUEUED)
# The broker, or a throttle delay, keeps the client waiting: such a client is not slow.
DELAYED_BY_BROKER: Final = PROCESSING | MUTED | NO_BUFFER | QUEUED

# Small requests that arrived together are processed together, up to this number in one turn.
FRAMES_PER_TURN_MAX: Final = 64


class Receiver(ABC):
    """Reads one socket. `Connection` adds output and closing."""

    __slots__ = (
        "_buffers", "_busy", "_corked_frames", "_is_consuming", "_is_reading", "_is_resume_scheduled", "_loop",
        "_owner", "_socket", "_unread", "fd", "idle_sweeps", "inbound", "is_closed", "peer_host", "session", "turns",
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
        self.idle_sweeps = 0
        # Reasons for which nothing is read (`Busy`).
        self._busy = 0
        self.inbound = InboundFrames(owner.unread, buffers, owner.group)
        # Shared by all connections of one instance.
        self.turns = owner.turns
        self._unread = owner.unread
        self.is_closed = self._is_resume_scheduled = self._is_reading = self._is_consuming = False
        # Responses to frames that arrived together.
        self._corked_frames: list[bytes] | None = None

    def start(self, session: Session) -> None:
        self.session = session
        self._start_reading()

    # -- implemented by `Connection` ----------------------------------------------------------------------------------

    @abstractmethod
    def close(self, reason: str) -> None: ...

    @abstractmethod
    def fail(self, error: Exception) -> None: ...

    @abstractmethod
    def _uncork(self) -> None: ...

    # -- input --------------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        busy = self._busy
        if busy & QUEUED:
            self._stop_reading()  # the queue is long
            return
        if self._is_resume_scheduled and not busy:
            return
        turns = self.turns
        if busy:
            if turns.may_have_to_queue:
                self._stop_reading()
            QueuedWork(turns, self._detect_peer_close).begin()
        elif turns.may_have_to_queue and turns.must_queue(perf_counter()):
            self._busy |= QUEUED
            turns.enqueue(self)
        else:
            self._read_socket()

    def on_turn(self) -> None:
        """Reads in the turn of the instance (`fair_turns.Waiter`)."""
        self._busy &= ~QUEUED
        if self._is_resume_scheduled:
            self._consume_pending_now()
        elif not self._busy and not self.is_closed:
            self._read_socket()
        if not self.is_closed:
            # Also while the connection is busy: reading was stopped in the queue, and the peer may close.
            self._start_reading()

    def _read_socket(self) -> None:
        began_s = perf_counter()
        self.idle_sweeps = 0
        inbound, shared = self.inbound, self._buffers.shared
        pending_bytes = len(inbound.pending)
        try:
            if inbound.large_frame is not None:
                self._receive_large()
                return
            if pending_bytes:
                shared[:pending_bytes] = inbound.pending
            if self._unread.is_over_limit:
                received_bytes = self._socket.recv_into(shared[pending_bytes : end_of_frame(shared, pending_bytes)])
            else:
                received_bytes = self._socket.recv_into(shared[pending_bytes:] if pending_bytes else shared)
        except OSError as error:
            self._on_receive_error(error)
            self.turns.charge(began_s, perf_counter())
            return
        if received_bytes == 0:
            self.close("closed by the peer")
            self.turns.charge(began_s, perf_counter())
            return
        if pending_bytes:
            inbound.set_pending(b"")
        self._consume(pending_bytes + received_bytes, began_s)

    def _consume(self, end: int, began_s: float) -> None:
        """Hands over the complete frames in `shared[:end]` until one is not answered at once; keeps the rest. The time
        since `began_s` is charged to the instance.
        """
        shared = self._buffers.shared
        now_s = began_s
        position = 0
        frames_left = FRAMES_PER_TURN_MAX
        self._is_consuming = True
        try:
            while end - position >= SIZE_BYTES:
                (size_bytes,) = SIZE.unpack_from(shared, position)
                start = position + SIZE_BYTES
                frame_end = start + size_bytes
                session = self.session
                if frame_end > end or size_bytes > session.frame_bytes_max or size_bytes < 8:
                    check_frame_size(size_bytes, session.frame_bytes_max)
                    large_bytes = TINY_BYTES_MAX if self._unread.is_over_limit else SHARED_BYTES
                    if frame_end - position > large_bytes and end - start >= API_KEY_BYTES:
                        check_frame_size(size_bytes, session.frame_bytes_max_of(shared[start] << 8 | shared[start + 1]))
                        self._begin_large(size_bytes, shared[start:end])
                        return
                    break
                if frame_end < end and self._corked_frames is None:
                    self._corked_frames = []
                position = frame_end
                self._busy |= PROCESSING
                self.inbound.frame_count += 1
                session.on_frame(shared, start, frame_end)
                now_s = perf_counter()
                frames_left = frames_left - 1 if now_s - began_s < TURN_S else 0
                if self._busy or self.is_closed or not frames_left:
                    break
        except Exception as error:  # one tenant's request must not stop the broker of all tenants
            self.fail(error)
            now_s = perf_counter()
            return
        finally:
            self._is_consuming = False
            self.turns.charge(began_s, now_s)
        if self._corked_frames is not None:
            self._uncork()
            self.turns.charge(now_s, perf_counter())
        if self.is_closed:
            return
        if position < end:
            self.inbound.set_pending(bytes(shared[position:end]))
            if self._busy & PROCESSING:
                self.session.on_more_bytes()  # the next bytes came with the request: the socket does not announce them
            elif not self._busy and not frames_left:
                self._resume_soon()

    def _begin_large(self, size_bytes: int, received: memoryview) -> None:
        buffer = self._buffers.rent(size_bytes, self._owner.group)
        if buffer is None:
            self.inbound.set_pending(SIZE.pack(size_bytes) + received)
            self._busy |= NO_BUFFER
            self._buffers.await_memory(self._owner.group, self)
        else:
            self.inbound.large_frame = LargeFrame(buffer, size_bytes, received)
        if self._corked_frames is not None:
            self._uncork()
        if not self._busy and not self.is_closed:  # the rest has usually arrived: saves an iteration of the loop
            try:
                self._receive_large()
            except OSError as error:
                self._on_receive_error(error)

    def _receive_large(self) -> None:
        """Receives a part of the large frame, and hands it over when complete. Raises OSError."""
        frame, buffers, group = self.inbound.large_frame, self._buffers, self._owner.group
        assert frame is not None, "no large frame is being received"
        if not buffers.has_room(frame.buffer, frame.end, group):
            self._busy |= NO_BUFFER
            buffers.await_memory(group, self, frame.buffer, frame.end)
            return
        turns, began_s = self.turns, perf_counter()
        is_complete = frame.receive(self._socket)
        buffers.charge_received(frame.buffer, frame.filled_bytes, group)
        if not is_complete:
            turns.charge(began_s, perf_counter())
            return
        self.inbound.large_frame = None
        self.inbound.frame_count += 1
        self._busy |= PROCESSING
        self._is_consuming = True
        self.inbound.processed_frame = frame
        try:
            self.session.on_frame(frame.buffer.view, 0, frame.size_bytes)
        except Exception as error:  # as in `_consume`
            self.fail(error)
        finally:
            self._is_consuming = False
            turns.charge(began_s, perf_counter())
            self.inbound.return_processed()

    def _on_receive_error(self, error: OSError) -> None:
        if not isinstance(error, (BlockingIOError, InterruptedError)):
            self.close(error.strerror or "connection lost")

    def on_memory(self) -> None:
        """Continues when there is memory for a large frame, or for more of it."""
        self._busy &= ~NO_BUFFER
        self._resume_soon()

    def _detect_peer_close(self) -> None:
        """Closes the connection if its peer closed; called when it became readable while nothing is read.

        If the next request arrived instead, it waits.
        """
        if self.is_closed or not self._busy:  # the connection was queued, and reading has resumed meanwhile
            return
        try:
            if self._socket.recv(1, MSG_PEEK) == b"":
                self.close("closed by the peer")
                return
        except (BlockingIOError, InterruptedError):
            self._start_reading()  # what arrived was read meanwhile; the peer may close later
            return
        except OSError as error:
            self._on_receive_error(error)
            return
        self._stop_reading()
        self.session.on_more_bytes()

    # -- flow ---------------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> Busy:
        """Returns the reasons for which nothing is read."""
        return Busy(self._busy)

    def _resume_if_idle(self) -> None:
        """Resumes reading, unless a reason remains; frames that are being consumed continue by themselves."""
        if not self._busy and not self._is_consuming and not self.is_closed:
            self._resume()

    def _resume(self) -> None:
        """Resumes when no reason remains: first with frames kept from earlier reads, then with the socket."""
        if self.inbound.pending:
            self._resume_soon()
        else:
            self._start_reading()

    def _resume_soon(self) -> None:
        # Not at once: this may run inside another connection's request, while the shared buffer is in use.
        if not self._is_resume_scheduled:
            self._is_resume_scheduled = True
            self._loop.call_soon(self._consume_pending)

    def _consume_pending(self) -> None:
        turns = self.turns
        if turns.may_have_to_queue and not self._busy and turns.must_queue(perf_counter()):
            self._busy |= QUEUED
            turns.enqueue(self)
        else:
            self._consume_pending_now()

    def _consume_pending_now(self) -> None:
        self._is_resume_scheduled = False
        if self._busy or self.is_closed:
            self._buffers.wake()  # memory offered to this connection may go to another one
            return
        end = self.inbound.move_pending_to(self._buffers.shared)
        if end:
            self._consume(end, perf_counter())
            if self.inbound.large_frame is None:
                self._buffers.wake()  # memory offered to this connection may go to another one
        if not self._busy and not self.is_closed:
            self._start_reading()

    def _start_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._loop.add_reader(self.fd, self._on_readable)

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self.fd)
