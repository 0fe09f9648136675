"""Session of a closed connection."""

from __future__ import annotations

from typing import Final


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

    def on_more(self) -> None:
        """Does nothing: no request waits."""

    def on_closed(self) -> None:
        """Does nothing: the former session was notified."""


CLOSED_SESSION: Final = ClosedSession()
