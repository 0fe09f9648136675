"""Small values that every floor of the engine may name."""

from __future__ import annotations

from typing import Protocol


class Slice(Protocol):
    """Bytes of an open file, to be handed to the socket by the kernel; `storage.files.FileSlice` fits."""

    fd: int
    position: int
    length: int

    def is_cached(self, length: int) -> bool:
        """Whether its first `length` bytes can be sent without waiting for the disk, or making it work."""

    def prefetch(self, length: int) -> None:
        """Waits until its first `length` bytes are in the page cache: for a thread of its own. Raises OSError."""

    def release(self) -> None:
        """Lets go of the file. May be called more than once."""

    def failed(self, error: OSError) -> None:
        """The disk would not read it; for whoever owns the file to draw the conclusion."""
