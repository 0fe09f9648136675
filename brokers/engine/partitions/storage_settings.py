"""Disk settings of the partition table, and the error when no disk is usable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from brokers.engine.storage.files import OPEN_FILES_MAX


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
