"""Session of a closed connection."""

from __future__ import annotations

from typing import Final


class ClosedSession:
    """Takes the place of a session, and ignores everything.

    Connection and session refer to each other; without this one a closed pair would be left to the garbage collector.
    """

    frame_bytes_max: int = 0

    def frame_bytes_max_of(self, _api_key: int) -> int:
        return 0

    def on_frame(self, buffer: memoryview, start: int, end: int) -> None:
        """Ignores a frame that came after the end."""

    def on_more(self) -> None:
        """No request waits."""

    def on_closed(self) -> None:
        """The session that was here was told."""


CLOSED_SESSION: Final = ClosedSession()
