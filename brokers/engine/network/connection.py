"""One client's socket: frames in, one request in processing at a time, responses out in order (WIRE-9, QUO-30, QUO-32).

While a request is in processing, a response is being written, or the client is muted, nothing is read; the socket is
then only watched for the peer's farewell, so that a waiting fetch of a dead client ends. What the socket does not take
at once waits in a `Backlog`. A response that is only owed (`defer`) does not keep the next requests waiting;
`pending_responses` keeps the order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from socket import MSG_NOSIGNAL, MSG_PEEK, socket
from struct import Struct
from typing import Final

from brokers.engine.network.backlog import Backlog
from brokers.engine.network.buffers import SHARED_BYTES, FrameBuffers, HeldFrame, LargeFrame
from brokers.engine.network.interfaces import ConnectionOwner, Session
from brokers.engine.network.pending_responses import PENDING_RESPONSES_MAX, PendingResponse, PendingResponses
from brokers.engine.network.sending import OnWritten, Outgoing, joined_up
from brokers.engine.protocol.errors import MalformedRequest
from brokers.engine.protocol.framing import API_KEY_BYTES, SIZE_BYTES, check_frame_size
from brokers.engine.values import Slice

# Why nothing is read.
PROCESSING: Final = 1
WRITING: Final = 2
MUTED: Final = 4
NO_BUFFER: Final = 8
TOO_MANY_PENDING: Final = 16

# Small requests that arrived together are processed together, at most so many before others get a turn.
FRAMES_PER_TURN_MAX: Final = 64

_SIZE: Final = Struct(">i")


class Gone:
    """In the place of the session of a closed connection: the two refer to each other, and one closed after the other
    would be left to the garbage collector.
    """

    frame_bytes_max: int = 0

    def frame_bytes_max_of(self, _api_key: int) -> int:
        return 0

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        """A frame that came after the end is not for anybody."""

    def on_more(self) -> None:
        """Nobody waits."""

    def on_closed(self) -> None:
        """Was told."""


_GONE: Final = Gone()


class Connection:
    """`peer_host` is the textual address. Give exactly one response per frame, then forget the frame."""

    __slots__ = (
        "_backlog",
        "_buffers",
        "_busy",
        "_consuming",
        "_corked",
        "_frame",
        "_held",
        "_loop",
        "_mute_timer",
        "_owner",
        "_pending",
        "_pending_responses",
        "_processed",
        "_reading",
        "_resume_scheduled",
        "_socket",
        "closed",
        "fd",
        "idle_ticks",
        "peer_host",
        "session",
    )

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
        self.closed = False
        self.idle_ticks = 0
        # In: a large frame that is being received, and bytes kept from earlier reads.
        self._frame: LargeFrame | None = None
        self._processed: LargeFrame | None = None
        self._held: HeldFrame | None = None
        self._pending = b""
        self._resume_scheduled = False
        self._reading = False
        self._consuming = False
        self._busy = 0
        self._mute_timer: asyncio.TimerHandle | None = None
        # Out: what waits for the socket, for an earlier response, or for the other frames that arrived together.
        self._backlog: Backlog | None = None
        self._pending_responses: PendingResponses | None = None
        self._corked: list[bytes] | None = None

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
        frames_left = FRAMES_PER_TURN_MAX
        self._consuming = True
        try:
            while end - position >= SIZE_BYTES:
                (size_bytes,) = _SIZE.unpack_from(shared, position)
                start = position + SIZE_BYTES
                stop = start + size_bytes
                session = self.session
                if stop > end or size_bytes > session.frame_bytes_max or size_bytes < 8:
                    check_frame_size(size_bytes, session.frame_bytes_max)
                    if stop - position > SHARED_BYTES and end - start >= API_KEY_BYTES:
                        check_frame_size(size_bytes, session.frame_bytes_max_of(shared[start] << 8 | shared[start + 1]))
                        self._begin_large(size_bytes, shared[start:end])
                        return
                    break
                if stop < end and self._corked is None:
                    self._corked = []
                position = stop
                self._busy |= PROCESSING
                session.on_frame(shared, start, stop)
                frames_left -= 1
                if self._busy or self.closed or not frames_left:
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
            if not self._busy and not frames_left:
                self._resume_soon()

    def _begin_large(self, size_bytes: int, received: memoryview) -> None:
        buffer = self._buffers.rent(size_bytes, self._owner)
        if buffer is None:
            self._pending = _SIZE.pack(size_bytes) + received
            self._busy |= NO_BUFFER
            self._buffers.wait(size_bytes, self._owner, self)
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
        self._processed = frame
        try:
            self.session.on_frame(frame.buffer.view, 0, frame.size_bytes)
        except Exception as error:  # as in `_consume`
            self.fail(error)
        finally:
            self._consuming = False
            if self._processed is not None:
                self._processed = None
                self._buffers.give_back(frame.buffer, self._owner)

    def hold_frame(self) -> HeldFrame | None:
        """The buffer of the request in processing, which keeps it until `release`: to copy a large one takes long. None
        when it has no buffer of its own. A connection that closes releases it.
        """
        frame, self._processed = self._processed, None
        if frame is None:
            return None
        self._held = held = HeldFrame(self._buffers, frame.buffer, self._owner)
        return held

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
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(error.strerror or "connection lost")
            return
        self._stop_reading()
        self.session.on_more()

    # -- out ----------------------------------------------------------------------------------------------------------

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
            backlog = self._backlog = Backlog(self._socket, self._loop, self._owner.readers, self._on_writing)
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

    def _mute(self, delay_ms: int) -> None:
        self._busy |= MUTED
        self._mute_timer = self._loop.call_later(delay_ms / 1000, self._unmute)

    def _unmute(self) -> None:
        self._mute_timer = None
        self._busy &= ~MUTED
        if not self._busy and not self.closed:
            self._resume()

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
            self._buffers.give_back(frame.buffer, self._owner)
        elif self._busy & NO_BUFFER:
            self._buffers.forget(self._owner, self)
        held, self._held = self._held, None
        if held is not None:
            held.release()
        self._pending = b""
        self._corked = None
        pending_responses, self._pending_responses = self._pending_responses, None
        if pending_responses is not None:
            pending_responses.drop()
        session, self.session = self.session, _GONE
        session.on_closed()
        self._owner.on_closed(self, reason)
