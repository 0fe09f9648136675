"""Making a log durable (LOG-19): planned and finished by the thread that owns the log, fsynced by any other."""

from __future__ import annotations

import os
from pathlib import Path

from brokers.engine.storage.files import SegmentFile, storage_errors, sync_directory
from brokers.engine.storage.log import Log


class FlushJob:
    """fsyncs everything of one log between its recovery point and its end as of the planning."""

    __slots__ = ("_descriptors", "_directory", "_done", "_files", "_log", "_target")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._target = log.log_end_offset
        self._directory = log.directory
        self._done = False
        self._files: list[SegmentFile] = []
        self._descriptors: list[int] = []
        for number, segment in enumerate(log.segments):
            is_last = number + 1 == len(log.segments)
            if is_last or log.segments[number + 1].base_offset > log.recovery_point:
                if segment.size_bytes:
                    segment.offset_index.store()
                    segment.time_index.store()
                self._descriptors.append(segment.file.open())
                segment.file.pin()
                self._files.append(segment.file)

    @property
    def root(self) -> Path:
        return self._log.root

    def run(self) -> None:
        """The slow part; touches nothing of the log but its descriptors. Raises StorageFailed."""
        with storage_errors(self._log.root):
            for descriptor in self._descriptors:
                os.fdatasync(descriptor)
        sync_directory(Path(self._directory), self._log.root)
        self._done = True

    def finish(self) -> None:
        """In the owner's thread, also after a failed `run`: the recovery point moves if all went well."""
        for file in self._files:
            file.unpin()
        self._files.clear()
        if self._done:
            self._log.recovery_point = max(self._log.recovery_point, min(self._target, self._log.log_end_offset))


def needs_flush(log: Log) -> bool:
    return log.recovery_point < log.log_end_offset
