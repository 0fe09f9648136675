"""Flushes and checkpoint files of the logs of one table, including the last flush at a stop.

Everything runs in the table's thread, except `run` of the batches, which may be called in another.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Final

from brokers.contract.partitions import PartitionKey
from brokers.engine.partitions.flush import FlushBatch
from brokers.engine.partitions.offset_files import HighWatermarks, HighWatermarksBatch
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.recovery_points import RecoveryPoints
from brokers.engine.partitions.start_offsets import StartOffsets, StartOffsetsBatch
from brokers.engine.storage.files import OpenFiles, StorageFailed
from brokers.engine.storage.flushing import is_durable, needs_flush

# Maximum number of logs that one batch flushes.
FLUSHED_LOGS_MAX: Final = 64


class FlushSchedule:
    """Tracks since when each log has unflushed records; clean and deleted logs are forgotten."""

    def __init__(self) -> None:
        self._dirty_since_ms: dict[PartitionKey, tuple[int, int]] = {}

    def find_due_logs(self, partitions: Iterable[Partition], now_ms: int, logs_max: int) -> list[Partition]:
        """Returns the logs with `flush.messages` unflushed records, or with an unflushed record that is `flush.ms` old.

        If there are more than `logs_max`, those that have waited longest are returned.
        """
        result: list[tuple[int, Partition]] = []
        previous_since, self._dirty_since_ms = self._dirty_since_ms, {}
        for partition in partitions:
            config, log = partition.config, partition.log
            unflushed_records = log.log_end_offset - log.recovery_point
            if not config.flushes or not unflushed_records:
                continue
            key = (partition.topic, partition.index)
            # If the log was flushed in between, its unflushed records are newer.
            recovery_point, since_ms = previous_since.get(key, (-1, now_ms))
            if recovery_point != log.recovery_point:
                since_ms = now_ms
            self._dirty_since_ms[key] = (log.recovery_point, since_ms)
            if unflushed_records >= config.flush_messages or now_ms - since_ms >= config.flush_ms:
                result.append((since_ms, partition))
        result.sort(key=lambda candidate: candidate[0])
        return [partition for _, partition in result[:logs_max]]


class LogFlusher:
    """Plans flushes and checkpoints.

    `online` returns the roots that are not offline. `outdated` are deleted partitions that the checkpoint files may
    still name.
    """

    def __init__(
        self,
        roots: tuple[Path, ...],
        partitions: Mapping[PartitionKey, Partition],
        files: OpenFiles,
        *,
        online_roots: Callable[[], list[Path]],
        on_directory_failure: Callable[[StorageFailed], None],
        on_storage_failure: Callable[[StorageFailed], None],
    ) -> None:
        self.recovery_points = RecoveryPoints(roots)
        self.outdated: set[PartitionKey] = set()
        self.topics_may_require_flushes = (
            False  # True if a topic may require more frequent flushes than the broker's rounds
        )
        self._partitions = partitions
        self._files = files
        self._online_roots = online_roots
        self._on_directory_failure = on_directory_failure
        self._on_storage_failure = on_storage_failure
        self._next_flush_number = 0
        self._start_offsets = StartOffsets(roots)
        self._high_watermarks = HighWatermarks(roots)
        self._flush_schedule = FlushSchedule()
        # Logs that a stop has closed early, while the broker still serves requests.
        self._closed_partitions: set[Partition] = set()
        # Roots whose recovery point file still names logs that got holes.
        self._roots_with_new_holes: set[Path] = set()

    def _online_partitions(self) -> list[Partition]:
        return [partition for partition in self._partitions.values() if not partition.offline]

    # -- while the broker runs ----------------------------------------------------------------------------------------

    def plan_flush(self, *, logs_max: int = FLUSHED_LOGS_MAX) -> FlushBatch:
        """Plans the next flush of dirty logs, in rotation, and of the checkpoints.

        Call `run()` in a thread, then `finish()` in this one.
        """
        partitions = self._online_partitions()
        dirty = [partition for partition in partitions if needs_flush(partition.log)]
        if len(dirty) > logs_max:
            start = self._next_flush_number % len(dirty)
            self._next_flush_number = start + logs_max
            dirty = (dirty[start:] + dirty[:start])[:logs_max]
        return self._flush_batch(partitions, dirty)

    def plan_due_flush(self, now_ms: int) -> FlushBatch | None:
        """Plans a flush of the logs for which `flush.messages` or `flush.ms` is reached, None if there are none.

        Called every second; the batch is used like that of `plan_flush`.
        """
        if not self.topics_may_require_flushes:
            return None
        partitions = self._online_partitions()
        dirty = self._flush_schedule.find_due_logs(partitions, now_ms, FLUSHED_LOGS_MAX)
        return self._flush_batch(partitions, dirty) if dirty else None

    def _flush_batch(
        self, partitions: list[Partition], dirty: list[Partition], *, is_closing: bool = False, is_final: bool = False
    ) -> FlushBatch:
        roots = self._online_roots()
        start_offsets = self._start_offsets.plan(partitions, roots)
        self._high_watermarks.invalidate()
        return FlushBatch(
            partitions,
            dirty,
            roots,
            self.recovery_points,
            start_offsets,
            self._high_watermarks.file,
            self._on_directory_failure if is_final else self._on_storage_failure,
            self.outdated,
            is_closing=is_closing,
        )

    def record_holes(self, partition: Partition) -> None:
        """Records that appended batches have missing offsets because the leader's log was compacted.

        Until they are flushed, the recovery point file must not name the log, or a start would take the holes for the
        result of a power cut. `persist_holes` must be called before the leader learns the new end offset.
        """
        log = partition.log
        if self.recovery_points.record_holes((partition.topic, partition.index), log.log_end_offset):
            self._roots_with_new_holes.add(log.root)

    def persist_holes(self) -> None:
        """Writes the recovery point files of all noted logs, one file per root."""
        while self._roots_with_new_holes:
            root = self._roots_with_new_holes.pop()
            try:
                self.recovery_points.write(root, self._partitions)
            except StorageFailed as failure:
                if failure.is_transient and self._files.close_some():
                    self._roots_with_new_holes.add(root)
                else:
                    self._on_directory_failure(failure)

    def plan_high_watermarks(self) -> HighWatermarksBatch | None:
        """Plans a write of high watermarks that changed since the last call, None if none did.

        Called every few seconds; the batch is used like that of `plan_flush`.
        """
        steps = self.plan_high_watermarks_in_steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                batch: HighWatermarksBatch | None = end.value
                return batch

    def plan_high_watermarks_in_steps(self) -> Generator[None, None, HighWatermarksBatch | None]:
        """Runs `plan_high_watermarks` in steps."""
        number = self._high_watermarks.file.next_plan_number()
        changed_offsets = yield from self._high_watermarks.plan_in_steps(
            tuple(self._partitions.items()), self._online_roots()
        )
        if not changed_offsets:
            return None
        return HighWatermarksBatch(self._high_watermarks, number, changed_offsets, self._on_storage_failure)

    def plan_checkpoints(self) -> FlushBatch | None:
        """Plans a write of checkpoint files without the `outdated` partitions, None if there are none."""
        return self._flush_batch(self._online_partitions(), []) if self.outdated else None

    def checkpoint_recovery_points(self) -> None:
        """Writes all checkpoint files at once because an offset in them is too high for its log.

        Otherwise the next start would take more records for durable, or for deleted, than is true.
        """
        batch = self._flush_batch(self._online_partitions(), [], is_final=True)
        batch.run()
        batch.finish()
        # A new set: a batch in progress does not know about later deletions.
        self.outdated = set()

    def plan_start_offsets(self, roots: Iterable[Path]) -> StartOffsetsBatch:
        """Plans a durable write of the current start offsets of the logs in `roots` (LOG-46)."""
        online = [root for root in self._online_roots() if root in set(roots)]
        return StartOffsetsBatch(
            online, self._start_offsets.plan(self._partitions.values(), online), self._on_storage_failure
        )

    # -- at a stop ----------------------------------------------------------------------------------------------------

    def plan_early_close(self, *, logs_max: int = FLUSHED_LOGS_MAX) -> FlushBatch | None:
        """Closes some of the logs that are not led here and plans their flush, None if none is left.

        Called after this broker has stopped following leaders, so that `close` takes less time. A log that is written
        to afterwards is closed again.
        """
        unclosed_partitions = [
            partition
            for partition in self._online_partitions()
            if not (partition.is_leader or partition in self._closed_partitions)
        ]
        partitions_to_close = unclosed_partitions[:logs_max]
        if not partitions_to_close:
            return None
        for partition in partitions_to_close:
            self._close(partition)
        self._closed_partitions.update(partitions_to_close)
        dirty = [partition for partition in partitions_to_close if not (partition.offline or is_durable(partition.log))]
        return self._flush_batch(self._online_partitions(), dirty, is_closing=True)

    def close(self) -> None:
        """Closes every log and makes it durable; waits for the disk."""
        for partition in self._online_partitions():
            if not self._is_closed(partition):
                self._close(partition)
        self._flush_closed()

    def _close(self, partition: Partition) -> None:
        try:
            partition.log.close()
        except StorageFailed as failure:
            self._on_directory_failure(failure)

    def _is_closed(self, partition: Partition) -> bool:
        return partition in self._closed_partitions and is_durable(partition.log)

    def _flush_closed(self) -> None:
        """Flushes all logs that are not durable, some at a time because each takes descriptors."""
        partitions_to_flush = [partition for partition in self._partitions.values() if not is_durable(partition.log)]
        for start in range(0, max(len(partitions_to_flush), 1), FLUSHED_LOGS_MAX):
            online = self._online_partitions()
            dirty = [
                partition
                for partition in partitions_to_flush[start : start + FLUSHED_LOGS_MAX]
                if not partition.offline
            ]
            batch = self._flush_batch(online, dirty, is_closing=True, is_final=True)
            batch.run()
            batch.finish()
            for partition in dirty:
                partition.log.free_memory()
                partition.log.active.file.close()
