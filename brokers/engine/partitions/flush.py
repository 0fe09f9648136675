"""One flush round: fsyncs logs and writes their checkpoints, split so that the slow part may run in a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from brokers.contract.partitions import PartitionKey
from brokers.engine.partitions.offset_files import OffsetFile, Offsets
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.recovery_points import RecoveryPoints
from brokers.engine.partitions.start_offsets import StartOffsetsPlan
from brokers.engine.storage.files import StorageFailed
from brokers.engine.storage.flushing import FlushJob


class FlushBatch:
    """A flush that the table's thread plans and finishes; `run` may be called in any thread, and `finish` always
    follows.
    """

    def __init__(
        self,
        partitions: Sequence[Partition],
        dirty: Sequence[Partition],
        roots: Sequence[Path],
        recovery_points: RecoveryPoints,
        starts: StartOffsetsPlan,
        high_watermarks: OffsetFile,
        storage_failed: Callable[[StorageFailed], None],
        outdated: set[PartitionKey],
        *,
        closing: bool = False,
    ) -> None:
        """Plans the flush.

        `outdated` are deleted partitions that the checkpoint files may still name. The current ones are removed from it
        when all files are written.
        """
        self.jobs: list[FlushJob] = []
        self._failures: list[StorageFailed] = []
        self._storage_failed = storage_failed
        self._roots = roots
        flushed = set()
        for partition in dirty:
            try:
                self.jobs.append(FlushJob(partition.log, closing=closing))
                flushed.add(partition)
            except StorageFailed as failure:
                self._failures.append(failure)
        # The files get the recovery points that are valid once the fsyncs of this round have succeeded.
        self._recovery_points: dict[Path, Offsets] = {root: {} for root in roots}
        self._recovery_file, self._recovery_number = recovery_points.file, recovery_points.file.number()
        self._owner = recovery_points
        self._written: set[Path] = set()
        # Logs whose holes are on disk after this round, so that the file names them again, with their recovery points.
        self._named: list[tuple[Path, PartitionKey, int]] = []
        self._outdated, self._forgotten = outdated, frozenset(outdated)
        self.is_whole = False  # True once all files are written
        self._starts = starts
        self._high_watermarks: dict[Path, Offsets] = {root: {} for root in roots}
        self._watermark_file, self._watermark_number = high_watermarks, high_watermarks.number()
        for partition in partitions:
            log = partition.log
            key = (partition.topic, partition.index)
            if log.root not in self._recovery_points:
                continue
            point = log.log_end_offset if partition in flushed else log.recovery_point
            had_holes = recovery_points.is_omitted(key)
            if recovery_points.allow_name(key, point):
                self._recovery_points[log.root][key] = point
                if had_holes:
                    self._named.append((log.root, key, point))
            self._high_watermarks[log.root][key] = partition.high_watermark

    def run(self) -> None:
        """Runs the fsyncs and writes the checkpoint files; failures are kept for `finish`."""
        failed = {failure.directory for failure in self._failures}
        for job in self.jobs:
            if job.root in failed:
                continue
            try:
                job.run()
            except StorageFailed as failure:
                failed.add(failure.directory)
                self._failures.append(failure)
        for root in self._roots:
            if root in failed:
                continue
            try:
                self._recovery_file.write(self._recovery_number, root, self._recovery_points[root])
                self._written.add(root)
                self._starts.write(root)
                self._watermark_file.write(self._watermark_number, root, self._high_watermarks[root])
            except StorageFailed as failure:
                self._failures.append(failure)
        self.is_whole = not self._failures

    def finish(self) -> None:
        """Raises the recovery points; failed roots go offline, or are written in the next round."""
        for job in self.jobs:
            job.finish()
        if self.is_whole:
            self._outdated -= self._forgotten
        for root, key, point in self._named:
            if root not in self._written:
                self._owner.restore_holes(key, point)
        self._starts.finish()
        for failure in self._failures:
            self._storage_failed(failure)
