"""The interface `Slice` of a part of a file, which every layer of the engine may import."""

from __future__ import annotations

from typing import Protocol


class Slice(Protocol):
    """A part of an open file, sent to the socket by the kernel; implemented by `storage.files.FileSlice`."""

    fd: int
    position: int
    length: int

    def is_cached(self, length: int) -> bool:
        """True if its first `length` bytes can be sent without waiting for the disk, and without causing disk reads."""

    def prefetch(self, length: int) -> None:
        """Waits until its first `length` bytes are in the page cache; runs in a thread. Raises OSError."""

    def release(self) -> None:
        """Releases the file. May be repeated."""

    def report_failure(self, error: OSError) -> None:
        """Reports a disk error to the owner of the file."""
