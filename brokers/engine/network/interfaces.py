"""What the network asks of whoever understands frames; plugged in by the assembly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from brokers.engine.network.connection import Connection


class Session(Protocol):
    """One connection's conversation. `frame_bytes_max` is read anew for every frame."""

    frame_bytes_max: int

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        """A whole frame without its size. The bytes are valid during this call only; exactly one response (or
        `finish_without_response`) must follow, now or later, before the next frame is handed over.

        Raises:
            protocol.errors.MalformedRequest: the peer broke the protocol; the connection is closed.
        """

    def on_more(self) -> None:
        """The peer sent more while a request is in processing. Told once at most for each."""

    def on_closed(self) -> None:
        """The connection is gone; a request in processing must not be answered."""


class Waiter(Protocol):
    """Who waits for a buffer."""

    def on_memory(self) -> None:
        """It may be had now. Called inside somebody else's request."""


class MakeSession(Protocol):
    def __call__(self, connection: Connection) -> Session: ...
