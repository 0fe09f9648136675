"""Applies the image: partitions are led here, follow another broker, or are deleted (REP-26, REP-32, CTL-12,
CTL-20).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, Protocol

import structlog

from brokers.contract.partitions import NO_LEADER, PartitionKey
from brokers.engine.cluster.image import BrokerInfo, ClusterImage, PartitionImage, TopicImage
from brokers.engine.cluster.incarnations import is_same_incarnation
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import NoUsableDirectory, PartitionTable
from brokers.engine.scheduling.turn_queue import TURN_MS_MAX
from brokers.engine.storage.directories import NO_TOPIC_ID
from brokers.engine.storage.files import StorageFailed

log = structlog.get_logger(__name__)

# Maximum number of logs that are created at once. A log takes tenths of a millisecond, or several milliseconds on a
# busy disk; beyond this number and the time limit, other tenants' requests are served in between.
CREATED_AT_ONCE_MAX: Final = 25


class Following(Protocol):
    """Fetches from leaders; implemented by `fetchers.Fetchers`."""

    def follow(self, partition: Partition) -> None: ...
    def unfollow(self, topic: str, index: int) -> None: ...
    def on_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None: ...


class Roles:
    """Roles of this broker's partitions, subscribed to the image before all services; `leaders` counts those led here.

    If a tenant creates or deletes very many partitions at once, most are created or deleted by `continue_changes`,
    which `wake` requests. A partition whose name checkpoint files may still contain for a deleted topic waits for
    `on_checkpoint`, which `request_checkpoint` requests: writing the files takes milliseconds.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        table: PartitionTable,
        fetchers: Following,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
        wake: Callable[[], object] | None = None,
        request_checkpoint: Callable[[], object] | None = None,
    ) -> None:
        """Creates the roles; without `wake` all partitions are created at once, without `request_checkpoint` none waits
        for a checkpoint.
        """
        self._broker_id = broker_id
        self._table = table
        self._fetchers = fetchers
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._wake = wake
        self._request_checkpoint = request_checkpoint
        self._is_first = True
        self._image: ClusterImage | None = None
        # Partitions to be created, in this order, and the number created for the current image.
        self._to_create: dict[PartitionKey, None] = {}
        self._created_count = 0
        self._began_ms = 0
        # Partitions to be created once the checkpoint files have stopped naming a deleted partition of the same name.
        self._awaiting_checkpoint: dict[PartitionKey, None] = {}
        # Partitions to be deleted, which the image does not assign to this broker.
        self._to_delete: deque[tuple[PartitionKey, bytes]] = deque()
        # Partitions that could not be created because of a temporary shortage.
        self._short_of_descriptors: set[PartitionKey] = set()
        self._own_info: BrokerInfo | None = None
        # Partitions whose leadership may be outdated because this process was suspended.
        self._suspected: set[PartitionKey] = set()

    @property
    def leaders(self) -> int:
        """Returns the number of partitions that this broker leads."""
        return sum(1 for partition in self._table if partition.is_leader)

    def on_image(self, previous_image: ClusterImage, image: ClusterImage) -> None:
        self._image, self._created_count = image, 0
        self._began_ms = self._monotonic_ms()
        if previous_image.brokers is not image.brokers or self._is_first:
            self._fetchers.on_brokers(image.brokers)
        previous_info = self._own_info
        self._own_info = own_info = image.brokers.get(self._broker_id, previous_info)
        has_reregistered = own_info is not None and previous_info is not None and own_info.epoch != previous_info.epoch
        if previous_image.topics is image.topics and not self._is_first and not has_reregistered:
            return
        is_lost = not self._is_first and _is_of_another_tree(previous_image, image)
        if self._is_first:
            self._delete_strays(image)
        elif is_lost:
            self._release_unknown(image)
        previous_topics = {} if self._is_first or has_reregistered else previous_image.topics
        for name in image.changed_topics(previous_image) if previous_topics else image.topics:
            topic = image.topics.get(name)
            if topic is not None and previous_topics.get(name) is not topic:
                self._apply(topic, previous_topics.get(name))
        if not self._is_first and not is_lost:
            self._delete_removed(previous_image, image)
        self._is_first = False
        self._report_strays()
        if (self._to_create or self._to_delete) and self._wake is not None:
            self._wake()

    def continue_changes(self) -> bool:
        """Deletes and creates some of the pending partitions; returns True if there are more."""
        self._began_ms = self._monotonic_ms()
        while self._to_delete and not self._is_turn_over():
            (name, index), topic_id = self._to_delete.popleft()
            local = self._table.get(name, index)
            # If the topic was recreated, its log was deleted when the new one was created.
            if local is not None and local.topic_id == topic_id:
                self._table.delete(name, index, now_ms=self._now_ms())
        for name, index in list(islice(self._to_create, CREATED_AT_ONCE_MAX)):
            if self._is_turn_over():
                break
            del self._to_create[name, index]
            topic = None if self._image is None else self._image.topics.get(name)
            if topic is not None and index < len(topic.partitions):
                self._apply_or_report(topic, topic.partitions[index], self._table.get(name, index))
        self._report_strays()
        return bool(self._to_create or self._to_delete)

    def on_checkpoint(self, *, is_written: bool) -> None:
        """Continues after the checkpoint files were written; if they cannot be written, creation proceeds and reports
        the error.
        """
        outdated = self._table.flusher.outdated
        ready_keys = [key for key in self._awaiting_checkpoint if not is_written or key not in outdated]
        for key in ready_keys:
            del self._awaiting_checkpoint[key]
            self._to_create[key] = None
        if ready_keys and self._wake is not None:
            self._wake()
        if self._awaiting_checkpoint and self._request_checkpoint is not None:
            self._request_checkpoint()

    def _is_turn_over(self) -> bool:
        return self._monotonic_ms() - self._began_ms >= TURN_MS_MAX

    def retry_failed(self) -> None:
        """Retries partitions that could not be created because of a shortage; called periodically."""
        if not self._short_of_descriptors or self._image is None:
            return
        partitions, self._short_of_descriptors = self._short_of_descriptors, set()
        for name, index in sorted(partitions):
            topic = self._image.topics.get(name)
            if topic is not None and index < len(topic.partitions):
                self._apply_or_report(topic, topic.partitions[index], self._table.get(name, index))
        self._report_strays()

    def _report_strays(self) -> None:
        while self._table.new_strays:
            topic_name, index, directory = self._table.new_strays.pop()
            log.error("log_of_another_topic_set_aside", topic=topic_name, partition=index, directory=directory)

    def suspect_leaderships(self) -> None:
        """Resigns partitions that another broker may lead because this process was suspended (CTL-4).

        They are led again after `confirm_leadership`.
        """
        for partition in self._table:
            if partition.is_leader and len(partition.replicas) > 1:
                self._suspected.add((partition.topic, partition.index))
                self._table.resign(partition.topic, partition.index)
        for waiting in (self._to_create, self._awaiting_checkpoint):
            self._suspected.update(waiting)
            waiting.clear()
        self._suspected.update(self._short_of_descriptors)
        self._short_of_descriptors.clear()

    def confirm_leadership(self, image: ClusterImage) -> None:
        """Applies the suspected leaderships again, with an image that was read after the last suspension."""
        suspected, self._suspected = self._suspected, set()
        for name, index in sorted(suspected):
            topic, local = image.topics.get(name), self._table.get(name, index)
            if topic is not None and index < len(topic.partitions):
                self._apply_or_report(topic, topic.partitions[index], local)

    def _apply(self, topic: TopicImage, old_topic: TopicImage | None) -> None:
        if old_topic is not None and old_topic.topic_id != topic.topic_id:
            old_topic = None
        for state in topic.partitions:
            old_state = (
                old_topic.partitions[state.index] if old_topic and state.index < len(old_topic.partitions) else None
            )
            local = self._table.get(topic.name, state.index)
            if (
                local is not None
                and old_state == state
                and old_topic is not None
                and old_topic.deleting == topic.deleting
            ):
                continue
            if local is not None and self._is_of_earlier_topic(topic, state, local):
                self._fetchers.unfollow(topic.name, state.index)
                self._table.delete(topic.name, state.index, now_ms=self._now_ms())
                local = None
            if local is not None or not self._postpone_creation(topic, state):
                self._apply_or_report(topic, state, local)
        if old_topic is not None and old_topic.config != topic.config:
            self._table.update_config(topic.name, topic.config)

    def _postpone_creation(self, topic: TopicImage, state: PartitionImage) -> bool:
        """Queues the creation of a partition if it must be postponed; returns True then."""
        if self._wake is None or self._is_first or not self._is_assigned_here(topic, state):
            return False
        key = (topic.name, state.index)
        if self._request_checkpoint is not None and key in self._table.flusher.outdated:
            self._awaiting_checkpoint[key] = None
            self._request_checkpoint()
            return True
        if self._created_count < CREATED_AT_ONCE_MAX and not self._is_turn_over():
            self._created_count += 1
            return False
        self._to_create[key] = None
        return True

    def _is_assigned_here(self, topic: TopicImage, state: PartitionImage) -> bool:
        return not topic.deleting and state.version is not None and self._broker_id in state.replicas

    def _is_of_earlier_topic(self, topic: TopicImage, state: PartitionImage, local: Partition) -> bool:
        """True if the existing log belongs to an earlier topic and must be deleted, after which the creation may wait.

        Logs that were never led or followed here are left to the table.
        """
        if self._request_checkpoint is None or self._is_first or not self._is_assigned_here(topic, state):
            return False
        return bool(local.replicas) and local.topic_id not in (topic.topic_id, NO_TOPIC_ID)

    def _apply_or_report(self, topic: TopicImage, state: PartitionImage, local: Partition | None) -> None:
        try:
            self._apply_partition(topic, state, local)
        except (StorageFailed, NoUsableDirectory) as failure:
            if isinstance(failure, StorageFailed) and failure.is_transient:
                self._short_of_descriptors.add((topic.name, state.index))
            log.error("partition_not_held", topic=topic.name, partition=state.index, reason=str(failure))

    def _apply_partition(self, topic: TopicImage, state: PartitionImage, local: Partition | None) -> None:
        name, index = topic.name, state.index
        if topic.deleting or state.version is None:
            self._fetchers.unfollow(name, index)
            if local is not None and local.is_leader:
                self._table.resign(name, index)
            if local is not None and local.topic_id == topic.topic_id:
                self._table.assign(local, state.replicas)
        elif self._broker_id not in state.replicas:
            self._fetchers.unfollow(name, index)
            if local is not None and not _is_of_lost_tree(local, topic):
                log.info("replica_deleted", topic=name, partition=index)
                self._table.delete(name, index, now_ms=self._now_ms())
        elif state.leader == self._broker_id and (
            (name, index) in self._suspected or self._is_of_earlier_incarnation(state)
        ):
            self._fetchers.unfollow(name, index)
            self._table.resign(name, index)
            if local is not None and local.topic_id == topic.topic_id:
                # It waits for the controller; if the topic is recreated meanwhile, the log is deleted with the old
                # topic.
                self._table.assign(local, state.replicas)
        elif state.leader == self._broker_id:
            self._become_leader(topic, state)
        else:
            self._become_follower(topic, state)

    def _is_of_earlier_incarnation(self, state: PartitionImage) -> bool:
        """True if this broker got the leadership before it re-registered (CTL-10).

        It may have lost records that other replicas have, and only a new leader epoch would distinguish the two logs,
        so it waits for the controller. A single replica cannot diverge.
        """
        if self._own_info is None or len(state.replicas) == 1:
            return False
        return not is_same_incarnation(state, {self._own_info.id: self._own_info}, self._own_info.id)

    def _become_leader(self, topic: TopicImage, state: PartitionImage) -> None:
        self._fetchers.unfollow(topic.name, state.index)
        self._table.become_leader(
            topic.name,
            state.index,
            topic.topic_id,
            state.leader_epoch,
            topic.config,
            now_ms=self._now_ms(),
            role=self._create_role(state),
        )

    def _become_follower(self, topic: TopicImage, state: PartitionImage) -> None:
        partition = self._table.become_follower(
            topic.name,
            state.index,
            topic.topic_id,
            state.leader_epoch,
            topic.config,
            now_ms=self._now_ms(),
            role=self._create_role(state),
        )
        if state.leader == NO_LEADER or partition.offline:
            self._fetchers.unfollow(topic.name, state.index)
        else:
            self._fetchers.follow(partition)

    def _create_role(self, state: PartitionImage) -> PartitionRole:
        is_known = self._is_known(state)
        return PartitionRole(state.replicas, state.isr, state.leader, is_known, self._monotonic_ms())

    def _is_known(self, state: PartitionImage) -> bool:
        """True if this broker may have had the partition before; a replica that is being added never did."""
        return (self._is_first or state.leader_epoch > 0) and self._broker_id not in state.adding

    def _delete_removed(self, previous_image: ClusterImage, image: ClusterImage) -> None:
        for name in image.changed_topics(previous_image):
            topic, current = previous_image.topics.get(name), image.topics.get(name)
            if topic is None:
                continue
            # A topic recreated between two images may have fewer partitions.
            if current is None or len(current.partitions) < len(topic.partitions):
                self._delete_partitions(topic, 0 if current is None else len(current.partitions))

    def _release_unknown(self, image: ClusterImage) -> None:
        """Keeps the logs of topics that are not in the image because its ZooKeeper tree was lost."""
        partitions = 0
        for partition in self._table:
            topic = image.topics.get(partition.topic)
            if topic is None or topic.topic_id != partition.topic_id:
                self._fetchers.unfollow(partition.topic, partition.index)
                self._table.release_unknown(partition)
                partitions += 1
        if partitions:
            log.error("logs_of_unknown_topics_kept", partitions=partitions)

    def _delete_partitions(self, topic: TopicImage, first_index: int) -> None:
        """Deletes the topic's partitions from `first_index` on."""
        for partition in topic.partitions[first_index:]:
            self._fetchers.unfollow(topic.name, partition.index)
            local = self._table.get(topic.name, partition.index)
            if local is None or _is_of_lost_tree(local, topic):
                continue
            if self._wake is not None and self._is_turn_over():
                self._table.resign(topic.name, partition.index)
                self._to_delete.append(((topic.name, partition.index), local.topic_id))
            else:
                self._table.delete(topic.name, partition.index, now_ms=self._now_ms())

    def _delete_strays(self, image: ClusterImage) -> None:
        """Deletes logs of topics and replicas that were removed while this broker was down.

        An unreadable topic record must not be taken for a deletion. If no log belongs to a partition of the image, the
        image is probably of another, empty tree: then nothing is deleted and an operator must investigate.
        """
        strays, known_count = [], 0
        for partition in self._table:
            topic = image.topics.get(partition.topic)
            if partition.topic in image.unreadable_topics:
                continue
            if topic is None or partition.index >= len(topic.partitions):
                strays.append(partition)
                continue
            # Internal topics are recreated in another tree too; their id shows which tree a log belongs to.
            belongs_to_topic = partition.topic_id in (topic.topic_id, NO_TOPIC_ID)
            known_count += belongs_to_topic
            is_elsewhere = self._broker_id not in topic.partitions[partition.index].replicas
            if is_elsewhere or (topic.deleting and not belongs_to_topic):
                # The image of an existing topic names its replicas. A log of an earlier topic is not renamed as a
                # stray, because the topic gets no log here any more.
                strays.append(partition)
        if strays and not known_count:
            log.error("logs_of_unknown_topics_kept", partitions=len(strays))
            return
        for partition in strays:
            log.info("stray_log_deleted", topic=partition.topic, partition=partition.index)
            self._table.delete(partition.topic, partition.index, now_ms=self._now_ms())


def _is_of_another_tree(previous_image: ClusterImage, image: ClusterImage) -> bool:
    """True if no topic of the previous image is left: this indicates a lost ZooKeeper tree rather than deletions."""
    topics = previous_image.topics.values()
    return len(topics) > 1 and not any(_exists_or_is_deleting(topic, image) for topic in topics)


def _is_of_lost_tree(local: Partition, topic: TopicImage) -> bool:
    """True if the log belongs to another topic, of a tree that was lost."""
    return not local.replicas and local.topic_id not in (topic.topic_id, NO_TOPIC_ID)


def _exists_or_is_deleting(topic: TopicImage, image: ClusterImage) -> bool:
    current = image.topics.get(topic.name)
    return topic.deleting or (current is not None and current.topic_id == topic.topic_id)
