"""Cleanup of a log directory at start: remains of a crash are removed, foreign files are kept and reported (LOG-35)."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from brokers.engine.storage.compaction import swap
from brokers.engine.storage.directories import PARTITION_METADATA_FILE
from brokers.engine.storage.files import storage_errors
from brokers.engine.storage.leader_epochs import FILE_NAME as EPOCHS_FILE
from brokers.engine.storage.producer_state import SNAPSHOT_SUFFIX
from brokers.engine.storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX

_SEGMENT_FILE: Final = re.compile(r"^(\d{20})(\.[a-z]+)$")
_STATE_FILES: Final = (EPOCHS_FILE, PARTITION_METADATA_FILE)
_DEBRIS: Final = re.compile(
    r"^(\d{20}\.[a-z]+\.(deleted|cleaned|tmp)|(leader-epoch-checkpoint|partition\.metadata)\.tmp)$"
)


def is_debris(name: str) -> bool:
    """True if a file of this name was left by a deletion, a compaction or a crash."""
    return _DEBRIS.match(name) is not None


def clean_up(directory: str, root: Path) -> tuple[list[int], list[int], set[int], list[str]]:
    """Removes debris and orphaned indexes and scans the directory.

    Returns the segment bases and the snapshot offsets in order, the bases of segments that list aborted transactions,
    and the paths of foreign files.
    """
    swap.complete_interrupted_swaps(directory, root)
    foreign_paths: list[str] = []
    with storage_errors(root):
        for entry in os.scandir(directory):
            if not entry.is_file() or not (
                is_debris(entry.name) or _SEGMENT_FILE.match(entry.name) or entry.name in _STATE_FILES
            ):
                foreign_paths.append(entry.path)
            elif is_debris(entry.name):
                Path(entry.path).unlink()
        offsets_by_suffix = segment_files(directory)
        bases = offsets_by_suffix.get(LOG_SUFFIX, set())
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            for base in offsets_by_suffix.get(suffix, set()) - bases:
                Path(directory, f"{base:020d}{suffix}").unlink()
    aborting_bases = offsets_by_suffix.get(TRANSACTION_INDEX_SUFFIX, set()) & bases
    return sorted(bases), sorted(offsets_by_suffix.get(SNAPSHOT_SUFFIX, ())), aborting_bases, foreign_paths


def segment_files(directory: str) -> dict[str, set[int]]:
    """Returns the offsets in the names of segment files, by suffix."""
    offsets_by_suffix: dict[str, set[int]] = {}
    for entry in os.scandir(directory):
        if (match := _SEGMENT_FILE.match(entry.name)) and entry.is_file():
            offsets_by_suffix.setdefault(match[2], set()).add(int(match[1]))
    return offsets_by_suffix
