"""One client's socket: frames in, one request in processing at a time, responses out in order (WIRE-9, QUO-30).

While a request is in processing, a response is being written, or the client is muted, nothing is read; the socket is
then only watched for the peer's farewell, so that a waiting fetch of a dead client ends.
"""

from __future__ import annotations

import asyncio
from socket import MSG_PEEK, socket
from struct import Struct
from typing import TYPE_CHECKING, Final

from brokers.engine.network.buffers import SHARED_BYTES, FrameBuffers, LargeFrame
from brokers.engine.network.interfaces import Session
from brokers.engine.network.responses import MUTED, NO_BUFFER, PROCESSING, Answering
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.framing import SIZE_BYTES, check_frame_size

if TYPE_CHECKING:
    from brokers.engine.network.listener import Listener

# Small requests that arrived together are processed together, at most so many before others get a turn.
FRAMES_PER_TURN_MAX: Final = 64

_SIZE: Final = Struct(">i")


class Gone:
    """In the place of the session of a closed connection: the two refer to each other, and one closed after the other
    would be left to the garbage collector.
    """

    frame_bytes_max: int = 0

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        """A frame that came after the end is not for anybody."""

    def on_more(self) -> None:
        """Nobody waits."""

    def on_closed(self) -> None:
        """Was told."""


_GONE: Final = Gone()


