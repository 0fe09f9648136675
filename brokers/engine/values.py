"""Small values that every floor of the engine may name."""

from __future__ import annotations

from typing import Protocol


class Slice(Protocol):
    """Bytes of an open file, to be handed to the socket by the kernel; `storage.files.FileSlice` fits."""

    fd: int
    position: int
    length: int

    def release(self) -> None:
        """Lets go of the file. May be called more than once."""

    def failed(self, error: OSError) -> None:
        """The disk would not read it; for whoever owns the file to draw the conclusion."""
