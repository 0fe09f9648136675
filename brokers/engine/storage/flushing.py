"""Flush of a log to disk (LOG-19): the thread that owns the log plans and finishes it, any thread runs the fsyncs."""

from __future__ import annotations

import os
from pathlib import Path

from brokers.engine.storage.directories import PARTITION_METADATA_FILE
from brokers.engine.storage.files import SegmentFile, storage_errors
from brokers.engine.storage.indexes import AbortedIndex, OffsetIndex, TimeIndex
from brokers.engine.storage.log import Log
from brokers.engine.storage.producer_state import snapshot_path

# Recovery point of a log before its first flush: nothing of it is known to be on disk, not even its topic id.
NEVER_FLUSHED = 0


class FlushJob:
    """Fsyncs everything of one log between its recovery point and its end offset at the time of planning.

    Data below the recovery point is not verified after a crash, so it must be complete, including the indexes of closed
    segments and the leader epochs. The indexes of the active segment are rebuilt from its batches. So are producer
    snapshots, except those at the start of a segment: the segments before them may be deleted.
    """

    __slots__ = (
        "_descriptors",
        "_epoch_saves",
        "_files",
        "_indexes",
        "_log",
        "_opened_descriptors",
        "_snapshots",
        "_target_offset",
        "_unflushed_deletions",
        "_was_run",
    )

    def __init__(self, log: Log, *, is_closing: bool = False) -> None:
        """Plans the flush; with `is_closing`, after `log.close`, the active segment counts as closed. Raises
        StorageFailed.
        """
        self._log = log
        self._target_offset = log.log_end_offset
        self._was_run = False
        self._files: list[SegmentFile] = []
        self._indexes: list[OffsetIndex | TimeIndex | AbortedIndex] = []
        self._descriptors: list[int] = []  # descriptors of `_files`, which close them
        self._opened_descriptors: list[int] = []  # descriptors that this job closes, the directory last
        log.epochs.save_unsaved()
        self._epoch_saves = log.epochs.saves
        self._unflushed_deletions = log.unflushed_deletions
        self._snapshots = frozenset(log.producers.unflushed_snapshots)
        try:
            self._plan(log, is_closing)
        except BaseException:
            self.finish()
            raise

    def _plan(self, log: Log, is_closing: bool) -> None:
        for number, segment in enumerate(log.segments):
            is_last = number + 1 == len(log.segments)
            if is_last or log.segments[number + 1].base_offset > log.recovery_point:
                if segment.size_bytes:
                    for index in segment.indexes():
                        index.store()
                self._descriptors.append(segment.file.open())
                segment.file.pin()
                self._files.append(segment.file)
            if is_closing or not is_last:
                self._indexes += [index for index in segment.indexes() if not index.is_synced]
            if segment.base_offset in self._snapshots:
                self._open_for_fsync(str(snapshot_path(log.directory, segment.base_offset)))
        # Opened while planning, because the directory may be renamed (its topic deleted) while `run` is under way.
        for index in self._indexes:
            self._open_for_fsync(index.path)
        if log.epochs.saves:
            self._open_for_fsync(log.epochs.path)
        if log.recovery_point == NEVER_FLUSHED:
            self._open_for_fsync(f"{log.directory}/{PARTITION_METADATA_FILE}")
        self._open_for_fsync(log.directory)

    def _open_for_fsync(self, path: str) -> None:
        with storage_errors(self._log.root):
            if os.path.exists(path):  # noqa: PTH110
                self._opened_descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    @property
    def root(self) -> Path:
        return self._log.root

    def run(self) -> None:
        """Runs the slow part, which uses only the descriptors of the log. Raises StorageFailed."""
        # a failed fsync may drop dirty pages, so a retry proves nothing
        with storage_errors(self._log.root, halfway=True):
            for descriptor in self._descriptors:
                os.fdatasync(descriptor)
            for descriptor in self._opened_descriptors:
                os.fsync(descriptor)
        self._was_run = True

    def finish(self) -> None:
        """Releases the files in the owner's thread, also after a failed `run`; a successful run raises the recovery
        point.
        """
        for file in self._files:
            file.unpin()
        self._files.clear()
        for descriptor in self._opened_descriptors:
            os.close(descriptor)
        self._opened_descriptors.clear()
        if self._was_run:
            log = self._log
            log.recovery_point = max(log.recovery_point, min(self._target_offset, log.log_end_offset))
            for index in self._indexes:
                index.is_synced = True
            if log.epochs.saves == self._epoch_saves:
                log.epochs.saves = 0
            if log.unflushed_deletions == self._unflushed_deletions:
                log.unflushed_deletions = 0
                log.producers.unflushed_snapshots -= self._snapshots  # otherwise one may have been replaced since


def needs_flush(log: Log) -> bool:
    """True if a log has anything to flush: records, deletions, or the snapshot of a new segment.

    Deletions count because the checkpoint of log start offsets omits starts that the file names express.
    """
    return (
        log.recovery_point < log.log_end_offset
        or log.unflushed_deletions > 0
        or bool(log.producers.unflushed_snapshots)
    )


def is_durable(log: Log) -> bool:
    """True if all of a closed log has reached the disk."""
    indexes = [index for segment in log.segments for index in segment.indexes()]
    return (
        not needs_flush(log)
        and not log.epochs.has_unsaved
        and not log.epochs.saves
        and all(index.is_synced for index in indexes)
    )
