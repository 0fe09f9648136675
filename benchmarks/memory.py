"""Fills the page cache, so that memory is in the state of a machine on which a broker has run for a while.

A log that grows, or is read from the disk, needs pages. Where no memory is free, they come from the page cache. Free
pages of a virtual machine may have been returned to its host, and are fetched from there one fault at a time: on our
machine that costs eight times the CPU, occupies all cores for milliseconds, and depends on what ran before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import psutil

PIECE_BYTES: Final = 1_048_576
STEP_BYTES: Final = 1_073_741_824
# Memory is full when at most this share of what was read came from free memory; the rest replaced cached pages. The
# memory that a kernel, or a container's limit, keeps free is not known beforehand.
FREE_SHARE_MAX: Final = 0.1
# Size of the file as a multiple of the memory, so that a filling never reads pages that an earlier one left cached.
SIZE_IN_MEMORIES: Final = 50


class Filler:
    """A sparse file, which takes memory and no disk. `fill` is called before each measured span."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "filler"
        self._size_bytes = SIZE_IN_MEMORIES * psutil.virtual_memory().total
        self._position = 0
        with self._path.open("wb") as file:
            file.truncate(self._size_bytes)

    def fill(self) -> None:
        """Reads the file, from where the last call ended, until reading takes almost no free memory. Raises OSError."""
        with self._path.open("rb", buffering=0) as file:
            file.seek(self._position)
            taken_bytes = STEP_BYTES
            while taken_bytes > FREE_SHARE_MAX * STEP_BYTES:
                free_bytes = psutil.virtual_memory().free
                for _ in range(STEP_BYTES // PIECE_BYTES):
                    file.read(PIECE_BYTES)
                taken_bytes = free_bytes - psutil.virtual_memory().free
            self._position = file.tell() if file.tell() < self._size_bytes else 0
