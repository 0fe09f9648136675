"""Log start offsets, in `log-start-offset-checkpoint` of each root (LOG-6, LOG-7).

They are written by flush rounds, and by a DeleteRecords that must be durable before its response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from brokers.contract.partitions import PartitionKey
from brokers.engine.partitions.offset_files import OffsetFile
from brokers.engine.partitions.partition import Partition
from brokers.engine.storage import checkpoints
from brokers.engine.storage.files import StorageFailed
from brokers.engine.storage.log import Log


class StartOffsets:
    """Log start offset files of all roots; `plan` runs in the table's thread, and its result may be written in any."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._file = OffsetFile(checkpoints.LOG_START_OFFSETS, roots)

    def plan(self, partitions: Iterable[Partition], roots: Iterable[Path]) -> StartOffsetsPlan:
        """Plans the current content of the files in `roots`.

        It names only logs that start above their first segment, or that would after a power cut that undoes deletions.
        """
        offsets: dict[Path, dict[PartitionKey, int]] = {root: {} for root in roots}
        logs: list[tuple[Log, int]] = []
        for partition in partitions:
            log = partition.log
            if log.root in offsets and (log.unflushed_deletions or log.log_start_offset > log.segments[0].base_offset):
                offsets[log.root][partition.topic, partition.index] = log.log_start_offset
                logs.append((log, log.log_start_offset))
        return StartOffsetsPlan(self._file, offsets, logs)


class StartOffsetsPlan:
    """Content of the files at the time of planning; `finish` is called in the table's thread after the writes."""

    def __init__(
        self,
        file: OffsetFile,
        offsets: dict[Path, dict[PartitionKey, int]],
        logs: Sequence[tuple[Log, int]],
    ) -> None:
        self._file = file
        self._number = file.next_plan_number()
        self._offsets = offsets
        self._logs = logs
        self._written_roots: set[Path] = set()

    def write(self, root: Path) -> None:
        """Writes the file of one root durably, unless a later plan was written. Raises StorageFailed."""
        self._file.write(self._number, root, self._offsets[root])
        self._written_roots.add(root)

    def finish(self) -> None:
        """Records in the logs which start offsets are on disk."""
        for log, offset in self._logs:
            if log.root in self._written_roots:
                log.on_start_offset_durable(offset)


class StartOffsetsBatch:
    """One write of the files of some roots; `run` in any thread, then `finish` in the table's thread."""

    def __init__(
        self, roots: Sequence[Path], plan: StartOffsetsPlan, on_storage_failure: Callable[[StorageFailed], None]
    ) -> None:
        self._roots = roots
        self._plan = plan
        self._on_storage_failure = on_storage_failure
        self._failures: list[StorageFailed] = []

    def run(self) -> None:
        for root in self._roots:
            try:
                self._plan.write(root)
            except StorageFailed as failure:
                self._failures.append(failure)

    def finish(self) -> list[Path]:
        """Reports failed roots, which go offline; returns those whose write must be repeated."""
        self._plan.finish()
        for failure in self._failures:
            self._on_storage_failure(failure)
        return [failure.directory for failure in self._failures if failure.is_transient]
