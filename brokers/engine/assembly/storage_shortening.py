"""Early retention: deletes the oldest records of instances with the setting SHRINK_RETENTION before their storage is
used up (decision 114).

`capacity.shortening` decides which segments are deleted. This broker deletes records of the partitions that it leads;
where it is a follower, it deletes the files below the leader's log start. Active segments are closed early, because
only closed ones can be deleted.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import structlog

from brokers.contract.documents import SHRINK_RETENTION
from brokers.contract.partitions import PartitionKey
from brokers.engine.assembly.storage_capacity import IDLE_INTERVAL_MS, StorageCapacity
from brokers.engine.capacity.ledger import DEAD_BROKER_MS, UNKNOWN
from brokers.engine.capacity.shortening import (
    MS_PER_MINUTE,
    OldSegment,
    StorageFigures,
    active_segment_bytes_max,
    excess_bytes,
    is_urgent,
    must_shorten,
    segments_to_delete,
)
from brokers.engine.cluster.image import ClusterImage, InstanceImage
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.lifecycle import Periodic
from brokers.engine.partitions.deletion import delete_oldest, roll_active_segment
from brokers.engine.partitions.partition import Partition
from brokers.engine.storage.files import StorageFailed

log = structlog.get_logger(__name__)

SHORTEN_INTERVAL_S: Final = 1.0
# Instances that use a smaller percentage of their storage are checked only in every fifth round (IDLE_ROUNDS).
NEAR_PERCENT: Final = 80
IDLE_ROUNDS: Final = 5
# Time without deletions after a change of leaders: until all brokers have reported, a partition may be counted twice,
# for example for its new leader and for a broker that was lost.
LEADER_CHANGE_PAUSE_MS: Final = IDLE_INTERVAL_MS + DEAD_BROKER_MS
# Maximum age of the controller's response for a deletion: after a pause a broker does not know what others did
# meanwhile.
RESPONSE_AGE_MS_MAX: Final = 3_000
# Producers of a full instance get a retriable error for this time after the last deletion, then they are refused.
RETRIABLE_MS: Final = 5_000
# Time for which an early deletion is reported.
REPORTED_MS: Final = 600_000
TOPICS_REPORTED_MAX: Final = 5
# Maximum number of topics remembered for an instance.
TOPICS_KEPT_MAX: Final = 100
LOG_INTERVAL_MS: Final = 60_000
# In a log with this number of segments or more, the active one is not closed for its age.
CLOSED_BY_AGE_MAX: Final = 64


@dataclass(slots=True)
class _State:
    """State of one instance. Times are monotonic ms, except those of records.

    `leaders` are the leaders of the partitions in `image`; none has changed since `led_since_ms`. `is_excessive` is
    True if the last round found too much storage used, `is_shortened` while segments must be deleted for that. Until
    `retriable_until_ms` producers get a retriable error. `reported_bytes` is the use in the last round. `topics` has
    the timestamp of the oldest remaining record, by the tenant's topic name, for topics of which records were deleted.
    """

    led_since_ms: int
    image: InstanceImage | None = None
    leaders: dict[PartitionKey, int] = field(default_factory=dict)
    is_excessive: bool = False
    is_shortened: bool = False
    retriable_until_ms: int = 0
    reported_bytes: int = 0
    shortened_ms: int | None = None
    logged_ms: int | None = None
    topics: dict[str, int] = field(default_factory=dict)


class StorageShortening:
    """Early retention on one broker. `segments` and `freed_bytes` (replicas included) count since the start."""

    def __init__(self, services: BrokerServices, storage: StorageCapacity) -> None:
        self._services = services
        self._storage = storage
        self._states: dict[str, _State] = {}
        self._rounds = 0
        self.segments = 0
        self.freed_bytes = 0
        services.metadata.current.subscribe(self.on_image)

    def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        if before.instances is after.instances:
            return
        for instance_id in tuple(self._states):
            instance = after.instances.get(instance_id)
            if instance is None or instance.document.settings.storage_when_full != SHRINK_RETENTION:
                del self._states[instance_id]
                room = self._storage.credits.rooms.get(instance_id)
                if room is not None:
                    room.is_shortened = False
        for instance_id, instance in after.instances.items():
            if instance.document.settings.storage_when_full == SHRINK_RETENTION and instance_id not in self._states:
                self._states[instance_id] = _State(led_since_ms=self._services.clock.monotonic_ms())

    def start_periodic(self, periodic: Periodic) -> None:
        periodic.every(SHORTEN_INTERVAL_S, self.run_once)

    async def run_once(self) -> None:
        """Checks all instances with early retention once, yielding to the event loop between steps."""
        self._rounds += 1
        for instance_id in tuple(self._states):
            await self._services.own_turns.run(self._shorten(instance_id))

    def recent_deletions(self) -> dict[str, dict[str, Any]]:
        """Returns instances with recent early deletions: their time, and the oldest remaining record of some topics."""
        now_ms, monotonic_ms = self._services.clock.now_ms(), self._services.clock.monotonic_ms()
        result: dict[str, dict[str, Any]] = {}
        for instance_id, state in self._states.items():
            if state.shortened_ms is not None and monotonic_ms - state.shortened_ms < REPORTED_MS:
                result[instance_id] = {
                    "at_ms": now_ms - (monotonic_ms - state.shortened_ms),
                    "topics": sorted(state.topics.items(), key=lambda pair: -pair[1])[:TOPICS_REPORTED_MAX],
                }
        return result

    # -- one instance --------------------------------------------------------------------------------------------------

    def _shorten(self, instance_id: str) -> Generator[None, None, None]:
        state = self._states.get(instance_id)
        instance = self._services.metadata.current.image.instances.get(instance_id)
        if state is None or instance is None:
            return
        bought_bytes = instance.document.capacity_bytes
        grant = self._storage.credits.grants_by_instance.get(instance_id)
        room = self._storage.credits.rooms.get(instance_id)
        is_near = grant is not None and grant.used_bytes * 100 >= bought_bytes * NEAR_PERCENT
        if room is not None and not is_near:
            # If it fills at once, producers try again until the next rounds have deleted records.
            room.is_shortened = True
            state.retriable_until_ms = self._services.clock.monotonic_ms() + RETRIABLE_MS
        if not is_near and self._rounds % IDLE_ROUNDS:
            return
        led, followed = self._partitions(instance)
        yield
        for partition in followed:
            self._delete_below_leader_start(partition, bought_bytes)
            yield
        for partition in led:
            if self._is_led(partition) and _is_large_enough(partition, bought_bytes):
                roll_active_segment(self._services.storage.table, partition, self._services.clock.now_ms())
                yield
        if grant is None or room is None or grant.counted_bytes == UNKNOWN:
            return
        self._note_leader_changes(instance, state)
        local_log_bytes = self._storage.use.measure_now(instance_id)
        figures = StorageFigures(bought_bytes, grant.reported_bytes, grant.counted_bytes, local_log_bytes)
        yield from self._delete_if_short(instance, state, led, figures)
        room.is_shortened = self._services.clock.monotonic_ms() < state.retriable_until_ms

    def _delete_if_short(
        self, instance: InstanceImage, state: _State, led: list[Partition], figures: StorageFigures
    ) -> Generator[None, None, None]:
        """Deletes segments if storage was short in two consecutive rounds. Nothing is deleted while the controller does
        not answer, or after a recent change of a leader, whose partition may be counted twice.
        """
        now_ms = self._services.clock.monotonic_ms()
        was_excessive, state.is_excessive = state.is_excessive, must_shorten(figures, state.is_shortened)
        state.is_shortened = state.is_excessive and (was_excessive or state.is_shortened)
        has_response = now_ms - self._storage.last_response_ms <= RESPONSE_AGE_MS_MAX
        may_delete = has_response and now_ms - state.led_since_ms >= LEADER_CHANGE_PAUSE_MS
        if not (state.is_shortened and may_delete) or figures.reported_bytes < state.reported_bytes:
            state.retriable_until_ms = now_ms + RETRIABLE_MS
        state.reported_bytes = figures.reported_bytes
        if state.is_shortened and may_delete:
            yield from self._delete_excess(instance, state, led, figures)

    def _note_leader_changes(self, instance: InstanceImage, state: _State) -> None:
        if state.image is instance:
            return
        leaders = {
            (topic.name, partition.index): partition.leader
            for topic in instance.stored_topics
            for partition in topic.partitions
        }
        if any(leaders.get(key, leader) != leader for key, leader in state.leaders.items()):
            state.led_since_ms = self._services.clock.monotonic_ms()
        state.image, state.leaders = instance, leaders

    def _partitions(self, instance: InstanceImage) -> tuple[list[Partition], list[Partition]]:
        """Returns the partitions led and followed here, of topics whose records are deleted by age."""
        led: list[Partition] = []
        followed: list[Partition] = []
        for topic in instance.stored_topics:
            for partition_image in topic.partitions:
                partition = self._services.storage.table.get(topic.name, partition_image.index)
                if partition is not None and not partition.offline and partition.config.log.retention.delete:
                    (led if partition.is_leader else followed).append(partition)
        return led, followed

    def _exists(self, partition: Partition) -> bool:
        """True if the partition still exists: it may be deleted, or its directory fail, between two turns."""
        return self._services.storage.table.get(partition.topic, partition.index) is partition and not partition.offline

    def _is_led(self, partition: Partition) -> bool:
        return partition.is_leader and self._exists(partition)

    def _delete_below_leader_start(self, partition: Partition, bought_bytes: int) -> None:
        """Deletes local files below the leader's log start, without waiting for retention."""
        if partition.is_leader or not self._exists(partition):
            return
        partition_log, now_ms = partition.log, self._services.clock.now_ms()
        active = partition_log.active
        if active.size_bytes and (
            _is_large_enough(partition, bought_bytes) or partition_log.log_start_offset > active.base_offset
        ):
            roll_active_segment(self._services.storage.table, partition, now_ms)
        if len(partition_log.segments) > 1 and partition_log.segments[1].base_offset <= partition_log.log_start_offset:
            self._services.storage.table.apply_retention_to(partition, now_ms)

    def _delete_excess(
        self, instance: InstanceImage, state: _State, led: list[Partition], figures: StorageFigures
    ) -> Generator[None, None, None]:
        retention_min_ms = instance.document.settings.storage_retention_minutes_min * MS_PER_MINUTE
        excess = excess_bytes(figures)
        if excess <= 0:
            return
        logs: dict[PartitionKey, list[OldSegment]] = {}
        for partition in led:
            logs[partition.topic, partition.index] = self._old_segments(partition)
            yield
        now_ms = self._services.clock.now_ms()
        counts_by_partition = segments_to_delete(
            logs, excess, now_ms=now_ms, age_ms_min=retention_min_ms, is_urgent=is_urgent(figures)
        )
        freed_bytes = 0
        for partition in led:
            key = partition.topic, partition.index
            deleted = logs[key][: counts_by_partition.get(key, 0)]
            if deleted and self._is_led(partition):
                self._delete_segments(instance, state, partition, deleted)
                freed_bytes += sum(segment.stored_bytes for segment in deleted)
                yield
        if freed_bytes * 2 < excess:
            for partition in led:
                self._close_aged_segment(partition, retention_min_ms)
                yield
        self._log(instance, state, counts_by_partition)

    def _old_segments(self, partition: Partition) -> list[OldSegment]:
        """Returns the segments that may be deleted, in order: closed ones below the high watermark."""
        result: list[OldSegment] = []
        if not self._is_led(partition):
            return result
        segments, replicas = partition.log.segments, len(partition.replicas) or 1
        try:
            for segment, following in pairwise(segments):
                if following.base_offset > partition.high_watermark:
                    break
                result.append(OldSegment(segment.disk_bytes * replicas, segment.largest_timestamp()))
        except StorageFailed as failure:
            self._services.storage.table.on_storage_failure(failure)
            return []
        return result

    def _close_aged_segment(self, partition: Partition, retention_min_ms: int) -> None:
        """Closes an active segment that is older than `retention_min_ms`, because the closed segments do not suffice.
        It is deleted once all its records are older than that.
        """
        if not self._is_led(partition) or not partition.log.active.size_bytes:
            return
        now_ms = self._services.clock.now_ms()
        is_old = now_ms - partition.log.active.created_ms >= retention_min_ms
        if is_old and len(partition.log.segments) < CLOSED_BY_AGE_MAX:
            roll_active_segment(self._services.storage.table, partition, now_ms)

    def _delete_segments(
        self, instance: InstanceImage, state: _State, partition: Partition, deleted: list[OldSegment]
    ) -> None:
        clock = self._services.clock
        if not delete_oldest(self._services.storage.table, partition, len(deleted), clock.now_ms()):
            return
        state.shortened_ms = clock.monotonic_ms()
        state.retriable_until_ms = state.shortened_ms + RETRIABLE_MS
        self.segments += len(deleted)
        self.freed_bytes += sum(segment.stored_bytes for segment in deleted)
        name = instance.topic_names.get(partition.topic)
        if name is not None:
            first_ms = partition.log.segments[0].first_timestamp
            # The first segment was not read since the start: its records are not older than the last deleted one.
            oldest_ms = deleted[-1].largest_timestamp_ms if first_ms is None or first_ms < 0 else first_ms
            state.topics.pop(name, None)
            state.topics[name] = oldest_ms
            while len(state.topics) > TOPICS_KEPT_MAX:
                del state.topics[next(iter(state.topics))]

    def _log(self, instance: InstanceImage, state: _State, counts_by_partition: Mapping[PartitionKey, int]) -> None:
        now_ms = self._services.clock.monotonic_ms()
        if counts_by_partition and (state.logged_ms is None or now_ms - state.logged_ms >= LOG_INTERVAL_MS):
            state.logged_ms = now_ms
            log.info(
                "retention_shortened",
                instance_id=instance.id,
                topics=sorted({topic for topic, _ in counts_by_partition})[:TOPICS_REPORTED_MAX],
                segments=sum(counts_by_partition.values()),
            )


def _is_large_enough(partition: Partition, bought_bytes: int) -> bool:
    """True if the active segment is large enough to be closed."""
    return partition.log.active.size_bytes >= active_segment_bytes_max(bought_bytes, len(partition.replicas))
