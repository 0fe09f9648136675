"""Partitions of one root at start: opens their logs with the offsets of the checkpoint files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from brokers.contract.partitions import PartitionKey
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.reports import RecoveryReport
from brokers.engine.partitions.topic_config import TopicConfig
from brokers.engine.storage import checkpoints
from brokers.engine.storage.directories import NO_TOPIC_ID, FoundPartition, LogRoot, write_topic_id
from brokers.engine.storage.files import OpenFiles, StorageFailed
from brokers.engine.storage.flushing import NEVER_FLUSHED
from brokers.engine.storage.log import NO_HOLE, Log
from brokers.engine.storage.recovery import LogCheckpoint, create_log, load_log
from brokers.engine.storage.rewriting import OldFormat


class RootLoader:
    """Loads the partitions of one root.

    `checkpointed` are the partitions named by the root's files. `has_lowered_recovery_point` is true if a log
    ends below its recovery point; the recovery points must then be written again.
    """

    def __init__(
        self,
        root: LogRoot,
        files: OpenFiles,
        config: TopicConfig,
        on_storage_failure: Callable[[StorageFailed], None],
        now_ms: int,
    ) -> None:
        """Reads the checkpoint files. Raises StorageFailed."""
        self._root = root
        self._files = files
        self._config = config
        self._on_storage_failure = on_storage_failure
        self._now_ms = now_ms
        self._unreadable: dict[str, str] = {}
        unreadable = self._unreadable
        self._recovery_points = checkpoints.read_offsets_or_empty(root.path, checkpoints.RECOVERY_POINTS, unreadable)
        self._start_offsets = checkpoints.read_offsets_or_empty(root.path, checkpoints.LOG_START_OFFSETS, unreadable)
        self._high_watermarks = checkpoints.read_offsets_or_empty(root.path, checkpoints.HIGH_WATERMARKS, unreadable)
        self._cleaned = checkpoints.read_offsets_or_empty(root.path, checkpoints.CLEANED_OFFSETS, unreadable)
        self._dense_from = checkpoints.dense_offset_by_log(root.path, self._recovery_points)
        self.checkpointed = self._recovery_points.keys() | self._start_offsets.keys()
        # Logs that these files name: after a crash, a new log with one of these names would get the offsets of an
        # earlier log.
        self.listed = self.checkpointed | self._high_watermarks.keys()
        self.has_lowered_recovery_point = False

    def load(self, report: RecoveryReport) -> Iterator[tuple[PartitionKey, Partition]]:
        """Yields every partition on disk. Raises StorageFailed.

        A partition whose log cannot be opened is offline, and its files stay unchanged.
        """
        report.unreadable.update(self._unreadable)
        found_partitions = self._root.scan()
        report.foreign += self._root.foreign
        if self._root.clean:
            # A crash may come between a deletion and the next write of these files, a clean stop may not.
            for topic, number in sorted(
                self.checkpointed - {(on_disk.topic, on_disk.partition) for on_disk in found_partitions}
            ):
                report.unreadable[str(self._root.path)] = f"checkpoints name {topic}-{number}, which does not exist"
        for on_disk in found_partitions:
            key = (on_disk.topic, on_disk.partition)
            try:
                yield key, self._open_log(on_disk, key, report)
            except OldFormat as refusal:
                report.refused.append((on_disk.topic, on_disk.partition, str(refusal)))
                yield key, self._create_refused(on_disk)

    def _open_log(self, on_disk: FoundPartition, key: PartitionKey, report: RecoveryReport) -> Partition:
        recovery_point = self._recovery_points.get(key, 0)
        log, loaded = load_log(
            on_disk.directory,
            self._root.path,
            key,
            self._files,
            self._config.log,
            LogCheckpoint(recovery_point, self._start_offsets.get(key, 0), self._root.clean, self._dense_from.get(key)),
            now_ms=self._now_ms,
        )
        self.has_lowered_recovery_point |= log.recovery_point < recovery_point
        report.truncated_bytes += loaded.truncated_bytes
        report.scanned_bytes += loaded.scanned_bytes
        report.rewritten_segments += loaded.rewritten_segments
        report.split_segments += loaded.split_segments
        report.damages += ((on_disk.topic, on_disk.partition, damage) for damage in loaded.damages)
        if key in self._recovery_points or key in self._cleaned:
            # The log was verified before, or holes left by compaction cannot be distinguished from others.
            log.hole_offset = NO_HOLE
        partition = self._create_partition(on_disk, log)
        checkpointed = self._high_watermarks.get(key, 0)
        partition.high_watermark = min(max(checkpointed, log.log_start_offset), log.log_end_offset)
        return partition

    def is_left_by_power_cut(self, key: PartitionKey, partition: Partition) -> bool:
        """True if the log has no topic id because it was never flushed.

        Its records, or its start offset if it is empty, may belong to an earlier topic of the same name that was
        deleted while this broker was down. The first flush makes the topic id durable.
        """
        has_content = partition.log.log_end_offset > 0
        was_flushed = self._recovery_points.get(key, NEVER_FLUSHED) != NEVER_FLUSHED or self._root.clean
        has_no_topic_id = partition.topic_id == NO_TOPIC_ID and not partition.offline
        return has_no_topic_id and has_content and not was_flushed and self._root.was_used_by_penstock

    def _create_refused(self, on_disk: FoundPartition) -> Partition:
        """Returns an offline partition that answers every call with KAFKA_STORAGE_ERROR; nothing is written to its
        directory.
        """
        log = create_log(
            on_disk.directory,
            self._root.path,
            on_disk.topic,
            on_disk.partition,
            self._files,
            self._config.log,
            now_ms=self._now_ms,
        )
        partition = self._create_partition(on_disk, log)
        partition.fail()
        return partition

    def _create_partition(self, on_disk: FoundPartition, log: Log) -> Partition:
        return Partition(log, on_disk.topic_id, self._config, self._on_storage_failure)


def assign_topic_id(partition: Partition, topic_id: bytes) -> None:
    """Assigns a log without topic id to the topic of its name."""
    try:
        write_topic_id(Path(partition.log.directory), topic_id, partition.log.root)
    except StorageFailed as failure:
        partition.on_storage_failure(failure)
        raise
    partition.topic_id = topic_id
