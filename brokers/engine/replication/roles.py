"""Follows the picture: partitions become led here, stop being led, or go with their topic (REP-26, CTL-20)."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from brokers.engine.cluster.image import ClusterImage, TopicImage
from brokers.engine.partitions.table import NoUsableDirectory, PartitionTable
from brokers.engine.storage.files import StorageFailed

log = structlog.get_logger(__name__)


class Roles:
    """Subscribed to the picture before anybody who serves from it. `leaders` counts the partitions led here."""

    def __init__(self, *, broker_id: int, table: PartitionTable, now_ms: Callable[[], int]) -> None:
        self.leaders = 0
        self._broker_id = broker_id
        self._table = table
        self._now_ms = now_ms
        self._is_first = True

    def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        if before.topics is after.topics and not self._is_first:
            return
        if self._is_first:
            self._drop_strays(after)
        known = {} if self._is_first else before.topics
        for name, topic in after.topics.items():
            if known.get(name) is not topic:
                self._apply(topic, None if self._is_first else known.get(name))
        if not self._is_first:
            for name, gone in before.topics.items():
                if name not in after.topics:
                    self._drop(gone)
        self._is_first = False
        while self._table.set_aside:
            topic_name, index, directory = self._table.set_aside.pop()
            log.error("log_of_another_topic_set_aside", topic=topic_name, partition=index, directory=directory)
        self.leaders = sum(1 for partition in self._table if partition.is_leader)

    def _apply(self, topic: TopicImage, before: TopicImage | None) -> None:
        me = self._broker_id
        for wanted in topic.partitions:
            held = self._table.get(topic.name, wanted.index)
            if wanted.leader == me and not topic.deleting:
                if held is not None and held.is_leader and before is not None and before.topic_id == topic.topic_id:
                    known = before.partitions[wanted.index] if wanted.index < len(before.partitions) else None
                    if known == wanted:
                        continue
                try:
                    self._table.become_leader(
                        topic.name,
                        wanted.index,
                        topic.topic_id,
                        wanted.leader_epoch,
                        topic.config,
                        now_ms=self._now_ms(),
                        replicas=wanted.replicas,
                        isr=wanted.isr,
                        known=self._is_first or wanted.leader_epoch > 0,
                    )
                except (StorageFailed, NoUsableDirectory) as failure:
                    log.error("partition_not_led", topic=topic.name, partition=wanted.index, reason=str(failure))
            elif held is not None and held.is_leader:
                self._table.resign(topic.name, wanted.index)
        if before is not None and before.config != topic.config:
            self._table.update_config(topic.name, topic.config)

    def _drop(self, topic: TopicImage) -> None:
        for partition in topic.partitions:
            self._table.delete(topic.name, partition.index, now_ms=self._now_ms())

    def _drop_strays(self, image: ClusterImage) -> None:
        """Logs of topics that were deleted while this broker was away.

        If not a single log here belongs to a topic of the picture, the picture is rather of another, empty tree than
        all topics are gone: then nothing is deleted, a person must look.
        """
        strays, known = [], 0
        for partition in self._table:
            topic = image.topics.get(partition.topic)
            if topic is None or partition.index >= len(topic.partitions):
                strays.append(partition)
            else:
                known += 1
        if strays and not known:
            log.error("logs_of_unknown_topics_kept", partitions=len(strays))
            return
        for partition in strays:
            log.info("stray_log_deleted", topic=partition.topic, partition=partition.index)
            self._table.delete(partition.topic, partition.index, now_ms=self._now_ms())
