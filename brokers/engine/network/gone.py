"""What is in the place of a closed connection's session."""

from __future__ import annotations

from typing import Final


class Gone:
    """Connection and session refer to each other, and one closed after the other would be left to the garbage
    collector.
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


GONE: Final = Gone()
