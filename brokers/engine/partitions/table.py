"""All partitions on this broker and their roles.

Only the table creates and deletes partitions and changes their roles; it runs in a single thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from brokers.contract.partitions import PartitionKey
from brokers.engine.capacity.room import DiskSpace, StorageRoom, unbounded
from brokers.engine.partitions import damage, maintenance
from brokers.engine.partitions.loading import assign_topic_id
from brokers.engine.partitions.log_flusher import LogFlusher
from brokers.engine.partitions.log_recovery import LogRecovery
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.removals import RemovalBatch, Removals
from brokers.engine.partitions.reports import (
    DirectoryState,
    NoUsableDirectory,
    RecoveryReport,
    StorageSettings,
    directory_states,
)
from brokers.engine.partitions.role import ONLY_REPLICA, PartitionRole
from brokers.engine.partitions.topic_config import TopicConfig, parse
from brokers.engine.storage.as_follower import truncate_fully_and_start_at
from brokers.engine.storage.compaction.job import CleanerTotals
from brokers.engine.storage.directories import NO_TOPIC_ID, LogRoot
from brokers.engine.storage.files import OpenFiles, StorageFailed
from brokers.engine.storage.log import NO_HOLE, Log
from brokers.engine.storage.recovery import create_log, truncate_log
from brokers.engine.storage.segment import DamagedSegment

CONFIGS_CACHED_MAX: Final = 4_096
PRODUCER_EXPIRY_INTERVAL_MS: Final = 600_000

logger = structlog.get_logger(__name__)

__all__ = ["NoUsableDirectory", "PartitionTable", "StorageSettings"]


class PartitionTable:
    """Table of the partitions on this broker; iterates over them.

    `offline_directories` maps a failed root to the reason. `unavailable_brokers` are dead or stopping
    according to the image. `flusher` makes the logs durable.
    """

    def __init__(self, settings: StorageSettings) -> None:
        self.settings = settings
        self.files = OpenFiles(settings.open_files_max, self.on_storage_failure)
        self.offline_directories: dict[Path, str] = {}
        self._roots = [LogRoot(path) for path in settings.roots]
        self._partitions: dict[PartitionKey, Partition] = {}
        self.recompresses = False  # True if a topic may require another codec than the producer's
        self._configs: dict[tuple[tuple[str, str], ...], TopicConfig] = {}
        self._removals = Removals(self.on_storage_failure)
        self.flusher = LogFlusher(
            settings.roots,
            self._partitions,
            self.files,
            online_roots=lambda: [root.path for root in self._online_roots()],
            on_directory_failure=self.on_directory_failure,
            on_storage_failure=self.on_storage_failure,
        )
        self.cleaned = CleanerTotals()
        self._next_retention_ms = self._next_expiry_ms = 0
        # (topic, partition, directory) of logs renamed as strays for another topic id; the reporter clears it.
        self.new_strays: list[tuple[str, int, str]] = []
        # Logs that have no topic id because of a power cut.
        self._unidentified: set[PartitionKey] = set()
        # Called with each follower partition whose log start was advanced by local retention.
        self.on_log_start_advanced: Callable[[Partition], object] = lambda _partition: None
        # Called with each partition whose log was truncated or restarted.
        self.on_truncated: Callable[[Partition], object] = lambda _partition: None
        self.unavailable_brokers: frozenset[int] = frozenset()
        self.room_of: Callable[[str], StorageRoom] = unbounded  # storage limit of the instance of a topic
        self.disks = {path: DiskSpace() for path in settings.roots}

    def get(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get((topic, index))

    def __iter__(self) -> Iterator[Partition]:
        return iter(tuple(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    # -- start and stop -----------------------------------------------------------------------------------------------

    def recover(self, now_ms: int) -> RecoveryReport:
        """Locks the roots and loads every partition on them, as follower of no leader.

        Raises DirectoryRefused (a root of another broker, or locked) and NoUsableDirectory; raises StorageFailed only
        if it is transient: a root must neither be served in part nor start empty.
        """
        report = RecoveryReport()
        recovery = LogRecovery(self, self._partitions, self._unidentified, self._parse_config({}))
        for root in self._roots:
            try:
                root.lock_and_claim(self.settings.broker_id, self.settings.cluster_id)
                report.clean &= root.clean
                recovery.load(root, report, now_ms)
            except StorageFailed as failure:
                if failure.is_transient:
                    raise
                self.on_directory_failure(failure)
        self._require_online_root()
        report.partitions = len(self._partitions)
        return report

    def close(self, *, broker_epoch: int = -1) -> None:
        """Stops cleanly: flushes everything, writes checkpoints and snapshots, then the clean shutdown marker
        (LOG-34).
        """
        for partition in self:
            partition.resign()
        self.flusher.close()
        for root in self._online_roots():
            try:
                root.mark_clean(broker_epoch)
            except StorageFailed as failure:
                self.on_directory_failure(failure)
        for root in self._roots:
            root.unlock()

    def _parse_config(self, config: Mapping[str, str]) -> TopicConfig:
        key = tuple(sorted(config.items()))
        topic_config = self._configs.get(key)
        if topic_config is None:
            if len(self._configs) >= CONFIGS_CACHED_MAX:
                self._configs.clear()
            topic_config = self._configs[key] = parse(config, self.settings.defaults)
            self.recompresses = self.recompresses or topic_config.batch_rules.codec is not None
            self.flusher.topics_may_require_flushes = self.flusher.topics_may_require_flushes or topic_config.flushes
        return topic_config

    # -- disks --------------------------------------------------------------------------------------------------------

    def on_directory_failure(self, failure: StorageFailed) -> None:
        """Takes a root and all its partitions offline (LOG-3)."""
        if failure.directory in self.offline_directories:
            return
        self.offline_directories[failure.directory] = str(failure.cause)
        for partition in self._partitions.values():
            if partition.log.root == failure.directory:
                partition.fail()

    def on_storage_failure(self, failure: StorageFailed) -> None:
        """Takes the root offline, unless the failure is transient."""
        if failure.is_transient:
            self.files.record_shortage(failure)
        else:
            self.on_directory_failure(failure)

    def _online_roots(self) -> list[LogRoot]:
        return [root for root in self._roots if root.path not in self.offline_directories]

    def _require_online_root(self) -> None:
        if not self._online_roots():
            raise NoUsableDirectory("; ".join(f"{path}: {why}" for path, why in self.offline_directories.items()))

    def directories(self) -> list[DirectoryState]:
        """Returns the state of every root in the order of the configuration."""
        return directory_states(self.settings.roots, self._partitions.values(), self.offline_directories)

    def root_of(self, partition: Partition) -> LogRoot | None:
        return next((root for root in self._roots if root.path == partition.log.root), None)

    # -- maintenance --------------------------------------------------------------------------------------------------

    def size_bytes(self) -> int:
        """Returns the size of all logs in bytes."""
        return sum(partition.log.size_bytes for partition in self._partitions.values())

    def maintain(self, now_ms: int, *, removes_files: bool = True) -> None:
        """Runs retention, producer expiry, closing of idle descriptors and, with `removes_files`, delayed removals.

        Called every few seconds. Raises NoUsableDirectory when the last root is offline (LOG-3).
        """
        for _ in self.maintenance(now_ms, removes_files=removes_files):
            pass

    def maintenance(self, now_ms: int, *, removes_files: bool = True) -> Iterator[None]:
        """Runs `maintain` in steps; partitions may be added and removed between them."""
        self._require_online_root()
        if not 0 < self._next_retention_ms - now_ms <= self.settings.retention_interval_ms:  # or the clock was set back
            self._next_retention_ms = now_ms + self.settings.retention_interval_ms
            yield from self._apply_retention(now_ms)
        if not 0 < self._next_expiry_ms - now_ms <= PRODUCER_EXPIRY_INTERVAL_MS:
            self._next_expiry_ms = now_ms + PRODUCER_EXPIRY_INTERVAL_MS
            yield from maintenance.expire_producers(self._partitions, now_ms)
        if removes_files and (removals := self.plan_removals(now_ms)) is not None:
            removals.run()
            removals.finish()
        self.files.close_idle()
        yield from maintenance.free_idle_memory(self._partitions)

    def _apply_retention(self, now_ms: int) -> Iterator[None]:
        for partition in maintenance.existing_partitions(self._partitions):
            self.apply_retention_to(partition, now_ms)
            yield

    def apply_retention_to(self, partition: Partition, now_ms: int) -> None:
        if partition.offline:
            return
        try:
            deleted_paths = partition.log.apply_retention(partition.high_watermark, now_ms)
        except StorageFailed as failure:
            self.on_storage_failure(failure)
            return
        self.remove_later(partition, deleted_paths, now_ms)
        if deleted_paths and not partition.is_leader:
            self.on_log_start_advanced(partition)

    def remove_later(self, partition: Partition, paths: list[str], now_ms: int) -> None:
        """Unlinks deleted files of a partition after its delete delay, so that running reads finish (LOG-44)."""
        self._removals.add(paths, partition.log.root, now_ms + partition.config.file_delete_delay_ms)

    def plan_removals(self, now_ms: int) -> RemovalBatch | None:
        """Returns the files whose delay is over, used like a flush; None if there are none."""
        return self._removals.pop_due(now_ms)

    # -- brokers ------------------------------------------------------------------------------------------------------

    def set_unavailable_brokers(self, unavailable_brokers: frozenset[int]) -> None:
        """Sets the brokers that are dead or stopping; high watermarks do not wait for them to join an ISR."""
        self.unavailable_brokers = unavailable_brokers
        for partition in self:
            if partition.leadership is not None:
                partition.leadership.unavailable_brokers = unavailable_brokers
                partition.advance_high_watermark()

    # -- roles --------------------------------------------------------------------------------------------------------

    def become_leader(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        leader_epoch: int,
        config: Mapping[str, str],
        *,
        now_ms: int,
        role: PartitionRole = ONLY_REPLICA,
    ) -> Partition:
        """Makes this broker the leader, creating the partition if necessary; a log of an earlier topic of that name is
        deleted.

        If this broker had the partition before and it is missing while a root is offline, it stays offline instead of
        starting empty on another root. Raises NoUsableDirectory, and StorageFailed if the disk of the partition fails,
        or if the failure is transient.
        """
        partition = self._get_or_create(topic, index, topic_id, config, now_ms, role.is_known, was_led=leader_epoch > 0)
        broker_id = self.settings.broker_id
        replicas, isr = role.replicas or (broker_id,), role.isr or (broker_id,)
        if partition.offline:
            # The offline partition is led, so that its leadership can be transferred (`IsrPublisher.check_disks`).
            partition.is_leader, partition.leader, partition.leader_epoch = True, broker_id, leader_epoch
            partition.replicas, partition.isr = replicas, isr
            return partition
        partition.log.hole_offset = NO_HOLE
        try:
            partition.become_leader(leader_epoch, replicas, isr, broker_id, role.since_ms)
        except StorageFailed as failure:
            self.on_directory_failure(failure)
            raise
        if partition.leadership is not None:
            partition.leadership.unavailable_brokers = self.unavailable_brokers
        return partition

    def become_follower(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        leader_epoch: int,
        config: Mapping[str, str],
        *,
        now_ms: int,
        role: PartitionRole,
    ) -> Partition:
        """Makes this broker a follower of the leader of `role` (-1: none for now); otherwise like `become_leader`."""
        partition = self._get_or_create(topic, index, topic_id, config, now_ms, role.is_known)
        partition.become_follower(leader_epoch, role.replicas, role.isr, role.leader)
        # Without a leader this broker may become the leader: then records behind holes are all that is left.
        if partition.log.hole_offset != NO_HOLE and role.leader >= 0:
            self._close_hole(partition, now_ms)
        return partition

    def _close_hole(self, partition: Partition, now_ms: int) -> None:
        """Truncates a log before a hole that a power cut made before the first checkpoint; later records are fetched
        again.
        """
        log = partition.log
        self.files.require_free_descriptors(log.root)
        hole_offset, log.hole_offset = log.hole_offset, NO_HOLE
        if partition.offline or partition.config.batch_rules.compacted or hole_offset < log.log_start_offset:
            return
        logger.error(
            "records_missing", topic=partition.topic, partition=partition.index, offset=hole_offset,
            end_offset=log.log_end_offset,
        )  # fmt: skip
        self.truncate(partition, hole_offset, now_ms)

    def truncate(self, partition: Partition, offset: int, now_ms: int) -> None:
        """Removes every batch of a follower that contains `offset` or a later one, which its leader never had (REP-15).

        Committed records are removed only if the leader was elected without them (REP-16), which is an error if the
        topic forbids such an election (REP-17). Raises StorageFailed.
        """
        log = partition.log
        if max(offset, log.log_start_offset) < partition.high_watermark:
            report = logger.warning if partition.config.allows_unclean_election else logger.error
            report(
                "committed_records_truncated",
                topic=partition.topic,
                partition=partition.index,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                high_watermark=partition.high_watermark,
                offset=offset,
            )
        self.files.require_free_descriptors(log.root)
        recovery_point = log.recovery_point
        try:
            if offset >= log.log_end_offset:
                log.epochs.truncate_end(offset)
                return
            _report_damage(log, offset)
            deleted_paths = truncate_log(log, offset, now_ms)
        except StorageFailed as failure:
            self.on_directory_failure(failure)
            raise
        self._on_truncated(partition, deleted_paths, recovery_point, now_ms)

    def truncate_fully_and_start_at(self, partition: Partition, offset: int, now_ms: int) -> None:
        """Removes a follower's whole log and starts it at the leader's log start (REP-9). Raises StorageFailed."""
        self.files.require_free_descriptors(partition.log.root)
        try:
            deleted_paths = truncate_fully_and_start_at(partition.log, offset, now_ms)
        except StorageFailed as failure:
            self.on_directory_failure(failure)
            raise
        partition.high_watermark = offset
        self._on_truncated(partition, deleted_paths, offset + 1, now_ms)

    def _on_truncated(self, partition: Partition, deleted_paths: list[str], recovery_point: int, now_ms: int) -> None:
        log = partition.log
        partition.high_watermark = max(log.log_start_offset, min(partition.high_watermark, log.log_end_offset))
        if log.recovery_point < recovery_point:
            # Otherwise recovery would take records appended after the truncation for durable ones.
            self.flusher.checkpoint_recovery_points()
        self.on_truncated(partition)
        self.remove_later(partition, deleted_paths, now_ms)

    def _get_or_create(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        config: Mapping[str, str],
        now_ms: int,
        is_known: bool,
        *,
        was_led: bool = False,
    ) -> Partition:
        """Returns the existing or a new partition, offline if its disk is; `was_led` is true if an earlier epoch had a
        leader.
        """
        partition = self._partitions.get((topic, index))
        is_unidentified, start_offset = (topic, index) in self._unidentified, 0
        if partition is not None and (is_unidentified or partition.topic_id not in (topic_id, NO_TOPIC_ID)):
            # The topic id of a partition in use came from the cluster; otherwise it is from a file that may be damaged.
            self.delete(topic, index, now_ms=now_ms, keep_as_stray=not partition.replicas)
            if is_unidentified and was_led:
                # If the log belonged to this topic after all, its deleted records stay deleted.
                start_offset = partition.log.log_start_offset
            partition = None
        topic_config = self._parse_config(config)
        if partition is None:
            offline_root = next(iter(self.offline_directories), None) if is_known else None
            if offline_root is None:
                partition = self._create(topic, index, topic_id, topic_config, now_ms)
                if start_offset:
                    self.truncate_fully_and_start_at(partition, start_offset, now_ms)
            else:
                partition = self._replace_log(offline_root, topic, index, topic_id, topic_config, now_ms)
        _set_config(partition, topic_config)
        partition.keeps_min_isr, partition.room = self.settings.keeps_min_isr, self.room_of(topic)
        partition.disk = self.disks[partition.log.root]
        if not partition.offline and partition.topic_id != topic_id:
            assign_topic_id(partition, topic_id)
        return partition

    def _create(self, topic: str, index: int, topic_id: bytes, config: TopicConfig, now_ms: int) -> Partition:
        self.files.require_free_descriptors(self.settings.roots[0])
        if (topic, index) in self.flusher.outdated:
            # After a crash this log would get the start offset and recovery point of an earlier one of its name.
            self.flusher.checkpoint_recovery_points()
        root, directory = self._make_directory(topic, index, topic_id)
        log = create_log(directory, root.path, topic, index, self.files, config.log, now_ms=now_ms)
        partition = self._partitions[topic, index] = Partition(log, topic_id, config, self.on_storage_failure)
        return partition

    def _make_directory(self, topic: str, index: int, topic_id: bytes) -> tuple[LogRoot, str]:
        """Creates the directory on the root with the fewest partitions; if that disk fails, on the next one."""
        while online := self._online_roots():
            root = min(online, key=lambda candidate: candidate.partitions)
            try:
                return root, root.create_partition(topic, index, topic_id)
            except StorageFailed as failure:
                self.on_directory_failure(failure)
        raise NoUsableDirectory("every log directory is offline")

    def _replace_log(
        self, root: Path, topic: str, index: int, topic_id: bytes, config: TopicConfig, now_ms: int
    ) -> Partition:
        """Returns a partition whose log is out of reach: it answers KAFKA_STORAGE_ERROR and nothing is written."""
        log = create_log(f"{root}/{topic}-{index}", root, topic, index, self.files, config.log, now_ms=now_ms)
        partition = self._partitions[topic, index] = Partition(log, topic_id, config, self.on_storage_failure)
        partition.fail()
        return partition

    def resign(self, topic: str, index: int) -> None:
        partition = self._partitions.get((topic, index))
        if partition is not None:
            partition.resign()

    def release_unknown(self, partition: Partition) -> None:
        """Resigns a partition whose topic is unknown; its log is renamed as a stray if another topic needs its name."""
        partition.resign()
        partition.replicas = ()

    def assign(self, partition: Partition, replicas: tuple[int, ...]) -> None:
        """Assigns a log that was neither led nor followed here to its topic, so that it is deleted with the topic."""
        partition.replicas = partition.replicas or replicas

    def delete(self, topic: str, index: int, *, now_ms: int, keep_as_stray: bool = False) -> None:
        """Removes the partition; its files are deleted after the delete delay (LOG-47), or kept as a stray with
        `keep_as_stray`.
        """
        partition = self._partitions.pop((topic, index), None)
        if partition is None:
            return
        partition.resign()
        self.flusher.outdated.add((topic, index))
        self._unidentified.discard((topic, index))
        self.flusher.recovery_points.forget((topic, index))
        root = self.root_of(partition)
        for segment in partition.log.segments:
            segment.file.retire()
        if partition.offline or root is None:
            return
        try:
            if keep_as_stray:
                self.new_strays.append((topic, index, root.mark_stray(partition.log.directory)))
                return
            renamed = root.mark_deleted(partition.log.directory)
        except StorageFailed as failure:
            self.on_directory_failure(failure)
            return
        self.remove_later(partition, [renamed], now_ms)

    def use_defaults(self, defaults: Mapping[str, str], config_of: Callable[[str], Mapping[str, str]]) -> None:
        """Sets the broker's topic defaults from the next batch on; `config_of` returns a topic's own settings."""
        self.settings = replace(self.settings, defaults=defaults)
        self._configs.clear()
        for (topic, _), partition in self._partitions.items():
            _set_config(partition, self._parse_config(config_of(topic)))

    def set_keeps_min_isr(self, keeps_min_isr: bool) -> None:
        self.settings = replace(self.settings, keeps_min_isr=keeps_min_isr)
        maintenance.set_keeps_min_isr(self._partitions.values(), keeps_min_isr)

    def update_config(self, topic: str, config: Mapping[str, str]) -> None:
        """Applies changed settings of a topic from the next batch on."""
        topic_config = self._parse_config(config)
        for (name, _), partition in self._partitions.items():
            if name == topic:
                _set_config(partition, topic_config)


def _set_config(partition: Partition, topic_config: TopicConfig) -> None:
    partition.config = topic_config
    partition.log.config = topic_config.log_config_of(partition.topic, partition.index)


def _report_damage(log: Log, offset: int) -> None:
    """Reports damage before `offset`, at which the log will be truncated."""
    try:
        log.find_position(offset)
    except DamagedSegment as found_damage:
        damage.report(log, found_damage, offset)
