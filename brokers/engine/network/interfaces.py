"""What a connection asks of whoever understands its frames, and of whoever accepted it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

from brokers.engine.network.buffers import UnreadBytes
from brokers.engine.network.fair_turns import InstanceTurns
from brokers.engine.network.inbound_frames import InboundFrames
from brokers.engine.network.unsent import UnsentBytes


class Cancellable(Protocol):
    def cancel(self) -> object: ...


class Mute(Protocol):
    """A silence whose end is decided elsewhere; `throttling.waits.Mute` fits."""

    def begin(self, on_over: Callable[[], object]) -> Cancellable:
        """Starts it. `on_over` is called later, once, unless it is cancelled."""


class Session(Protocol):
    """One connection's conversation. `frame_bytes_max` is read anew for every frame."""

    frame_bytes_max: int

    def frame_bytes_max_of(self, api_key: int) -> int:
        """What a request of this API may weigh, for a frame of which only the beginning is here."""

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        """A whole frame without its size. The bytes are valid during this call only; exactly one response (or
        `finish_without_response`) must follow, now or later, before the next frame is handed over.

        Raises:
            protocol.errors.MalformedRequest: the peer broke the protocol; the connection is closed.
        """

    def on_more(self) -> None:
        """The peer sent more while a request is in processing, or with it."""

    def on_closed(self) -> None:
        """The connection is gone; a request in processing must not be answered."""


class ConnectionOwner(Protocol):
    """Who accepted a connection: what it rents is on the account of the owner's `group`."""

    @property
    def group(self) -> object:
        """The same for all listeners of an instance."""

    @property
    def turns(self) -> InstanceTurns:
        """As the next two, of the group."""

    @property
    def unread(self) -> UnreadBytes: ...

    @property
    def unsent(self) -> UnsentBytes: ...

    @property
    def readers(self) -> Executor:
        """Threads that may wait for a disk."""

    def on_malformed(self, peer_host: str, error: Exception) -> None:
        """The peer broke the protocol; the connection is about to be closed."""

    def on_fault(self, peer_host: str, error: Exception) -> None:
        """Our own mistake with a request; the connection is about to be closed."""

    def on_closed(self, connection: OwnedConnection, reason: str) -> None:
        """Called once, at the end of everything."""


class OwnedConnection(Protocol):
    """A connection as its owner sees it."""

    peer_host: str
    # How often `Listeners.sweep` came by since anything arrived or left.
    idle_ticks: int
    inbound: InboundFrames

    @property
    def unsent_bytes(self) -> int:
        """Memory of answers that wait for the peer."""

    @property
    def is_busy(self) -> bool:
        """A request is in processing, or something else keeps the next one from being read."""

    @property
    def is_stalled(self) -> bool:
        """In the middle of receiving or sending; a peer that stops there is not merely idle."""

    @property
    def is_waiting(self) -> bool:
        """On our side: for memory, for the disk, or for the end of a mute."""

    def close(self, reason: str) -> None:
        """Ends it all; harmless when repeated."""
