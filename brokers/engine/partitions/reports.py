"""Log directories of the partition table: their settings, their state, and the result of a start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from brokers.engine.partitions.partition import Partition
from brokers.engine.storage.files import OPEN_FILES_MAX
from brokers.engine.storage.sanity_checks import Damage


@dataclass(slots=True)
class RecoveryReport:
    """Result of a start: partitions loaded, whether every root was stopped cleanly, bytes truncated."""

    partitions: int = 0
    clean: bool = True
    truncated_bytes: int = 0
    scanned_bytes: int = 0
    # Segments of an old message format that were rewritten.
    rewritten_segments: int = 0
    # Segments with offsets too far from their base, which were split.
    split_segments: int = 0
    # (topic, partition, reason) of logs that were not opened.
    refused: list[tuple[str, int, str]] = field(default_factory=list)
    # (topic, partition, damage) of files that were truncated or rebuilt.
    damages: list[tuple[str, int, Damage]] = field(default_factory=list)
    # Directories that are named like a partition but contain no file of one; they are ignored.
    foreign: list[str] = field(default_factory=list)
    # Checkpoint files that were ignored, and the reason.
    unreadable: dict[str, str] = field(default_factory=dict)


class DirectoryState(NamedTuple):
    """State of one root of `log.dirs`; `offline_reason` is None while it is online."""

    path: Path
    partitions: int
    size_bytes: int
    offline_reason: str | None


def directory_states(
    roots: tuple[Path, ...], partitions: Iterable[Partition], offline_reason_by_root: Mapping[Path, str]
) -> list[DirectoryState]:
    """Returns the state of every root in the order of the configuration."""
    partition_count_by_root = dict.fromkeys(roots, 0)
    size_bytes_by_root = dict.fromkeys(roots, 0)
    for partition in partitions:
        partition_count_by_root[partition.log.root] += 1
        size_bytes_by_root[partition.log.root] += partition.log.size_bytes
    return [
        DirectoryState(root, partition_count_by_root[root], size_bytes_by_root[root], offline_reason_by_root.get(root))
        for root in roots
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """Disk settings; `defaults` are topic keys that this broker sets for all topics (`topic_config.topic_defaults`).

    With `keeps_min_isr` nothing is committed while fewer replicas are in sync than a topic wants (DEC-11).
    """

    roots: tuple[Path, ...]
    broker_id: int
    cluster_id: str
    defaults: Mapping[str, str] = field(default_factory=dict)
    open_files_max: int = OPEN_FILES_MAX
    retention_interval_ms: int = 300_000
    keeps_min_isr: bool = False


class NoUsableDirectory(Exception):
    """Every root of `log.dirs` is offline, so the broker cannot store anything (LOG-3)."""
