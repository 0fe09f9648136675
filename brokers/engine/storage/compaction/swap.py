"""Replacement of segments by cleaned ones, live and after a crash (CMP-26, LOG-35).

`.cleaned` files may be incomplete and are removed at the next start. Once all files of a rewritten segment are named
`.swap`, they supersede all other files of the offsets they span, and the next start completes the replacement. So each
retained record is at any moment in a source or in a complete rewritten segment.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from brokers.engine.records import batch as layout
from brokers.engine.storage.compaction.job import Cleaned
from brokers.engine.storage.compaction.writing import ABORTED_SUFFIX, CLEANED_SUFFIX, REQUIRED_SUFFIXES, SWAP_SUFFIX
from brokers.engine.storage.files import storage_errors
from brokers.engine.storage.log import Log
from brokers.engine.storage.segment import DELETED_SUFFIX, LOG_SUFFIX, Segment, base_name

_TRANSIENT: Final = re.compile(r"^(\d{20})(\.[a-z]+)(\.cleaned|\.swap)$")
_LOG: Final = re.compile(r"^\d{20}\.log$")
_SEGMENT_SUFFIXES: Final = (*REQUIRED_SUFFIXES, ABORTED_SUFFIX)


def swap_in(log: Log, cleaned: Cleaned) -> list[str] | None:
    """Replaces the group's source segments in the live log; returns the files to unlink after the file delete delay.

    Returns None, changing nothing, if the log changed meanwhile: retention or truncation removed a source. Readers keep
    their slices (CMP-29). Raises StorageFailed.
    """
    segment_numbers = [
        number for number, source in enumerate(log.segments) if source.base_offset in set(cleaned.sources)
    ]
    sources = [log.segments[number] for number in segment_numbers]
    is_unchanged = [source.base_offset for source in sources] == cleaned.sources and log.active not in sources
    stem = f"{log.directory}/{base_name(cleaned.base_offset)}"
    if not is_unchanged or sum(source.size_bytes for source in sources) != cleaned.bytes_before:
        discard(log.directory, log.root)
        return None
    suffixes = _SEGMENT_SUFFIXES if os.path.exists(stem + ABORTED_SUFFIX + CLEANED_SUFFIX) else REQUIRED_SUFFIXES  # noqa: PTH110
    with storage_errors(log.root, halfway=True):
        for suffix in suffixes:
            os.rename(stem + suffix + CLEANED_SUFFIX, stem + suffix + SWAP_SUFFIX)  # noqa: PTH104
        removed_files = log.detach_segments(segment_numbers[0], segment_numbers[-1] + 1)
        for suffix in suffixes:
            os.rename(stem + suffix + SWAP_SUFFIX, stem + suffix)  # noqa: PTH104
        modified_s = os.stat(stem + LOG_SUFFIX).st_mtime  # noqa: PTH116
    segment = Segment(
        log.directory,
        log.root,
        cleaned.base_offset,
        log.files,
        now_ms=int(modified_s * 1000),
        size_bytes=cleaned.size_bytes,
    )
    segment.max_timestamp, segment.max_timestamp_offset = cleaned.max_timestamp, cleaned.max_timestamp_offset
    segment.indexed_timestamp = segment.max_timestamp
    if suffixes is not REQUIRED_SUFFIXES:
        segment.open_aborted_index()
    log.attach_segment(segment_numbers[0], segment)
    return removed_files


def discard(directory: str, root: Path) -> None:
    """Removes the `.cleaned` files of a run that failed or whose log changed meanwhile."""
    with storage_errors(root):
        for entry in os.scandir(directory):
            if entry.name.endswith(CLEANED_SUFFIX):
                Path(entry.path).unlink(missing_ok=True)


def complete_interrupted_swaps(directory: str, root: Path) -> bool:
    """Completes or discards an interrupted replacement at start, before anything is read (LOG-35).

    Returns True if there was one.
    """
    swap_paths_by_base: dict[int, list[str]] = {}
    cleaned_files: list[tuple[int, str]] = []
    with storage_errors(root):
        for entry in os.scandir(directory):
            match = _TRANSIENT.match(entry.name)
            if match and match[3] == CLEANED_SUFFIX:
                cleaned_files.append((int(match[1]), entry.path))
            elif match:
                swap_paths_by_base.setdefault(int(match[1]), []).append(entry.path)
        # A swap set is complete only if no file of it, or of a lower base offset, is still called `.cleaned`.
        first_cleaned = min((base for base, _ in cleaned_files), default=None)
        for base in sorted(swap_paths_by_base):
            if first_cleaned is not None and base >= first_cleaned:
                for path in swap_paths_by_base.pop(base):
                    Path(path).unlink()
        # `.cleaned` files are removed last: if they were removed first and the broker crashed again, the remaining
        # `.swap` files of an incomplete set would look complete.
        for _, path in cleaned_files:
            Path(path).unlink()
        for base, paths in sorted(swap_paths_by_base.items()):
            _finish_swap(directory, base, paths)
    return bool(swap_paths_by_base or cleaned_files)


def _finish_swap(directory: str, base: int, paths: list[str]) -> None:
    """Removes the sources of one swap set and puts the set in their place."""
    log = f"{directory}/{base_name(base)}{LOG_SUFFIX}"
    if log + SWAP_SUFFIX in paths:
        # A part of a split segment may be empty; the source segment with the same base offset is still removed.
        next_offset = max(_next_offset(log + SWAP_SUFFIX, base), base + 1)
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            if _LOG.match(entry.name) and base <= int(entry.name.removesuffix(LOG_SUFFIX)) < next_offset:
                _mark_segment_deleted(entry.path.removesuffix(LOG_SUFFIX))
    # The log comes last: while it is called `.swap`, another crash repeats all of this.
    for path in sorted(paths, key=lambda path: path.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
        os.replace(path, path.removesuffix(SWAP_SUFFIX))  # noqa: PTH105


def _mark_segment_deleted(stem: str) -> None:
    """Renames a segment to the suffix that the start removes, so that no segment is partly destroyed."""
    for suffix in _SEGMENT_SUFFIXES:
        if os.path.exists(stem + suffix):  # noqa: PTH110
            os.replace(stem + suffix, stem + suffix + DELETED_SUFFIX)  # noqa: PTH105


def _next_offset(path: str, base: int) -> int:
    """Returns the offset after the last batch of a file."""
    next_offset = base
    with Path(path).open("rb") as file:
        while len(head := file.read(layout.HEADER_BYTES)) == layout.HEADER_BYTES:
            header = layout.read_header(head)
            next_offset = header.next_offset
            file.seek(header.size_bytes - layout.HEADER_BYTES, os.SEEK_CUR)
    return next_offset
