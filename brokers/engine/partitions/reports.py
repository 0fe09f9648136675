"""What the table tells of itself: how a start went, and how its directories are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from brokers.engine.partitions.partition import Partition
from brokers.engine.storage.sanity_checks import Damage


@dataclass(slots=True)
class RecoveryReport:
    """What the start found: partitions loaded, whether every root was stopped cleanly, bytes cut off torn ends."""

    partitions: int = 0
    clean: bool = True
    truncated_bytes: int = 0
    scanned_bytes: int = 0
    # Segments of an old message format that were rewritten.
    rewritten_segments: int = 0
    # Segments that held offsets too far from their base, and became several.
    split_segments: int = 0
    # (topic, partition, why): logs that were not opened.
    refused: list[tuple[str, int, str]] = field(default_factory=list)
    # (topic, partition, what): files that were wrong, and were cut or made again.
    damages: list[tuple[str, int, Damage]] = field(default_factory=list)
    # Directories that are named as a partition and hold nothing of one: left alone.
    foreign: list[str] = field(default_factory=list)
    # Checkpoint files that were left out, and why.
    unreadable: dict[str, str] = field(default_factory=dict)


class DirectoryState(NamedTuple):
    """One root of `log.dirs`: what lies in it, and why it was given up if it was."""

    path: Path
    partitions: int
    size_bytes: int
    offline_reason: str | None


def directory_states(
    roots: tuple[Path, ...], partitions: Iterable[Partition], offline: Mapping[Path, str]
) -> list[DirectoryState]:
    """Every root as it is, in the order of the configuration. `offline`: why one is given up."""
    counts = dict.fromkeys(roots, 0)
    sizes = dict.fromkeys(roots, 0)
    for partition in partitions:
        counts[partition.log.root] += 1
        sizes[partition.log.root] += partition.log.size_bytes
    return [DirectoryState(root, counts[root], sizes[root], offline.get(root)) for root in roots]
