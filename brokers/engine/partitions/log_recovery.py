"""Loads the logs of a partition table at start, root by root, and resolves duplicates."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from brokers.contract.partitions import PartitionKey
from brokers.engine.partitions.loading import RootLoader
from brokers.engine.partitions.log_flusher import LogFlusher
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.reports import RecoveryReport
from brokers.engine.partitions.topic_config import TopicConfig
from brokers.engine.storage.directories import LogRoot
from brokers.engine.storage.files import OpenFiles, StorageFailed
from brokers.engine.storage.log import NO_HOLE
from brokers.engine.storage.sanity_checks import Damage


class RecoveredTable(Protocol):
    """Part of a partition table that its recovery uses; implemented by `table.PartitionTable`."""

    files: OpenFiles
    flusher: LogFlusher

    def on_directory_failure(self, failure: StorageFailed) -> None:
        """Takes a root and all its partitions offline."""

    def on_storage_failure(self, failure: StorageFailed) -> None:
        """Takes the root offline, unless the failure is transient."""

    def root_of(self, partition: Partition) -> LogRoot | None:
        """Returns the root of the partition's log."""


class LogRecovery:
    """Fills `partitions`, and `unidentified` with the logs that have no topic id because of a power failure."""

    def __init__(
        self,
        table: RecoveredTable,
        partitions: dict[PartitionKey, Partition],
        unidentified: set[PartitionKey],
        config: TopicConfig,
    ) -> None:
        self._table = table
        self._partitions = partitions
        self._unidentified = unidentified
        self._config = config

    def load(self, root: LogRoot, report: RecoveryReport, now_ms: int) -> None:
        """Loads the logs of one root, and adds damaged and duplicate logs to the report."""
        loader = RootLoader(root, self._table.files, self._config, self._table.on_storage_failure, now_ms)
        self._table.flusher.outdated |= loader.listed
        for key, partition in loader.load(report):
            self._table.flusher.outdated.discard(key)
            if key in self._partitions and not self._keep_longer(partition, self._partitions[key], report):
                continue
            self._partitions[key] = partition
            if loader.is_left_by_power_cut(key, partition):
                self._unidentified.add(key)
            log = partition.log
            if log.hole_offset != NO_HOLE:
                self._table.flusher.recovery_points.record_holes(key, log.log_end_offset)
                # The high watermark may have been written to disk before the records below it.
                partition.high_watermark = min(partition.high_watermark, max(log.hole_offset, log.log_start_offset))
        if loader.has_lowered_recovery_point:
            self._table.flusher.checkpoint_recovery_points()

    def _keep_longer(self, loaded: Partition, existing: Partition, report: RecoveryReport) -> bool:
        """Keeps the log with the later epoch or end offset and renames the other directory as a stray. Returns True if
        `loaded` is kept.

        A duplicate arises from a copied directory, or from a log that was replaced while its disk was offline.
        """
        is_longer = _election_rank(loaded) > _election_rank(existing)
        shorter, longer = (existing, loaded) if is_longer else (loaded, existing)
        directory, root = shorter.log.directory, self._table.root_of(shorter)
        key = (existing.topic, existing.index)
        if is_longer:  # this state was recorded for the log that is replaced
            self._unidentified.discard(key)
            self._table.flusher.recovery_points.forget(key)
        for segment in shorter.log.segments:
            segment.file.retire()
        if shorter.offline or root is None:
            return is_longer
        try:
            stray = root.mark_stray(directory)
        except StorageFailed as failure:
            self._table.on_directory_failure(failure)
            return is_longer
        description = f"{longer.log.directory} holds the same partition and goes further; renamed to {Path(stray).name}"
        report.damages.append((*key, Damage(directory, -1, shorter.log.log_end_offset, description)))
        return is_longer


def _election_rank(partition: Partition) -> tuple[bool, int, int]:
    """Sort key of two logs of one partition, as in an election: leader epoch, then end offset."""
    return not partition.offline, partition.log.epochs.latest, partition.log.log_end_offset
