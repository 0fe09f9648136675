"""Scheduling of log cleaning: next log, logs being cleaned, cleaned offsets (CMP-10 to CMP-15, CMP-27).

Everything runs in the table's thread, except `LogToClean.flush_log` and `CheckpointBatch.write`. The cleaning itself
runs elsewhere from a `Job`; its results are swapped into the live log here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from brokers.contract.partitions import PartitionKey
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.storage import checkpoints
from brokers.engine.storage.compaction import selection, swap
from brokers.engine.storage.compaction.job import Cleaned, Failed, Fault, Finished, Job
from brokers.engine.storage.compaction.selection import CleanableRange, CompactionFacts
from brokers.engine.storage.compaction.settings import CleanerSettings, CompactionRules
from brokers.engine.storage.files import StorageFailed
from brokers.engine.storage.flushing import FlushJob
from brokers.engine.storage.log import Log

CHECKPOINT: Final = "cleaner-offset-checkpoint"
# After consecutive failures the retry delay of a log doubles each time, up to this maximum (or the configured back-off,
# if that is longer).
RETRY_MS_MAX: Final = 600_000
DOUBLINGS_MAX: Final = 20


class LogToClean(NamedTuple):
    """A log that was selected for cleaning.

    `flush` runs first: a record may replace another only once it is on disk. `is_first` is true if no checkpoint file
    names the log. A file must name it before the first swap, because recovery takes holes in a log that was never
    cleaned for lost records.
    """

    partition: Partition
    job: Job
    ratio: float
    flush: FlushJob | None
    is_first: bool

    def flush_log(self) -> None:
        """Flushes the log, in any thread. Raises StorageFailed."""
        if self.flush is not None:
            self.flush.run()


class CheckpointBatch(NamedTuple):
    """Checkpoint file of one root, to be written in any thread."""

    root: Path
    offsets: dict[PartitionKey, int]

    def write(self) -> None:
        """Writes the file durably. Raises StorageFailed."""
        checkpoints.write_offsets(self.root / CHECKPOINT, self.offsets, self.root)


class Retry(NamedTuple):
    """Retry of a log whose last `failures` runs failed for a temporary reason."""

    failures: int
    failed_at_ms: int
    wait_ms: int

    def is_due(self, now_ms: int) -> bool:
        """True if the delay is over, or if the clock was set back."""
        return not 0 <= now_ms - self.failed_at_ms < self.wait_ms


class Cleaner:
    """Selects logs of one table for cleaning and tracks their cleaned offsets.

    `uncleanable` are partitions with damaged logs and the reason; they are excluded until the broker restarts.
    `retries` are partitions whose last run failed for a reason outside the log. `roots_to_checkpoint` are the roots
    whose checkpoint file names a cleaned offset beyond the end of a truncated log.
    """

    def __init__(self, table: PartitionTable, settings: CleanerSettings) -> None:
        """Loads the checkpoints; called after the table has recovered, because a checkpoint counts only for a known
        partition.
        """
        self._table = table
        self._settings = settings
        # Partitions that are being cleaned, and the lowest end offset of their log since the start of the run.
        self._in_progress: dict[PartitionKey, int] = {}
        self._partition_by_key: dict[PartitionKey, Partition] = {
            (partition.topic, partition.index): partition for partition in table
        }
        self._cleaned_offset_by_key: dict[PartitionKey, int] = {}
        # Partitions whose checkpoint was ignored because it is past the end of their log.
        self.ignored_checkpoints: list[PartitionKey] = []
        self.uncleanable: dict[PartitionKey, str] = {}
        self.retries: dict[PartitionKey, Retry] = {}
        self.roots_to_checkpoint: set[Path] = set()
        table.on_truncated = self._on_truncated
        for root in {partition.log.root for partition in table if not partition.offline}:
            self._load_checkpoints(root)

    def use_settings(self, settings: CleanerSettings) -> None:
        """Applies new settings from the next run on."""
        self._settings = settings

    def _load_checkpoints(self, root: Path) -> None:
        try:
            offsets = checkpoints.read_offsets(root / CHECKPOINT, root)
        except checkpoints.UnreadableCheckpoint:
            return  # every log of the root counts as dirty from its start (CMP-11)
        except StorageFailed as failure:
            self._table.on_storage_failure(failure)
            return
        for key, offset in offsets.items():
            partition = self._partition_by_key.get(key)
            if partition is None or partition.log.root != root:
                continue
            if offset > partition.log.log_end_offset:
                self.ignored_checkpoints.append(key)  # recorded now, because the log will grow past it
            else:
                self._cleaned_offset_by_key[key] = offset

    # -- choosing -----------------------------------------------------------------------------------------------------

    def plan(self, now_ms: int) -> LogToClean | None:
        """Selects the due log with the greatest dirty share and marks it as being cleaned; returns None if there is
        none.

        The end of every run must be reported by `on_finished`, `abandon` or `on_failed`.
        """
        self._forget_deleted()
        while True:
            candidate = selection.find_dirtiest(self._find_cleanable_ranges(now_ms))
            if candidate is None:
                return None
            partition, cleanable, rules = candidate
            key = (partition.topic, partition.index)
            try:
                flush = FlushJob(partition.log) if partition.log.recovery_point < cleanable.first_uncleanable else None
                swap.discard(partition.log.directory, partition.log.root)
            except StorageFailed as failure:
                self._table.on_storage_failure(failure)
                if failure.is_transient:
                    self.retries[key] = self._retry(self.retries.pop(key, None), now_ms)
                    self._update_totals()
                continue
            self._in_progress[key] = partition.log.log_end_offset
            is_first = key not in self._cleaned_offset_by_key
            self._cleaned_offset_by_key.setdefault(key, cleanable.first_dirty)
            return LogToClean(
                partition, self._make_job(partition, cleanable, rules, now_ms), cleanable.ratio, flush, is_first
            )

    def _find_cleanable_ranges(self, now_ms: int) -> Iterator[tuple[Partition, CleanableRange, CompactionRules]]:
        for partition in self._table:
            rules = partition.config.compaction
            key = (partition.topic, partition.index)
            if rules is None or partition.offline or key in self._in_progress or key in self.uncleanable:
                continue
            retry = self.retries.get(key)
            if retry is not None and not retry.is_due(now_ms):
                continue
            log = partition.log
            if len(log.segments) < 2:
                continue
            checkpoint = self._cleaned_offset_by_key.get(key)
            first_dirty, is_past = selection.first_dirty_offset(checkpoint, log.log_start_offset, log.log_end_offset)
            if is_past:
                del self._cleaned_offset_by_key[key]
                self.ignored_checkpoints.append(key)
            stable_offset = partition.last_stable_offset
            try:
                cleanable = selection.measure(
                    _collect_segment_facts(log),
                    rules,
                    first_dirty=first_dirty,
                    stable_offset=stable_offset,
                    now_ms=now_ms,
                )
            except StorageFailed as failure:
                self._table.on_storage_failure(failure)
                continue
            yield partition, cleanable, rules

    def _forget_deleted(self) -> None:
        """Forgets partitions that were deleted: a new topic of the same name starts with nothing cleaned."""
        for key, partition in list(self._partition_by_key.items()):
            if self._table.get(*key) is not partition:
                del self._partition_by_key[key]
                self._cleaned_offset_by_key.pop(key, None)
                self.uncleanable.pop(key, None)
                self.retries.pop(key, None)
                self._update_totals()
        for partition in self._table:
            self._partition_by_key.setdefault((partition.topic, partition.index), partition)

    def _make_job(self, partition: Partition, cleanable: CleanableRange, rules: CompactionRules, now_ms: int) -> Job:
        log, settings = partition.log, self._settings
        segments_to_clean = [segment for segment in log.segments if segment.base_offset < cleanable.first_uncleanable]
        index_interval_bytes, index_bytes = log.config.index_limits
        return Job(
            directory=log.directory,
            segments=[(segment.base_offset, segment.size_bytes) for segment in segments_to_clean],
            ahead=[
                (segment.base_offset, segment.size_bytes)
                for segment in log.segments[len(segments_to_clean) :]
                if segment.size_bytes
            ],
            first_dirty=cleanable.first_dirty,
            end_offset=cleanable.first_uncleanable,
            committed_offset=partition.high_watermark,
            producers={
                producer_id: (entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
                for producer_id, entry in log.producers.producers.items()
            },
            now_ms=now_ms,
            delete_retention_ms=rules.delete_retention_ms,
            segment_bytes=log.config.segment_bytes,
            index_bytes=index_bytes,
            index_interval_bytes=index_interval_bytes,
            map_bytes=settings.map_bytes,
            load_factor=settings.load_factor,
            buffer_bytes=settings.io_buffer_bytes,
            io_bytes_per_s=settings.io_bytes_per_s / settings.threads,
        )

    # -- results of runs ----------------------------------------------------------------------------------------------

    def finish_flush(self, work: LogToClean) -> None:
        """Finishes the flush after `flush_log`, also if that failed."""
        if work.flush is not None:
            work.flush.finish()

    def is_current(self, work: LogToClean) -> bool:
        """True while the partition exists and is online: only then a result of the run may be used."""
        partition = work.partition
        return not partition.offline and self._table.get(partition.topic, partition.index) is partition

    def may_swap(self, work: LogToClean) -> bool:
        """True while the topic is also still compacted: otherwise every record must be kept."""
        return self.is_current(work) and work.partition.config.compaction is not None

    def swap_in(self, work: LogToClean, cleaned: Cleaned, now_ms: int) -> bool:
        """Swaps one group into the live log; returns False if the log has changed and the run must be abandoned
        (CMP-30).
        """
        if not self.may_swap(work):
            return False
        try:
            removed_files = swap.swap_in(work.partition.log, cleaned)
        except StorageFailed as failure:
            self._table.on_storage_failure(failure)
            return False
        if removed_files is None:
            return False
        self._table.remove_later(work.partition, removed_files, now_ms)
        return True

    def on_finished(self, work: LogToClean, run: Finished) -> None:
        """Records a complete run that was swapped in; the caller must then write the `checkpoint` of its root."""
        key = (work.partition.topic, work.partition.index)
        lowest_end_offset = self._in_progress.pop(key, run.end_offset)
        self._table.cleaned.add(run)
        self.retries.pop(key, None)
        self._update_totals()
        if self.is_current(work):
            self._cleaned_offset_by_key[key] = min(run.end_offset, lowest_end_offset)

    def _on_truncated(self, partition: Partition) -> None:
        """Lowers the cleaned offset after a truncation: records that replace the truncated ones are not cleaned
        (CMP-27).
        """
        key, end_offset = (partition.topic, partition.index), partition.log.log_end_offset
        if self._partition_by_key.get(key) is not partition:
            return
        if key in self._in_progress:
            self._in_progress[key] = min(self._in_progress[key], end_offset)
        if self._cleaned_offset_by_key.get(key, 0) > end_offset:
            self._cleaned_offset_by_key[key] = end_offset
            self.roots_to_checkpoint.add(partition.log.root)

    def checkpoint(self, root: Path) -> CheckpointBatch:
        """Returns the current content of a root's checkpoint file; only one batch may be written at a time."""
        offsets = {
            key: offset
            for key, offset in self._cleaned_offset_by_key.items()
            if self._partition_by_key[key].log.root == root
        }
        return CheckpointBatch(root, offsets)

    def abandon(self, work: LogToClean) -> None:
        """Records a run that ended early without a fault: the log changed meanwhile, or the broker stops."""
        self._in_progress.pop((work.partition.topic, work.partition.index), None)
        if not self.is_current(work):
            return
        try:
            swap.discard(work.partition.log.directory, work.partition.log.root)
        except StorageFailed as failure:
            self._table.on_storage_failure(failure)

    def on_failed(self, work: LogToClean, failed: Failed, now_ms: int) -> int | None:
        """Records a failed run and returns the retry delay in milliseconds, if there is a retry.

        Otherwise the log is excluded (CMP-15) or goes offline with its disk (LOG-3).
        """
        self.abandon(work)
        self._table.cleaned.failures += 1
        wait_ms = None
        if self.is_current(work):
            key = (work.partition.topic, work.partition.index)
            if failed.fault is Fault.TRANSIENT:
                retry = self.retries[key] = self._retry(self.retries.pop(key, None), now_ms)
                wait_ms = retry.wait_ms
            elif failed.fault is Fault.LOG:
                self.retries.pop(key, None)
                if _is_as_planned(work):
                    self.uncleanable[key] = failed.reason
            else:
                cause = OSError(failed.errno, failed.reason)
                self._table.on_directory_failure(StorageFailed(work.partition.log.root, cause))
        self._update_totals()
        return wait_ms

    def _retry(self, previous_retry: Retry | None, now_ms: int) -> Retry:
        failures = previous_retry.failures + 1 if previous_retry else 1
        backoff_ms = self._settings.backoff_ms
        wait_ms = min(backoff_ms << min(failures - 1, DOUBLINGS_MAX), max(RETRY_MS_MAX, backoff_ms))
        return Retry(failures, now_ms, wait_ms)

    def _update_totals(self) -> None:
        self._table.cleaned.uncleanable = len(self.uncleanable)
        self._table.cleaned.waiting = len(self.retries)


def _is_as_planned(work: LogToClean) -> bool:
    """False if a truncation removed segments that the run read ahead: then its failure does not indicate damage."""
    size_bytes_by_base = {segment.base_offset: segment.size_bytes for segment in work.partition.log.segments}
    return all(size_bytes_by_base.get(base, 0) >= size for base, size in work.job.ahead)


def _collect_segment_facts(log: Log) -> list[CompactionFacts]:
    return [
        CompactionFacts(
            segment.base_offset, segment.size_bytes, segment.largest_timestamp, segment.load_first_timestamp
        )
        for segment in log.segments
    ]
