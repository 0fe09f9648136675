"""Every partition this broker holds, and what it is to each: made on demand, led, followed, deleted.

The table is the only one that creates, deletes or re-roles a partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import structlog

from brokers.engine.partitions import damage
from brokers.engine.partitions.loading import adopt
from brokers.engine.partitions.logs import HeldLogs, NoUsableDirectory, StorageSettings
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.topic_config import TopicConfig
from brokers.engine.storage.directories import NO_TOPIC_ID, LogRoot
from brokers.engine.storage.files import StorageFailed
from brokers.engine.storage.log import NO_HOLE, Log
from brokers.engine.storage.recovery import create_log, truncate_log
from brokers.engine.storage.restart import restart_log
from brokers.engine.storage.segment import DamagedSegment

logger = structlog.get_logger(__name__)

__all__ = ["NoUsableDirectory", "PartitionTable", "StorageSettings"]


class PartitionTable(HeldLogs):
    """See `HeldLogs`. `away` are the brokers that are dead or stop, as the image says."""

    def __init__(self, settings: StorageSettings) -> None:
        super().__init__(settings)
        self.away: frozenset[int] = frozenset()

    def brokers_are_away(self, away: frozenset[int]) -> None:
        """Nobody waits for these to come into an ISR."""
        self.away = away
        for partition in self:
            if partition.leadership is not None:
                partition.leadership.away = away
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
        monotonic_ms: int = 0,
        replicas: tuple[int, ...] = (),
        isr: tuple[int, ...] = (),
        known: bool = False,
    ) -> Partition:
        """Leads the partition, creating it if it is not here; a log of an earlier topic of that name goes first.

        `known`: it was led before. If it is not here then while a root is offline, it is on that root: it stays
        offline with it instead of beginning again, empty, on another.

        Raises StorageFailed when the disk of the (new) partition fails, or if it `passes`: then nothing was done;
        NoUsableDirectory.
        """
        partition = self._hold(topic, index, topic_id, config, now_ms, known, was_led=leader_epoch > 0)
        me = self.settings.broker_id
        if partition.offline:
            # Nothing is served, but somebody has to give it away to who can (`IsrPublisher.check_disks`).
            partition.is_leader, partition.leader, partition.leader_epoch = True, me, leader_epoch
            partition.replicas, partition.isr = replicas or (me,), isr or (me,)
            return partition
        partition.log.hole_offset = NO_HOLE
        try:
            partition.become_leader(leader_epoch, replicas or (me,), isr or (me,), me, monotonic_ms)
        except StorageFailed as failure:
            self.directory_failed(failure)
            raise
        if partition.leadership is not None:
            partition.leadership.away = self.away
        return partition

    def become_follower(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        leader_epoch: int,
        config: Mapping[str, str],
        *,
        leader: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        now_ms: int,
        known: bool = False,
    ) -> Partition:
        """Follows `leader` (-1: nobody, for the time being), as `become_leader` in everything else."""
        partition = self._hold(topic, index, topic_id, config, now_ms, known)
        partition.become_follower(leader_epoch, replicas, isr, leader)
        # Without a leader it may be this broker that is going to lead: then the holes are all that was left.
        if partition.log.hole_offset != NO_HOLE and leader >= 0:
            self._close_hole(partition, now_ms)
        return partition

    def _close_hole(self, partition: Partition, now_ms: int) -> None:
        """A power cut before the first checkpoint may have taken what lies before something that it left. Only cleaning
        makes holes otherwise; what comes behind this one is fetched anew.
        """
        log = partition.log
        self.files.need_room(log.root)
        hole_offset, log.hole_offset = log.hole_offset, NO_HOLE
        if partition.offline or partition.config.batch_rules.compacted or hole_offset < log.log_start_offset:
            return
        logger.error(
            "records_missing", topic=partition.topic, partition=partition.index, offset=hole_offset,
            end_offset=log.log_end_offset,
        )  # fmt: skip
        self.truncate(partition, hole_offset, now_ms)

    def truncate(self, partition: Partition, offset: int, now_ms: int) -> None:
        """Removes every batch of a follower that holds `offset` or more: its leader never had it (REP-15, REP-16).

        What was committed goes only if the leader was elected without having it. Where the topic allows no such
        election it goes as well, or the logs would never agree again, and that is written down as an error (REP-17).
        Raises StorageFailed.
        """
        log = partition.log
        if max(offset, log.log_start_offset) < partition.high_watermark:
            tell = logger.warning if partition.config.unclean_allowed else logger.error
            tell(
                "committed_records_truncated",
                topic=partition.topic,
                partition=partition.index,
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                high_watermark=partition.high_watermark,
                offset=offset,
            )
        self.files.need_room(log.root)
        recovery_point = log.recovery_point
        try:
            if offset >= log.log_end_offset:
                log.epochs.truncate_end(offset)
                return
            _tell_damage(log, offset)
            gone = truncate_log(log, offset, now_ms)
        except StorageFailed as failure:
            self.directory_failed(failure)
            raise
        self._shortened(partition, gone, recovery_point, now_ms)

    def restart_at(self, partition: Partition, offset: int, now_ms: int) -> None:
        """Drops a follower's whole log and begins again at `offset`, where the leader's begins (REP-9). Raises
        StorageFailed.
        """
        self.files.need_room(partition.log.root)
        try:
            gone = restart_log(partition.log, offset, now_ms)
        except StorageFailed as failure:
            self.directory_failed(failure)
            raise
        partition.high_watermark = offset
        self._shortened(partition, gone, offset + 1, now_ms)

    def _shortened(self, partition: Partition, gone: list[str], recovery_point: int, now_ms: int) -> None:
        log = partition.log
        partition.high_watermark = max(log.log_start_offset, min(partition.high_watermark, log.log_end_offset))
        if log.recovery_point < recovery_point:
            # What is appended from here on must not pass for something that was on disk long ago.
            self.checkpoint_recovery_points()
        self.on_shortened(partition)
        self.remove_later(partition, gone, now_ms)

    def _hold(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        config: Mapping[str, str],
        now_ms: int,
        known: bool,
        *,
        was_led: bool = False,
    ) -> Partition:
        """The partition as it is here, or made; offline if its disk is. `was_led`: by somebody in an earlier epoch, so
        that the topic may be as old as a log that nobody knows.
        """
        partition = self._partitions.get((topic, index))
        is_nobodys, start_offset = (topic, index) in self._nobodys, 0
        if partition is not None and (is_nobodys or partition.topic_id not in (topic_id, NO_TOPIC_ID)):
            # Of one that was held here the id came from the cluster. Of another its file says so, and may be damaged.
            self.delete(topic, index, now_ms=now_ms, keep=not partition.replicas)
            if is_nobodys and was_led:
                # If it was this topic's after all, what was deleted from it stays deleted.
                start_offset = partition.log.log_start_offset
            partition = None
        view = self._config(config)
        if partition is None:
            lost = next(iter(self.offline_directories), None) if known else None
            if lost is None:
                partition = self._create(topic, index, topic_id, view, now_ms)
                if start_offset:
                    self.restart_at(partition, start_offset, now_ms)
            else:
                partition = self._replace_log(lost, topic, index, topic_id, view, now_ms)
        _configure(partition, view)
        if not partition.offline and partition.topic_id != topic_id:
            adopt(partition, topic_id)
        return partition

    def _create(self, topic: str, index: int, topic_id: bytes, config: TopicConfig, now_ms: int) -> Partition:
        self.files.need_room(self.settings.roots[0])
        if (topic, index) in self._outdated:
            # A crash would give this log the start and the recovery point of another one of its name.
            self.checkpoint_recovery_points()
        root, directory = self._make_directory(topic, index, topic_id)
        log = create_log(directory, root.path, topic, index, self.files, config.log, now_ms=now_ms)
        partition = self._partitions[topic, index] = Partition(log, topic_id, config, self.storage_failed)
        return partition

    def _make_directory(self, topic: str, index: int, topic_id: bytes) -> tuple[LogRoot, str]:
        """On the root that holds least; a disk that fails now leaves it to the next one."""
        while online := self._online():
            root = min(online, key=lambda candidate: candidate.partitions)
            try:
                return root, root.create_partition(topic, index, topic_id)
            except StorageFailed as failure:
                self.directory_failed(failure)
        raise NoUsableDirectory("every log directory is offline")

    def _replace_log(
        self, root: Path, topic: str, index: int, topic_id: bytes, config: TopicConfig, now_ms: int
    ) -> Partition:
        """A partition whose log is out of reach: every call on it answers KAFKA_STORAGE_ERROR, nothing is written."""
        log = create_log(f"{root}/{topic}-{index}", root, topic, index, self.files, config.log, now_ms=now_ms)
        partition = self._partitions[topic, index] = Partition(log, topic_id, config, self.storage_failed)
        partition.fail()
        return partition

    def resign(self, topic: str, index: int) -> None:
        partition = self._partitions.get((topic, index))
        if partition is not None:
            partition.resign()

    def disown(self, partition: Partition) -> None:
        """Nobody knows its topic any more. Should another one of that name need its place, the log is set aside."""
        partition.resign()
        partition.replicas = ()

    def own(self, partition: Partition, replicas: tuple[int, ...]) -> None:
        """Its topic is known, and about to be deleted: the log goes with it, though nobody led or followed it here."""
        partition.replicas = partition.replicas or replicas

    def delete(self, topic: str, index: int, *, now_ms: int, keep: bool = False) -> None:
        """Drops the partition at once; its files go after the delete delay, so that running reads finish (LOG-47), or
        are set aside for a person to look at (`keep`).
        """
        partition = self._partitions.pop((topic, index), None)
        if partition is None:
            return
        partition.resign()
        self._outdated.add((topic, index))
        self._nobodys.discard((topic, index))
        self._recovery_points.forget((topic, index))
        root = self._root_of(partition)
        for segment in partition.log.segments:
            segment.file.retire()
        if partition.offline or root is None:
            return
        try:
            if keep:
                self.set_aside.append((topic, index, root.set_aside(partition.log.directory)))
                return
            renamed = root.mark_deleted(partition.log.directory)
        except StorageFailed as failure:
            self.directory_failed(failure)
            return
        self._remove_later([renamed], root.path, partition.config.file_delete_delay_ms, now_ms)

    def use_defaults(self, defaults: Mapping[str, str], config_of: Callable[[str], Mapping[str, str]]) -> None:
        """What topics without a word of their own go by, from the next batch on; `config_of` is a topic's own word."""
        self.settings = replace(self.settings, defaults=defaults)
        self._configs.clear()
        for (topic, _), partition in self._partitions.items():
            _configure(partition, self._config(config_of(topic)))

    def update_config(self, topic: str, config: Mapping[str, str]) -> None:
        """The topic's own settings changed; effective from the next batch."""
        view = self._config(config)
        for (name, _), partition in self._partitions.items():
            if name == topic:
                _configure(partition, view)


def _configure(partition: Partition, view: TopicConfig) -> None:
    partition.config = view
    partition.log.config = view.log_of(partition.topic, partition.index)


def _tell_damage(log: Log, offset: int) -> None:
    """The log is going to be cut before the damage, if there is any on the way to `offset`."""
    try:
        log.position_of(offset)
    except DamagedSegment as met:
        damage.met(log, met, offset)
