"""The command `recover`: the recovery of a log after an unclean stop, as a forecast or for real (LOG-35 to LOG-39).

The forecast reads the segments as recovery would. The real recovery is the broker's own code, so that there is no
second implementation that could differ.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final, NamedTuple

from brokers.contract.partitions import PartitionKey
from brokers.engine.inspect.directories import Logs, PartitionDirectory
from brokers.engine.inspect.findings import KIND, Emit
from brokers.engine.inspect.reading import UnreadableRest, list_segment_files, read_batches, segment_path
from brokers.engine.records.batch import LONG_MAX
from brokers.engine.storage import checkpoints, rewriting, splitting
from brokers.engine.storage.files import OpenFiles
from brokers.engine.storage.flushing import FlushJob
from brokers.engine.storage.log import RELATIVE_OFFSET_MAX, Log, LogConfig
from brokers.engine.storage.recovery import BEYOND_ALL_OFFSETS, LogCheckpoint, first_segment_to_check, load_log
from brokers.engine.storage.rewriting import OldFormat, find_old_message, refuse_old_message
from brokers.engine.storage.sanity_checks import are_indexes_trusted, has_bad_offsets
from brokers.engine.storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)
from brokers.engine.storage.startup_cleanup import is_debris

_CHECKPOINT_FILES: Final = (checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS)

Offsets = dict[PartitionKey, int]


class CheckpointOffsets(NamedTuple):
    """Offsets of a log in the root's checkpoints: recovery point, log start offset, and the first dense offset."""

    recovery_point: int
    start_offset: int
    dense_from: int | None


class RecoveryResult(NamedTuple):
    """Result of a log's recovery."""

    log_end_offset: int
    truncated_bytes: int
    checked_bytes: int
    changes: int


def run(logs: Logs, emit: Emit, *, write: bool, whole: bool) -> int:
    """Recovers every partition of `logs`, or with `write` False reports what that would do.

    Returns the number of changes.
    """
    points, starts = (
        _offsets(logs.root, checkpoints.RECOVERY_POINTS),
        _offsets(logs.root, checkpoints.LOG_START_OFFSETS),
    )
    dense = {} if whole else checkpoints.dense_offset_by_log(logs.root, points)
    ends: Offsets = {}
    changes = 0
    for partition in logs.partitions:
        key = (partition.topic, partition.number)
        checkpointed = CheckpointOffsets(0 if whole else points.get(key, 0), starts.get(key, 0), dense.get(key))
        forecast = _forecast(partition, checkpointed, emit)
        try:
            result = _recover(partition, logs.root, checkpointed, forecast) if write else forecast
        except OldFormat:  # reported by the forecast
            changes += forecast.changes
            continue
        emit(
            {
                KIND: "recovered" if write else "would_recover",
                "partition": partition.name,
                "recovery_point": checkpointed.recovery_point,
                "checked_bytes": result.checked_bytes,
                "truncated_bytes": result.truncated_bytes,
                "log_end_offset": result.log_end_offset,
            }
        )
        ends[key] = result.log_end_offset
        changes += result.changes
    if write:
        _store_offsets(logs.root, ends)
    return changes


class _Change:
    """Reports each change and counts them."""

    def __init__(self, partition: PartitionDirectory, emit: Emit) -> None:
        self._partition = partition
        self._emit = emit
        self.number = 0

    def __call__(self, act: str, file: str, why: str, position: int | None = None) -> None:
        self.number += 1
        self._emit({KIND: act, "partition": self._partition.name, "file": file, "position": position, "because": why})