class Connection(Answering):
    """`peer_host` is the textual address. Give exactly one response per frame, then forget the frame."""

    __slots__ = (
        "_buffers",
        "_frame",
        "_listener",
        "_pending",
        "_reading",
        "_resume_scheduled",
        "fd",
        "peer_host",
        "session",
    )

    session: Session

    def __init__(
        self, sock: socket, peer_host: str, listener: Listener, buffers: FrameBuffers, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(sock, loop, listener.owner.readers)
        self._listener = listener
        self.fd = sock.fileno()
        self.peer_host = peer_host
        self._buffers = buffers
        self._frame: LargeFrame | None = None
        self._pending = b""
        self._resume_scheduled = False
        self._reading = False

    def start(self, session: Session) -> None:
        self.session = session
        self._reading = True
        self._loop.add_reader(self.fd, self._on_readable)

    # -- in -----------------------------------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        if self._busy:
            self._watch_for_farewell()
            return
        if self._resume_scheduled:
            return
        self.idle_ticks = 0
        try:
            if self._frame is not None:
                self._receive_large()
                return
            kept = len(self._pending)
            if kept:
                self._buffers.shared[:kept] = self._pending
                self._pending = b""
                count = self._socket.recv_into(self._buffers.shared[kept:])
            else:
                count = self._socket.recv_into(self._buffers.shared)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(error.strerror or "connection lost")
            return
        if count == 0:
            self.close("closed by the peer")
            return
        self._consume(kept + count)

    def _consume(self, end: int) -> None:
        """Hands over the whole frames in `shared[:end]` until one is not answered at once; keeps the rest."""
        shared = self._buffers.shared
        position = 0
        pending_responses = FRAMES_PER_TURN_MAX
        self._consuming = True
        try:
            while end - position >= SIZE_BYTES:
                (size_bytes,) = _SIZE.unpack_from(shared, position)
                start = position + SIZE_BYTES
                stop = start + size_bytes
                session = self.session
                if stop > end or size_bytes > session.frame_bytes_max or size_bytes < 8:
                    check_frame_size(size_bytes, session.frame_bytes_max)
                    if stop - position > SHARED_BYTES:
                        self._begin_large(size_bytes, shared[start:end])
                        return
                    break
                if stop < end and self._corked is None:
                    self._corked = []
                position = stop
                self._busy |= PROCESSING
                session.on_frame(shared, start, stop)
                pending_responses -= 1
                if self._busy or self.closed or not pending_responses:
                    break
        except Exception as error:  # one tenant's request must not take the others' broker down
            self.fail(error)
            return
        finally:
            self._consuming = False
        if self._corked is not None:
            self._uncork()
        if self.closed:
            return
        if position < end:
            self._pending = bytes(shared[position:end])
            if not self._busy and not pending_responses:
                self._resume_soon()

    def _begin_large(self, size_bytes: int, received: memoryview) -> None:
        buffer = self._buffers.rent(size_bytes, self._listener)
        if buffer is None:
            self._pending = _SIZE.pack(size_bytes) + received
            self._busy |= NO_BUFFER
            self._buffers.wait(size_bytes, self._listener, self)
        else:
            self._frame = LargeFrame(buffer, size_bytes, received)
        if self._corked is not None:
            self._uncork()
        if not self._busy and not self.closed:  # the rest of it has mostly arrived already: no trip through the loop
            try:
                self._receive_large()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self.close(error.strerror or "connection lost")

    def _receive_large(self) -> None:
        frame = self._frame
        assert frame is not None, "no large frame is being received"
        try:
            if not frame.receive(self._socket):
                return
        except EOFError:
            self.close("closed by the peer")
            return
        self._frame = None
        self._busy |= PROCESSING
        self._consuming = True
        try:
            self.session.on_frame(frame.buffer.view, 0, frame.size_bytes)
        except Exception as error:  # as in `_consume`
            self.fail(error)
        finally:
            self._consuming = False
            self._buffers.give_back(frame.buffer, self._listener)

    def fail(self, error: Exception) -> None:
        """The peer broke the protocol, or we made a mistake with its request: what was answered before still leaves."""
        if isinstance(error, MalformedRequest):
            self._listener.on_malformed(self, error)
        else:
            self._listener.on_fault(self, error)
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
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(error.strerror or "connection lost")
            return
        self._stop_reading()
        self.session.on_more()

    # -- flow ---------------------------------------------------------------------------------------------------------

    def _resume(self) -> None:
        """Nothing is in the way any more: frames kept from earlier reads first, then the socket."""
        if self._pending:
            self._resume_soon()
        elif not self._reading:
            self._reading = True
            self._loop.add_reader(self.fd, self._on_readable)

    def _resume_soon(self) -> None:
        # Not at once: this may run inside another connection's request, while the shared buffer is in use.
        if not self._resume_scheduled:
            self._resume_scheduled = True
            self._loop.call_soon(self._consume_pending)

    def _consume_pending(self) -> None:
        self._resume_scheduled = False
        if self._busy or self.closed:
            self._buffers.wake()  # if it was told of room for a frame, somebody else may have it
            return
        end = len(self._pending)
        if end:
            self._buffers.shared[:end] = self._pending
            self._pending = b""
            self._consume(end)
        if not self._busy and not self.closed and not self._reading:
            self._reading = True
            self._loop.add_reader(self.fd, self._on_readable)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self.fd)

    @property
    def is_stalled(self) -> bool:
        """In the middle of receiving or sending; a peer that stops there is not merely idle."""
        return bool(self._frame or self._backlog or self._pending)

    @property
    def is_waiting(self) -> bool:
        """On our side: for memory, for the disk, or for the end of a mute."""
        prefetching = self._backlog is not None and self._backlog.is_prefetching
        return bool(self._busy & (PROCESSING | MUTED | NO_BUFFER)) or self._pending_responses is not None or prefetching

    @property
    def is_busy(self) -> bool:
        return bool(self._busy)

    def close(self, reason: str) -> None:
        """Ends it all; harmless when repeated."""
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
        frame, self._frame = self._frame, None
        if frame is not None:
            self._buffers.give_back(frame.buffer, self._listener)
        elif self._busy & NO_BUFFER:
            self._buffers.forget(self._listener, self)
        self._pending = b""
        self._corked = None
        pending_responses, self._pending_responses = self._pending_responses, None
        if pending_responses is not None:
            pending_responses.drop()
        session, self.session = self.session, _GONE
        session.on_closed()
        self._listener.on_closed(self, reason)
