"""Interfaces of a connection: the session that processes its frames, and the port that accepted it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, Protocol

from brokers.engine.network.buffers import UnreadBytes, UnsentBytes
from brokers.engine.network.inbound_frames import InboundFrames
from brokers.engine.scheduling.fair_turns import InstanceTurns


class Cancellable(Protocol):
    def cancel(self) -> object: ...


class Mute(Protocol):
    """A mute of a connection that ends when its implementation calls back; implemented by `throttling.waits.Mute`."""

    def begin(self, on_over: Callable[[], object]) -> Cancellable:
        """Starts the mute. `on_over` is called later, once, unless it is cancelled."""


class Session(Protocol):
    """Session of one connection. `frame_bytes_max` is read for every frame."""

    frame_bytes_max: int

    def frame_bytes_max_of(self, api_key: int) -> int:
        """Returns the maximum size in bytes of a request of this API, for a frame whose beginning is received."""

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        """Processes a frame without its size. The bytes are valid during this call only; exactly one response (or
        `finish_without_response`) must follow, now or later, before the next frame is handed over.

        Raises:
            protocol.errors.MalformedRequest: the peer violated the protocol; the connection is closed.
        """

    def on_more_bytes(self) -> None:
        """Is called when the peer has sent more bytes with or after the request that is in processing."""

    def on_closed(self) -> None:
        """Is called when the connection has closed; a request in processing must not be answered."""


class PeerOwner(Protocol):
    """Port that accepted a peer, whose rented memory is charged to the owner's `group`."""

    @property
    def group(self) -> object:
        """Returns the group, which is the same for all listeners of an instance."""

    @property
    def turns(self) -> InstanceTurns:
        """Returns the group's turns on the event loop."""

    @property
    def unread(self) -> UnreadBytes: ...

    def on_malformed(self, peer_host: str, error: Exception) -> None:
        """Is called after a protocol error of the peer, before the connection is closed."""

    def on_fault(self, peer_host: str, error: Exception) -> None:
        """Is called after an internal error in a request, before the connection is closed."""

    def on_closed(self, connection: OwnedConnection, reason: str) -> None:
        """Is called once, when the connection has closed."""


class ConnectionOwner(PeerOwner, Protocol):
    """Port of a connection that may send requests."""

    @property
    def delays_responses(self) -> bool:
        """Returns True if throttled responses are held back until the mute is over."""

    @property
    def unsent(self) -> UnsentBytes: ...
    @property
    def readers(self) -> Executor:
        """Returns the threads that may wait for a disk."""


class OwnedConnection(Protocol):
    """A connection as its owner sees it."""

    peer_host: str
    # Number of `Listeners.sweep` calls since bytes were received, a backlog of output made progress, or `is_waiting`.
    idle_sweeps: int
    inbound: InboundFrames

    @property
    def unsent_bytes(self) -> int:
        """Returns the memory of responses that wait for the peer."""

    @property
    def is_busy(self) -> bool:
        """True if a request is in processing, or another reason keeps the next one from being read."""

    @property
    def is_stalled(self) -> bool:
        """True in the middle of receiving or sending; a peer that stops there is not merely idle."""

    @property
    def is_waiting(self) -> bool:
        """True if the broker waits: for memory, for the disk, or for the end of a mute."""

    def close(self, reason: str) -> None:
        """Closes the connection; may be repeated."""


class ClosedSession:
    """Replaces the session of a closed connection, and ignores all calls.

    Connection and session refer to each other; without the replacement a closed pair would be left to the garbage
    collector.
    """

    frame_bytes_max: int = 0

    def frame_bytes_max_of(self, _api_key: int) -> int:
        return 0

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        """Ignores a frame that arrived after the end."""

    def on_more_bytes(self) -> None:
        """Does nothing: no request waits."""

    def on_closed(self) -> None:
        """Does nothing: the former session was notified."""


CLOSED_SESSION: Final = ClosedSession()
