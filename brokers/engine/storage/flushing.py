"""Making a log durable (LOG-19): planned and finished by the thread that owns the log, fsynced by any other."""

from __future__ import annotations

import os
from pathlib import Path

from brokers.engine.storage.files import SegmentFile, storage_errors
from brokers.engine.storage.log import Log


class FlushJob:
    """fsyncs everything of one log between its recovery point and its end as of the planning."""

    __slots__ = ("_descriptors", "_directory_fd", "_done", "_files", "_log", "_target")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._target = log.log_end_offset
        # Opened here, because the directory may be renamed (its topic deleted) while `run` is under way.
        with storage_errors(log.root):
            self._directory_fd = os.open(log.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
            os.fsync(self._directory_fd)
        self._done = True

    def finish(self) -> None:
        """In the owner's thread, also after a failed `run`: the recovery point moves if all went well."""
        for file in self._files:
            file.unpin()
        self._files.clear()
        if self._directory_fd >= 0:
            os.close(self._directory_fd)
            self._directory_fd = -1
        if self._done:
            self._log.recovery_point = max(self._log.recovery_point, min(self._target, self._log.log_end_offset))


def needs_flush(log: Log) -> bool:
    return log.recovery_point < log.log_end_offset