def _forecast(partition: PartitionDirectory, checkpointed: CheckpointOffsets, emit: Emit) -> RecoveryResult:
    directory = partition.path
    recovery_point, start_offset, _ = checkpointed
    dense_from = BEYOND_ALL_OFFSETS if checkpointed.dense_from is None else checkpointed.dense_from
    change = _Change(partition, emit)
    bases, others = list_segment_files(directory)
    segments = bases.get(LOG_SUFFIX, [])
    for name in [*others, *(f"{base:020d}{suffix}" for suffix, base_offsets in bases.items() for base in base_offsets)]:
        if is_debris(name):
            change("remove", name, "a deletion, a cleaning or a crash left it")
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
        for base in bases.get(suffix, []):
            if base not in segments:
                change("remove", f"{base:020d}{suffix}", "it belongs to no segment")
    first = first_segment_to_check(segments, recovery_point)
    end, truncated, checked = start_offset, 0, 0
    for number, base in enumerate(segments):
        path = segment_path(directory, base, LOG_SUFFIX)
        size = path.stat().st_size
        if find_old_message(str(path), 0) is not None:
            try:
                end = rewriting.end_offset(str(path))
            except OldFormat as damage:
                change("refuse", path.name, str(damage))
                break
            change("rewrite", path.name, "its messages are of an old format")
            checked += size
            continue
        following = segments[number + 1] if number + 1 < len(segments) else LONG_MAX
        is_split = following - base - 1 > RELATIVE_OFFSET_MAX and _needs_split(
            directory, base, size, following, recovery_point
        )
        if is_split:
            change("split", path.name, "it holds offsets too far from its base for an index to name")
        if number < first:
            if is_split or _has_trusted_indexes(directory, base, size, checkpointed.dense_from is not None):
                end = following
                continue
            change("rebuild", segment_path(directory, base, INDEX_SUFFIX).name, "an index is missing or contradicts")
        limit = following if is_split else min(following, base + RELATIVE_OFFSET_MAX + 1)
        end, good_bytes, why = _good_part(path, base, limit, dense_from)
        checked += size
        is_last = number + 1 == len(segments)
        if good_bytes == size and not is_last and max(end, dense_from) < following:
            why = f"the offsets from {end} to {following} are missing"
        if good_bytes < size and (refusal := _refusal(path, good_bytes)):
            change("refuse", path.name, refusal, good_bytes)
            break
        if why or good_bytes < size:
            change("truncate", path.name, f"{why}; {size - good_bytes} bytes go", good_bytes)
            truncated += size - good_bytes
            for later in segments[number + 1 :]:
                later_file = segment_path(directory, later, LOG_SUFFIX)
                change("remove", later_file.name, "it follows the damage")
                truncated += later_file.stat().st_size
            break
    if end < start_offset:
        change("restart", f"{start_offset:020d}{LOG_SUFFIX}", f"the log ends at {end}, below its start {start_offset}")
        end = start_offset
    return RecoveryResult(end, truncated, checked, change.number)


def _has_trusted_indexes(directory: Path, base: int, size: int, is_dense: bool) -> bool:
    segment = Segment(str(directory), directory.parent, base, OpenFiles(), now_ms=0, size_bytes=size)
    try:
        return are_indexes_trusted(segment, is_dense)
    finally:
        segment.file.close()


def _needs_split(directory: Path, base: int, size: int, following: int, recovery_point: int) -> bool:
    segment = Segment(str(directory), directory.parent, base, OpenFiles(), now_ms=0, size_bytes=size)
    try:
        return splitting.needs_split(segment, following, recovery_point)
    finally:
        segment.file.close()


def _refusal(path: Path, position: int) -> str:
    """Returns why recovery refuses the log, "" if it does not."""
    try:
        refuse_old_message(str(path), position)
    except OldFormat as refusal:
        return str(refusal)
    return ""


def _good_part(path: Path, base: int, limit_offset: int, dense_from: int) -> tuple[int, int, str]:
    """Returns the next offset, the number of valid bytes, and the fault of the first bad batch ("" without one)."""
    end, good_bytes = base, 0
    for batch in read_batches(path):
        if isinstance(batch, UnreadableRest):
            return end, good_bytes, batch.reason
        if not batch.is_intact:
            return end, good_bytes, f"the checksum of the batch at offset {batch.header.base_offset} is wrong"
        if has_bad_offsets(batch.header, end, limit_offset):
            return end, good_bytes, f"offset {batch.header.base_offset} is out of order after {end - 1}"
        if max(end, dense_from) < batch.header.base_offset:
            return end, good_bytes, f"the offsets from {end} to {batch.header.base_offset} are missing"
        end, good_bytes = batch.header.next_offset, batch.position + batch.header.size_bytes
    return end, good_bytes, ""


def _recover(
    partition: PartitionDirectory, root: Path, checkpointed: CheckpointOffsets, forecast: RecoveryResult
) -> RecoveryResult:
    """Recovers the log, then stores its state as a clean stop does."""
    log, report = load_log(
        str(partition.path),
        root,
        (partition.topic, partition.number),
        OpenFiles(),
        LogConfig(),
        LogCheckpoint(
            checkpointed.recovery_point, checkpointed.start_offset, clean=False, dense_from=checkpointed.dense_from
        ),
        now_ms=time.time_ns() // 1_000_000,
    )
    _store(log)
    return RecoveryResult(log.log_end_offset, report.truncated_bytes, report.scanned_bytes, forecast.changes)


def _store(log: Log) -> None:
    log.epochs.save()
    log.close()
    job = FlushJob(log, is_closing=True)
    try:
        job.run()
    finally:
        job.finish()
        for segment in log.segments:
            segment.file.close()


def _offsets(root: Path, name: str) -> Offsets:
    try:
        return checkpoints.read_offsets(root / name, root)
    except checkpoints.UnreadableCheckpoint:
        return {}


def _store_offsets(root: Path, ends: Offsets) -> None:
    """Updates the root's checkpoints: no offset may be past a log's end, up to which the log is durable."""
    for name in _CHECKPOINT_FILES:
        offsets = _offsets(root, name)
        if not (root / name).exists():
            continue
        for key, end in ends.items():
            if name == checkpoints.RECOVERY_POINTS:
                offsets[key] = end
            elif key in offsets:
                offsets[key] = min(offsets[key], end)
        checkpoints.write_offsets(root / name, offsets, root)
