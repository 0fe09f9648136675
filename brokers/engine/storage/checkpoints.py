"""Checkpoint files beside the logs (LOG-6): version, count and one entry per line, replaced atomically."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from brokers.contract.partitions import PartitionKey
from brokers.engine.storage.files import storage_errors, write_atomically

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANED_OFFSETS: Final = "cleaner-offset-checkpoint"
VERSION: Final = "0"


class UnreadableCheckpoint(ValueError):
    """The checkpoint file has the wrong version, a malformed line or a wrong count, so none of it is used."""


def render_lines(rows: Iterable[tuple[object, ...]]) -> bytes:
    """Returns the content of a checkpoint file with one line per row."""
    lines = [" ".join(map(str, row)) for row in rows]
    return "\n".join([VERSION, str(len(lines)), *lines, ""]).encode()


def parse_lines(path: Path, columns: int, root: Path) -> list[list[str]]:
    """Returns the rows of a checkpoint file, none if it does not exist. Raises UnreadableCheckpoint."""
    with storage_errors(root):
        if not path.exists():
            return []
        text = path.read_bytes().decode(errors="replace")
    lines = text.split("\n")
    # A truncated file may end in a truncated number: the last line must be terminated.
    if len(lines) < 3 or lines[-1] or lines[0].strip() != VERSION or not lines[1].strip().isdecimal():
        raise UnreadableCheckpoint(f"{path} has no valid head")
    rows = [line.split() for line in lines[2:] if line]
    if len(rows) != int(lines[1]) or any(len(row) != columns for row in rows):
        raise UnreadableCheckpoint(f"{path} has a bad line or another count than announced")
    return rows


def read_offsets(path: Path, root: Path) -> dict[PartitionKey, int]:
    """Returns the offsets by (topic, partition). Raises UnreadableCheckpoint."""
    try:
        return {(topic, int(index)): int(offset) for topic, index, offset in parse_lines(path, 3, root)}
    except ValueError as error:
        raise UnreadableCheckpoint(str(error)) from None


def read_offsets_or_empty(root: Path, name: str, reason_by_unreadable_path: dict[str, str]) -> dict[PartitionKey, int]:
    """Returns the offsets of a checkpoint file of a root; an unreadable file counts as empty (LOG-6).

    An unreadable file is added to `reason_by_unreadable_path`. Without recovery points the recovery takes longer;
    without start offsets, deleted records reappear.
    """
    try:
        return read_offsets(root / name, root)
    except UnreadableCheckpoint as fault:
        reason_by_unreadable_path[str(root / name)] = str(fault)
        return {}


def dense_offset_by_log(root: Path, recovery_points: Mapping[PartitionKey, int]) -> dict[PartitionKey, int]:
    """Returns for each log of the root the offset from which on a gap means that a power failure lost records: its
    recovery point.

    Records below the recovery point are flushed. Compaction also makes gaps, so logs that were ever compacted are
    omitted.
    """
    try:
        cleaned = read_offsets(root / CLEANED_OFFSETS, root)
    except UnreadableCheckpoint:
        return {}
    return {key: point for key, point in recovery_points.items() if key not in cleaned}


def write_offsets(path: Path, offsets: Mapping[PartitionKey, int], root: Path) -> None:
    """Replaces the checkpoint file durably."""
    write_atomically(path, render_lines((topic, index, offset) for (topic, index), offset in offsets.items()), root)
