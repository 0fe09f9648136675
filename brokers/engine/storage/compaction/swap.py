"""Putting cleaned segments into place, live and after a crash (CMP-26, LOG-35).

`.cleaned` files are nothing yet. Once all of a segment's files are called `.swap` they are the truth for the offsets
they span, whatever else lies there: a start finishes what was begun. In between there is no moment at which a record
that must be kept is in neither.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from brokers.engine.records import batch as layout
from brokers.engine.storage.compaction.job import Cleaned
from brokers.engine.storage.compaction.writing import CLEANED_SUFFIX, PARTS, RARE_PART, SWAP_SUFFIX
from brokers.engine.storage.files import storage_errors
from brokers.engine.storage.log import Log
from brokers.engine.storage.segment import DELETED_SUFFIX, LOG_SUFFIX, Segment, base_name

_TRANSIENT: Final = re.compile(r"^(\d{20})(\.[a-z]+)(\.cleaned|\.swap)$")
_LOG: Final = re.compile(r"^\d{20}\.log$")
_SEGMENT_PARTS: Final = (*PARTS, RARE_PART)


def swap_in(log: Log, cleaned: Cleaned) -> list[str] | None:
    """Replaces the group's sources in the live log; answers files to unlink after the delay.

    None, and nothing happened, if the log changed meanwhile: retention or a truncation took one of the sources. Readers
    keep the slices they have (CMP-29). Raises StorageFailed.
    """
    numbers = [number for number, held in enumerate(log.segments) if held.base_offset in set(cleaned.sources)]
    sources = [log.segments[number] for number in numbers]
    intact = [held.base_offset for held in sources] == cleaned.sources and log.active not in sources
    stem = f"{log.directory}/{base_name(cleaned.base_offset)}"
    if not intact or sum(held.size_bytes for held in sources) != cleaned.bytes_before:
        discard(log.directory, log.root)
        return None
    parts = _SEGMENT_PARTS if os.path.exists(stem + RARE_PART + CLEANED_SUFFIX) else PARTS  # noqa: PTH110
    with storage_errors(log.root, halfway=True):
        for part in parts:
            os.rename(stem + part + CLEANED_SUFFIX, stem + part + SWAP_SUFFIX)  # noqa: PTH104
        gone = log.detach(numbers[0], numbers[-1] + 1)
        for part in parts:
            os.rename(stem + part + SWAP_SUFFIX, stem + part)  # noqa: PTH104
        modified = os.stat(stem + LOG_SUFFIX).st_mtime  # noqa: PTH116
    segment = Segment(
        log.directory,
        log.root,
        cleaned.base_offset,
        log.files,
        now_ms=int(modified * 1000),
        size_bytes=cleaned.size_bytes,
    )
    segment.max_timestamp, segment.max_timestamp_offset = cleaned.max_timestamp, cleaned.max_timestamp_offset
    segment.indexed_timestamp = segment.max_timestamp
    if parts is not PARTS:
        segment.find_aborted()
    log.attach(numbers[0], segment)
    return gone


def discard(directory: str, root: Path) -> None:
    """Removes `.cleaned` files: of a run that ended badly, or whose log changed under it."""
    with storage_errors(root):
        for entry in os.scandir(directory):
            if entry.name.endswith(CLEANED_SUFFIX):
                Path(entry.path).unlink(missing_ok=True)


def complete(directory: str, root: Path) -> bool:
    """At start, before anything is read: finishes or discards an interrupted swap (LOG-35). Whether there was one."""
    swaps: dict[int, list[str]] = {}
    cleaned: list[tuple[int, str]] = []
    with storage_errors(root):
        for entry in os.scandir(directory):
            match = _TRANSIENT.match(entry.name)
            if match and match[3] == CLEANED_SUFFIX:
                cleaned.append((int(match[1]), entry.path))
            elif match:
                swaps.setdefault(int(match[1]), []).append(entry.path)
        # A swap set is complete only if nothing of it, or of what came before it, is still called `.cleaned`.
        first_cleaned = min((base for base, _ in cleaned), default=None)
        for base in sorted(swaps):
            if first_cleaned is not None and base >= first_cleaned:
                for path in swaps.pop(base):
                    Path(path).unlink()
        # Last: without them, what is left of the others after a crash would pass for a complete set.
        for _, path in cleaned:
            Path(path).unlink()
        for base, paths in sorted(swaps.items()):
            _finish(directory, base, paths)
    return bool(swaps or cleaned)


def _finish(directory: str, base: int, paths: list[str]) -> None:
    """The sources of one swap set go, then it takes their place."""
    log = f"{directory}/{base_name(base)}{LOG_SUFFIX}"
    if log + SWAP_SUFFIX in paths:
        # A part of a split segment may hold nothing: the segment whose base it keeps goes all the same.
        next_offset = max(_next_offset(log + SWAP_SUFFIX, base), base + 1)
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            if _LOG.match(entry.name) and base <= int(entry.name.removesuffix(LOG_SUFFIX)) < next_offset:
                _retire(entry.path.removesuffix(LOG_SUFFIX))
    # The log comes last: while it is called `.swap`, all of this is done again after another crash.
    for path in sorted(paths, key=lambda path: path.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
        os.replace(path, path.removesuffix(SWAP_SUFFIX))  # noqa: PTH105


def _retire(stem: str) -> None:
    """Out of the way under the name that the start removes, so that nothing is destroyed half-way."""
    for part in _SEGMENT_PARTS:
        if os.path.exists(stem + part):  # noqa: PTH110
            os.replace(stem + part, stem + part + DELETED_SUFFIX)  # noqa: PTH105


def _next_offset(path: str, base: int) -> int:
    """The offset after the last batch of a whole file."""
    next_offset = base
    with Path(path).open("rb") as file:
        while len(head := file.read(layout.HEADER_BYTES)) == layout.HEADER_BYTES:
            header = layout.read_header(head)
            next_offset = header.next_offset
            file.seek(header.size_bytes - layout.HEADER_BYTES, os.SEEK_CUR)
    return next_offset
