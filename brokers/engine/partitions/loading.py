"""The partitions of one root at start: logs opened with what the checkpoint files say of them."""

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
from brokers.engine.storage.old_formats import OldFormat
from brokers.engine.storage.recovery import LogCheckpoint, create_log, load_log


class RootLoader:
    """`checkpointed` are the partitions that the root's files name; `has_fallen`: one came out below its recovery
    point, which is to be written again.
    """

    def __init__(
        self,
        root: LogRoot,
        files: OpenFiles,
        config: TopicConfig,
        storage_failed: Callable[[StorageFailed], None],
        now_ms: int,
    ) -> None:
        """Raises StorageFailed."""
        self._root = root
        self._files = files
        self._config = config
        self._storage_failed = storage_failed
        self._now_ms = now_ms
        self._unreadable: dict[str, str] = {}
        unreadable = self._unreadable
        self._recovery_points = checkpoints.known_offsets(root.path, checkpoints.RECOVERY_POINTS, unreadable)
        self._start_offsets = checkpoints.known_offsets(root.path, checkpoints.LOG_START_OFFSETS, unreadable)
        self._high_watermarks = checkpoints.known_offsets(root.path, checkpoints.HIGH_WATERMARKS, unreadable)
        self._cleaned = checkpoints.known_offsets(root.path, checkpoints.CLEANED_OFFSETS, unreadable)
        self._dense_from = checkpoints.dense_from(root.path, self._recovery_points)
        self.checkpointed = self._recovery_points.keys() | self._start_offsets.keys()
        # A log that is made under such a name would, after a crash, be given what these lists say of another one.
        self.listed = self.checkpointed | self._high_watermarks.keys()
        self.has_fallen = False

    def load(self, report: RecoveryReport) -> Iterator[tuple[PartitionKey, Partition]]:
        """Every partition found. One whose log cannot be opened is offline, and its files stay as they are. Raises
        StorageFailed.
        """
        report.unreadable.update(self._unreadable)
        held = self._root.scan()
        report.foreign += self._root.foreign
        if self._root.clean:
            # A crash may have come between a deletion and the next writing of these files, a clean stop may not.
            for topic, number in sorted(self.checkpointed - {(result.topic, result.partition) for result in held}):
                report.unreadable[str(self._root.path)] = f"checkpoints name {topic}-{number}, which is not there"
        for result in held:
            key = (result.topic, result.partition)
            try:
                yield key, self._open(result, key, report)
            except OldFormat as refusal:
                report.refused.append((result.topic, result.partition, str(refusal)))
                yield key, self._refused(result)

    def _open(self, found: FoundPartition, key: PartitionKey, report: RecoveryReport) -> Partition:
        recovery_point = self._recovery_points.get(key, 0)
        log, loaded = load_log(
            found.directory,
            self._root.path,
            key,
            self._files,
            self._config.log,
            LogCheckpoint(recovery_point, self._start_offsets.get(key, 0), self._root.clean, self._dense_from.get(key)),
            now_ms=self._now_ms,
        )
        self.has_fallen |= log.recovery_point < recovery_point
        report.truncated_bytes += loaded.truncated_bytes
        report.scanned_bytes += loaded.scanned_bytes
        report.rewritten_segments += loaded.rewritten_segments
        report.split_segments += loaded.split_segments
        report.damages += ((found.topic, found.partition, damage) for damage in loaded.damages)
        if key in self._recovery_points or key in self._cleaned:
            # It was checked already, or the cleaner's holes cannot be told from others.
            log.hole_offset = NO_HOLE
        partition = self._partition(found, log)
        checkpointed = self._high_watermarks.get(key, 0)
        partition.high_watermark = min(max(checkpointed, log.log_start_offset), log.log_end_offset)
        return partition

    def is_left_by_power_cut(self, key: PartitionKey, partition: Partition) -> bool:
        """Whether a log does not say whose it is because it was never flushed: what is in it may be of an earlier topic
        of its name, deleted while this broker was away. So may where it starts, though nothing be left in it. From its
        first flush on, its id is on the disk.
        """
        says_something = partition.log.log_end_offset > 0
        was_flushed = self._recovery_points.get(key, NEVER_FLUSHED) != NEVER_FLUSHED or self._root.clean
        is_nameless = partition.topic_id == NO_TOPIC_ID and not partition.offline
        return is_nameless and says_something and not was_flushed and self._root.was_ours

    def _refused(self, found: FoundPartition) -> Partition:
        """It is there, and every call on it answers KAFKA_STORAGE_ERROR; nothing is written in its directory."""
        log = create_log(
            found.directory,
            self._root.path,
            found.topic,
            found.partition,
            self._files,
            self._config.log,
            now_ms=self._now_ms,
        )
        partition = self._partition(found, log)
        partition.fail()
        return partition

    def _partition(self, found: FoundPartition, log: Log) -> Partition:
        return Partition(log, found.topic_id, self._config, self._storage_failed)


def adopt(partition: Partition, topic_id: bytes) -> None:
    """A log that does not say whose it is becomes that of the topic it is named after."""
    try:
        write_topic_id(Path(partition.log.directory), topic_id, partition.log.root)
    except StorageFailed as failure:
        partition.storage_failed(failure)
        raise
    partition.topic_id = topic_id
