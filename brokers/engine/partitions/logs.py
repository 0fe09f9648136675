"""The logs that this broker holds, over all roots: opened at start, flushed, tidied, given up with their disk.

Nothing here knows who leads. It all lives in one thread; only what batches `run` may be called from another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from brokers.contract.partitions import PartitionKey
from brokers.engine.partitions.flush import FlushBatch
from brokers.engine.partitions.flush_due import FlushDue
from brokers.engine.partitions.loading import RootLoader
from brokers.engine.partitions.offset_files import HighWatermarks, HighWatermarksBatch
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.recovery_points import RecoveryPoints
from brokers.engine.partitions.removals import RemovalBatch, Removals
from brokers.engine.partitions.reports import DirectoryState, RecoveryReport
from brokers.engine.partitions.start_offsets import StartOffsets, StartOffsetsBatch
from brokers.engine.partitions.topic_config import TopicConfig, parse
from brokers.engine.storage.compaction.totals import CleanerTotals
from brokers.engine.storage.directories import LogRoot
from brokers.engine.storage.files import OPEN_FILES_MAX, OpenFiles, StorageFailed
from brokers.engine.storage.flushing import completed, needs_flush
from brokers.engine.storage.log import NO_HOLE
from brokers.engine.storage.sanity_checks import Damage

FLUSHED_LOGS_MAX: Final = 64
CONFIGS_CACHED_MAX: Final = 4_096
PRODUCER_EXPIRY_INTERVAL_MS: Final = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """`defaults` are topic keys that this broker sets for all topics (`topic_config.topic_defaults`)."""

    roots: tuple[Path, ...]
    broker_id: int
    cluster_id: str
    defaults: Mapping[str, str] = field(default_factory=dict)
    open_files_max: int = OPEN_FILES_MAX
    retention_interval_ms: int = 300_000


class NoUsableDirectory(Exception):
    """Every root of `log.dirs` is offline; the broker cannot hold anything (LOG-3)."""


class HeldLogs:
    """Iterates over its partitions. `offline_directories` maps a failed root to the reason."""

    def __init__(self, settings: StorageSettings) -> None:
        self.settings = settings
        self.files = OpenFiles(settings.open_files_max, self.storage_failed)
        self.offline_directories: dict[Path, str] = {}
        self._roots = [LogRoot(path) for path in settings.roots]
        self._partitions: dict[PartitionKey, Partition] = {}
        self.recompresses = False  # some topic may want batches behind another codec than the producer's
        self._configs: dict[tuple[tuple[str, str], ...], TopicConfig] = {}
        self._removals = Removals(self.storage_failed)
        self.cleaned = CleanerTotals()
        self._next_retention_ms = 0
        self._next_expiry_ms = 0
        self._flush_from = 0
        self._starts = StartOffsets(settings.roots)
        self._recovery_points = RecoveryPoints(settings.roots)
        self._high_watermarks = HighWatermarks(settings.roots)
        self._due = FlushDue()
        # (topic, partition, directory) of logs that say that they are of another topic; whoever tells of it empties it.
        self.set_aside: list[tuple[str, int, str]] = []
        # Partitions of whose deletion the checkpoint files may not know.
        self._outdated: set[PartitionKey] = set()
        # By a stop, while the ports still answer.
        self._closed: set[Partition] = set()
        # Logs that a power cut left without a word of whose they are.
        self._nobodys: set[PartitionKey] = set()
        # Called with each partition that follows and whose log retention let begin later: nobody else moves it.
        self.on_start_moved: Callable[[Partition], object] = _nobody
        # Called with each partition whose log was cut at its end, or begun again.
        self.on_shortened: Callable[[Partition], object] = _nobody
        # Roots whose file of recovery points still names logs in which holes were noted.
        self._holed: set[Path] = set()

    def get(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get((topic, index))

    def __iter__(self) -> Iterator[Partition]:
        return iter(tuple(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    # -- start and stop -----------------------------------------------------------------------------------------------

    def recover(self, now_ms: int) -> RecoveryReport:
        """Locks the roots and loads every partition found there, none of them leading.

        Raises DirectoryRefused (another broker's or locked root) and NoUsableDirectory; StorageFailed only for what
        passes: half a root must not be served, nor begun again.
        """
        report = RecoveryReport()
        for root in self._roots:
            try:
                root.open(self.settings.broker_id, self.settings.cluster_id)
                report.clean &= root.clean
                self._load_root(root, report, now_ms)
            except StorageFailed as failure:
                if failure.passes:
                    raise
                self.directory_failed(failure)
        self._need_a_root()
        report.partitions = len(self._partitions)
        return report

    def _load_root(self, root: LogRoot, report: RecoveryReport, now_ms: int) -> None:
        loader = RootLoader(root, self.files, self._config({}), self.storage_failed, now_ms)
        self._outdated |= loader.listed
        for key, partition in loader.load(report):
            self._outdated.discard(key)
            if key in self._partitions and not self._is_further(partition, self._partitions[key], report):
                continue
            self._partitions[key] = partition
            if loader.is_left_by_power_cut(key, partition):
                self._nobodys.add(key)
            log = partition.log
            if log.hole_offset != NO_HOLE:
                self._recovery_points.has_holes(key, log.log_end_offset)
                # The high watermark may have reached the disk before what lay below it.
                partition.high_watermark = min(partition.high_watermark, max(log.hole_offset, log.log_start_offset))
        if loader.has_fallen:
            self.checkpoint_recovery_points()

    def _is_further(self, found: Partition, held: Partition, report: RecoveryReport) -> bool:
        """Of two directories that are called like one partition the one counts that goes further, and the other is set
        aside: it was copied, or given up with its disk, and its place was taken since.
        """
        further = _progress(found) > _progress(held)
        left, other = (held, found) if further else (found, held)
        directory, root = left.log.directory, self._root_of(left)
        key = (held.topic, held.index)
        self._nobodys.discard(key)
        self._recovery_points.forget(key)
        for segment in left.log.segments:
            segment.file.retire()
        if left.offline or root is None:
            return further
        try:
            aside = root.set_aside(directory)
        except StorageFailed as failure:
            self.directory_failed(failure)
            return further
        what = f"{other.log.directory} holds the same partition and goes further; set aside as {Path(aside).name}"
        report.damages.append((*key, Damage(directory, -1, left.log.log_end_offset, what)))
        return further

    def close(self, *, broker_epoch: int = -1) -> None:
        """Clean stop: everything flushed, checkpoints and snapshots written, then the marker of it (LOG-34)."""
        for partition in self:
            partition.resign()
            if not partition.offline and not self._is_closed(partition):
                self._close(partition)
        self._flush_closed()
        for root in self._online():
            try:
                root.mark_clean(broker_epoch)
            except StorageFailed as failure:
                self.directory_failed(failure)
        for root in self._roots:
            root.unlock()

    def plan_early_close(self, *, logs_max: int = FLUSHED_LOGS_MAX) -> FlushBatch | None:
        """Closes some of the logs that are not led here, None when there are no more. Use it like a flush, once nothing
        is followed any more: what is on disk already `close` need not wait for. A log that is written to all the same
        is closed once more.
        """
        followed = [one for one in self if not (one.offline or one.is_leader or one in self._closed)]
        chosen = followed[:logs_max]
        if not chosen:
            return None
        for partition in chosen:
            self._close(partition)
        self._closed.update(chosen)
        dirty = [one for one in chosen if not (one.offline or completed(one.log))]
        return self._flush_batch([one for one in self if not one.offline], dirty, closing=True)

    def _close(self, partition: Partition) -> None:
        try:
            partition.log.close()
        except StorageFailed as failure:
            self.directory_failed(failure)

    def _is_closed(self, partition: Partition) -> bool:
        return partition in self._closed and completed(partition.log)

    def _flush_closed(self) -> None:
        """Everything that is not on disk, some logs at a time: each takes descriptors."""
        waiting = [partition for partition in self if not completed(partition.log)]
        for at in range(0, max(len(waiting), 1), FLUSHED_LOGS_MAX):
            online = [partition for partition in self if not partition.offline]
            dirty = [partition for partition in waiting[at : at + FLUSHED_LOGS_MAX] if not partition.offline]
            batch = self._flush_batch(online, dirty, closing=True, final=True)
            batch.run()
            batch.finish()
            for partition in dirty:
                partition.log.rest()
                partition.log.active.file.close()

    def _config(self, config: Mapping[str, str]) -> TopicConfig:
        key = tuple(sorted(config.items()))
        view = self._configs.get(key)
        if view is None:
            if len(self._configs) >= CONFIGS_CACHED_MAX:
                self._configs.clear()
            view = self._configs[key] = parse(config, self.settings.defaults)
            self.recompresses = self.recompresses or view.batch_rules.codec is not None
        return view

    # -- disks --------------------------------------------------------------------------------------------------------

    def directory_failed(self, failure: StorageFailed) -> None:
        """Gives up a root and everything on it (LOG-3)."""
        if failure.directory in self.offline_directories:
            return
        self.offline_directories[failure.directory] = str(failure.cause)
        for partition in self._partitions.values():
            if partition.log.root == failure.directory:
                partition.fail()

    def storage_failed(self, failure: StorageFailed) -> None:
        """Gives up the root, unless what failed has changed nothing and passes."""
        if failure.passes:
            self.files.ran_short(failure)
        else:
            self.directory_failed(failure)

    def _online(self) -> list[LogRoot]:
        return [root for root in self._roots if root.path not in self.offline_directories]

    def _need_a_root(self) -> None:
        if not self._online():
            raise NoUsableDirectory("; ".join(f"{path}: {why}" for path, why in self.offline_directories.items()))

    def directories(self) -> list[DirectoryState]:
        """Every root as it is, in the order of the configuration."""
        counts = dict.fromkeys(self.settings.roots, 0)
        sizes = dict.fromkeys(self.settings.roots, 0)
        for partition in self._partitions.values():
            counts[partition.log.root] += 1
            sizes[partition.log.root] += partition.log.size_bytes
        reasons = self.offline_directories
        return [DirectoryState(root, counts[root], sizes[root], reasons.get(root)) for root in self.settings.roots]

    def _root_of(self, partition: Partition) -> LogRoot | None:
        return next((root for root in self._roots if root.path == partition.log.root), None)

    # -- keeping house ------------------------------------------------------------------------------------------------

    def size_bytes(self, prefix: str = "") -> int:
        """Bytes on disk of all partitions whose internal topic starts with `prefix` (an instance's is `ins-x.`)."""
        partitions = self._partitions.items()
        return sum(partition.log.size_bytes for (topic, _), partition in partitions if topic.startswith(prefix))

    def maintain(self, now_ms: int, *, removing: bool = True) -> None:
        """Retention, producer expiry, idle descriptors, and delayed removals unless somebody else sees to them. Call
        every few seconds.

        Raises NoUsableDirectory when the last root is gone (LOG-3).
        """
        self._need_a_root()
        if not 0 < self._next_retention_ms - now_ms <= self.settings.retention_interval_ms:  # or the clock was set back
            self._next_retention_ms = now_ms + self.settings.retention_interval_ms
            self._apply_retention(now_ms)
        if not 0 < self._next_expiry_ms - now_ms <= PRODUCER_EXPIRY_INTERVAL_MS:
            self._next_expiry_ms = now_ms + PRODUCER_EXPIRY_INTERVAL_MS
            for partition in self._partitions.values():
                partition.log.producers.expire(now_ms)
        if removing and (removals := self.plan_removals(now_ms)) is not None:
            removals.run()
            removals.finish()
        self.files.close_idle()
        for partition in self._partitions.values():
            if partition.log.active.file.fd < 0:
                partition.log.rest()
            else:
                partition.log.rest_closed()

    def _apply_retention(self, now_ms: int) -> None:
        for partition in self:
            if partition.offline:
                continue
            try:
                gone = partition.log.apply_retention(partition.high_watermark, now_ms)
            except StorageFailed as failure:
                self.storage_failed(failure)
                continue
            self._remove_later(gone, partition.log.root, partition.config.file_delete_delay_ms, now_ms)
            if gone and not partition.is_leader:
                self.on_start_moved(partition)

    def remove_later(self, partition: Partition, paths: list[str], now_ms: int) -> None:
        """Unlinks files that a partition gave up, after its delete delay, so that running reads finish (LOG-44)."""
        self._remove_later(paths, partition.log.root, partition.config.file_delete_delay_ms, now_ms)

    def _remove_later(self, paths: list[str], root: Path, delay_ms: int, now_ms: int) -> None:
        self._removals.add(paths, root, now_ms + delay_ms)

    def plan_removals(self, now_ms: int) -> RemovalBatch | None:
        """The files whose delay is over. Used like a flush."""
        return self._removals.due(now_ms)

    def plan_flush(self, *, logs_max: int = FLUSHED_LOGS_MAX) -> FlushBatch:
        """The next logs to make durable, in turn, and the checkpoints. Call `run()` in a thread, `finish()` in this
        one.
        """
        partitions = [partition for partition in self._partitions.values() if not partition.offline]
        dirty = [partition for partition in partitions if needs_flush(partition.log)]
        if len(dirty) > logs_max:
            start = self._flush_from % len(dirty)
            self._flush_from = start + logs_max
            dirty = (dirty[start:] + dirty[:start])[:logs_max]
        return self._flush_batch(partitions, dirty)

    def plan_due_flush(self, now_ms: int) -> FlushBatch | None:
        """The logs whose topics ask for a flush by now (`flush.messages`, `flush.ms`), None if there are none. Call
        every second, and use it like a flush.
        """
        if not any(view.flushes for view in self._configs.values()):
            return None
        partitions = [partition for partition in self._partitions.values() if not partition.offline]
        dirty = self._due.due(partitions, now_ms, FLUSHED_LOGS_MAX)
        return self._flush_batch(partitions, dirty) if dirty else None

    def _flush_batch(
        self, partitions: list[Partition], dirty: list[Partition], *, closing: bool = False, final: bool = False
    ) -> FlushBatch:
        roots = [root.path for root in self._online()]
        starts = self._starts.plan(partitions, roots)
        self._high_watermarks.written_by_another()
        return FlushBatch(
            partitions,
            dirty,
            roots,
            self._recovery_points,
            starts,
            self._high_watermarks.file,
            self.directory_failed if final else self.storage_failed,
            closing=closing,
        )

    def note_holes(self, partition: Partition) -> None:
        """Its leader's log had been cleaned, and what was just appended has offsets missing: until it is flushed, the
        file of recovery points does not name it, or a start would take the rest for something that a power cut left.
        Call `keep_holes` before the leader hears how far this log has come.
        """
        log = partition.log
        if self._recovery_points.has_holes((partition.topic, partition.index), log.log_end_offset):
            self._holed.add(log.root)

    def keep_holes(self) -> None:
        """Writes what was noted, one file a root however many logs it is about."""
        while self._holed:
            root = self._holed.pop()
            try:
                self._recovery_points.write(root, self._partitions)
            except StorageFailed as failure:
                if failure.passes and self.files.make_room():
                    self._holed.add(root)
                else:
                    self.directory_failed(failure)

    def plan_high_watermarks(self) -> HighWatermarksBatch | None:
        """Those that moved since the last time, None if none did. Call every few seconds, and use it like a flush."""
        moved = self._high_watermarks.plan(self._partitions.items(), [root.path for root in self._online()])
        return HighWatermarksBatch(self._high_watermarks, moved, self.storage_failed) if moved else None

    def checkpoint_recovery_points(self) -> None:
        """At once, because what the files say of some log is too much: a start would believe that more is on disk, or
        that less of it counts, than is so.
        """
        batch = self._flush_batch([partition for partition in self if not partition.offline], [], final=True)
        batch.run()
        batch.finish()
        self._outdated.clear()

    def plan_start_offsets(self, roots: Iterable[Path]) -> StartOffsetsBatch:
        """The start offsets of the logs in `roots` as they are, to be durable at once (LOG-46). Used like a flush."""
        online = [root.path for root in self._online() if root.path in set(roots)]
        return StartOffsetsBatch(online, self._starts.plan(self._partitions.values(), online), self.storage_failed)


def _progress(partition: Partition) -> tuple[bool, int, int]:
    """By which two logs of one partition are compared, as in an election: leader epoch, then end."""
    return not partition.offline, partition.log.epochs.latest, partition.log.log_end_offset


def _nobody(_: Partition) -> None:
    """Before something is followed, or cleaned."""
