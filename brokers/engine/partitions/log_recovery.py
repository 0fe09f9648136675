"""The logs of a table at start: every partition of one root after the other, and which counts of two of one name."""

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
    """The table as its recovery sees it; `table.PartitionTable` fits."""

    files: OpenFiles
    flusher: LogFlusher

    def directory_failed(self, failure: StorageFailed) -> None:
        """Gives up a root and everything on it."""

    def storage_failed(self, failure: StorageFailed) -> None:
        """Gives up the root, unless what failed has changed nothing and passes."""

    def root_of(self, partition: Partition) -> LogRoot | None:
        """Where its log lies."""


class LogRecovery:
    """Fills `partitions`, and `nobodys` with logs that a power cut left without a word of whose they are."""

    def __init__(
        self,
        table: RecoveredTable,
        partitions: dict[PartitionKey, Partition],
        nobodys: set[PartitionKey],
        config: TopicConfig,
    ) -> None:
        self._table = table
        self._partitions = partitions
        self._nobodys = nobodys
        self._config = config

    def load(self, root: LogRoot, report: RecoveryReport, now_ms: int) -> None:
        loader = RootLoader(root, self._table.files, self._config, self._table.storage_failed, now_ms)
        self._table.flusher.outdated |= loader.listed
        for key, partition in loader.load(report):
            self._table.flusher.outdated.discard(key)
            if key in self._partitions and not self._is_further(partition, self._partitions[key], report):
                continue
            self._partitions[key] = partition
            if loader.is_left_by_power_cut(key, partition):
                self._nobodys.add(key)
            log = partition.log
            if log.hole_offset != NO_HOLE:
                self._table.flusher.recovery_points.has_holes(key, log.log_end_offset)
                # The high watermark may have reached the disk before what lay below it.
                partition.high_watermark = min(partition.high_watermark, max(log.hole_offset, log.log_start_offset))
        if loader.has_fallen:
            self._table.flusher.checkpoint_recovery_points()

    def _is_further(self, found: Partition, held: Partition, report: RecoveryReport) -> bool:
        """Of two directories that are called like one partition the one counts that goes further, and the other is set
        aside: it was copied, or given up with its disk, and its place was taken since.
        """
        further = _progress(found) > _progress(held)
        left, other = (held, found) if further else (found, held)
        directory, root = left.log.directory, self._table.root_of(left)
        key = (held.topic, held.index)
        self._nobodys.discard(key)
        self._table.flusher.recovery_points.forget(key)
        for segment in left.log.segments:
            segment.file.retire()
        if left.offline or root is None:
            return further
        try:
            aside = root.set_aside(directory)
        except StorageFailed as failure:
            self._table.directory_failed(failure)
            return further
        what = f"{other.log.directory} holds the same partition and goes further; set aside as {Path(aside).name}"
        report.damages.append((*key, Damage(directory, -1, left.log.log_end_offset, what)))
        return further


def _progress(partition: Partition) -> tuple[bool, int, int]:
    """By which two logs of one partition are compared, as in an election: leader epoch, then end."""
    return not partition.offline, partition.log.epochs.latest, partition.log.log_end_offset
