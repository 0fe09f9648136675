"""Makes the machine's memory as it is where a broker has run for a while: full of files' pages.

A log that grows, or is read from the disk, takes pages. Where nothing is free they come from the page cache. Free ones
of a virtual machine may have gone back to its host, and are fetched from there one fault at a time: on ours that costs
eight times the CPU, takes the cores from everybody for milliseconds, and comes and goes with what ran before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import psutil

PIECE_BYTES: Final = 1_048_576
STEP_BYTES: Final = 1_073_741_824
# Memory is full when so small a share of what was read came from free memory: the rest are pages of others. What a
# kernel, or a container's limit, keeps free is not known beforehand.
FREE_SHARE_MAX: Final = 0.1
# As often as this the memory can be filled before pages are met that are still there.
SIZE_IN_MEMORIES: Final = 50


class Filler:
    """A file without content, which takes memory and no disk. `fill` before each span that is measured."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "filler"
        self._size_bytes = SIZE_IN_MEMORIES * psutil.virtual_memory().total
        self._position = 0
        with self._path.open("wb") as made:
            made.truncate(self._size_bytes)

    def fill(self) -> None:
        """Reads on until that takes next to nothing of what is free. Raises OSError."""
        with self._path.open("rb", buffering=0) as opened:
            opened.seek(self._position)
            taken_bytes = STEP_BYTES
            while taken_bytes > FREE_SHARE_MAX * STEP_BYTES:
                free_bytes = psutil.virtual_memory().free
                for _ in range(STEP_BYTES // PIECE_BYTES):
                    opened.read(PIECE_BYTES)
                taken_bytes = free_bytes - psutil.virtual_memory().free
            self._position = opened.tell() if opened.tell() < self._size_bytes else 0
