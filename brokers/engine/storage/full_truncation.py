"""Full truncation of a log, for example when all its records are below the leader's log start (REP-9)."""

from __future__ import annotations

from pathlib import Path

from brokers.engine.storage.files import storage_errors, sync_directory
from brokers.engine.storage.log import Log
from brokers.engine.storage.producer_state import SNAPSHOT_SUFFIX
from brokers.engine.storage.segment import Segment


def truncate_fully_and_start_at(log: Log, offset: int, now_ms: int) -> list[str]:
    """Removes all records of a log and starts it at another offset; returns the files to unlink later. Raises
    StorageFailed.

    A crash during this call leaves a shorter log, never one with a hole: segments are removed from the end, and the
    file that carries the new start offset comes last. The recovery point must be checkpointed before the next append.
    """
    removed_files = log.remove_all_segments()
    with storage_errors(log.root):
        for snapshot in Path(log.directory).glob(f"*{SNAPSHOT_SUFFIX}"):
            snapshot.unlink()
    sync_directory(Path(log.directory), log.root)
    segment = Segment(log.directory, log.root, offset, log.files, now_ms=now_ms)
    segment.create_file()
    log.segments = [segment]
    log.active = segment
    log.log_start_offset = log.durable_start_offset = log.log_end_offset = log.recovery_point = offset
    log.producers.clear(offset)
    log.epochs.clear()
    return [path for path in removed_files if not path.endswith(SNAPSHOT_SUFFIX)]
