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
        start_offsets: StartOffsetsPlan,
        high_watermarks: OffsetFile,
        on_storage_failure: Callable[[StorageFailed], None],
        outdated: set[PartitionKey],
        *,
        is_closing: bool = False,
    ) -> None:
        """Plans the flush.

        `outdated` are deleted partitions that the checkpoint files may still name. The current ones are removed from it
        when all files are written.
        """
        self.jobs: list[FlushJob] = []
        self._failures: list[StorageFailed] = []
        self._on_storage_failure = on_storage_failure
        self._roots = roots
        flushed = set()
        for partition in dirty:
            try:
                self.jobs.append(FlushJob(partition.log, is_closing=is_closing))
                flushed.add(partition)
            except StorageFailed as failure:
                self._failures.append(failure)
        # The files get the recovery points that are valid once the fsyncs of this round have succeeded.
        self._recovery_points_by_root: dict[Path, Offsets] = {root: {} for root in roots}
        self._recovery_file, self._recovery_number = recovery_points.file, recovery_points.file.next_plan_number()
        self._recovery_points = recovery_points
        self._written_roots: set[Path] = set()
        # Logs whose holes are on disk after this round, so that the file names them again, with their recovery points.
        self._newly_named_logs: list[tuple[Path, PartitionKey, int]] = []
        self._outdated, self._planned_outdated = outdated, frozenset(outdated)
        self.is_complete = False  # True once all files are written
        self._start_offsets = start_offsets
        self._high_watermarks_by_root: dict[Path, Offsets] = {root: {} for root in roots}
        self._watermark_file, self._watermark_number = high_watermarks, high_watermarks.next_plan_number()
        for partition in partitions:
            log = partition.log
            key = (partition.topic, partition.index)
            if log.root not in self._recovery_points_by_root:
                continue
            recovery_point = log.log_end_offset if partition in flushed else log.recovery_point
            had_holes = recovery_points.is_omitted(key)
            if recovery_points.allow_name(key, recovery_point):
                self._recovery_points_by_root[log.root][key] = recovery_point
                if had_holes:
                    self._newly_named_logs.append((log.root, key, recovery_point))
            self._high_watermarks_by_root[log.root][key] = partition.high_watermark

    def run(self) -> None:
        """Runs the fsyncs and writes the checkpoint files; failures are kept for `finish`."""
        failed_roots = {failure.directory for failure in self._failures}
        for job in self.jobs:
            if job.root in failed_roots:
                continue
            try:
                job.run()
            except StorageFailed as failure:
                failed_roots.add(failure.directory)
                self._failures.append(failure)
        for root in self._roots:
            if root in failed_roots:
                continue
            try:
                self._recovery_file.write(self._recovery_number, root, self._recovery_points_by_root[root])
                self._written_roots.add(root)
                self._start_offsets.write(root)
                self._watermark_file.write(self._watermark_number, root, self._high_watermarks_by_root[root])
            except StorageFailed as failure:
                self._failures.append(failure)
        self.is_complete = not self._failures

    def finish(self) -> None:
        """Raises the recovery points; failed roots go offline, or are written in the next round."""
        for job in self.jobs:
            job.finish()
        if self.is_complete:
            self._outdated -= self._planned_outdated
        for root, key, recovery_point in self._newly_named_logs:
            if root not in self._written_roots:
                self._recovery_points.restore_holes(key, recovery_point)
        self._start_offsets.finish()
        for failure in self._failures:
            self._on_storage_failure(failure)
