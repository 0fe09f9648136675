"""Coordinators follow the metadata: a broker coordinates the state partitions that it leads (GRP-1, TXN-1)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from brokers.engine.assembly.coordination_counts import CountedGroups, Counts
from brokers.engine.assembly.state_log import PartitionLog
from brokers.engine.assembly.transactions import TRIM_INTERVAL_S, Transactions
from brokers.engine.clock import StallDetector
from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.errors import ClusterError
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.coordinators.groups.machine import GroupMachine, LedGroupShards
from brokers.engine.coordinators.partitioning import bytes_by_instance
from brokers.engine.coordinators.result import Now, StateRecord
from brokers.engine.coordinators.runtime import Runtime
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.lifecycle import Periodic
from brokers.engine.replication.interfaces import Connect

log = structlog.get_logger(__name__)


class EngineLoop:
    """Implements `coordinators.runtime.Loop`. Its monotonic time excludes pauses of the process, in which no heartbeat
    was read.
    """

    def __init__(self, services: BrokerServices, stall_detector: StallDetector) -> None:
        self._services = services
        self._paused_ms = 0
        stall_detector.subscribe(self._on_pause)

    def _on_pause(self, paused_ms: int) -> None:
        self._paused_ms += paused_ms

    def now(self) -> Now:
        clock = self._services.clock
        return Now(clock.now_ms(), clock.monotonic_ms() - self._paused_ms)

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> Any:
        return self._services.loop.call_later(delay_ms / 1000, callback)

    def spawn(self, work: Coroutine[Any, Any, None]) -> Any:
        return self._services.spawn(work)


def charging_owners(services: BrokerServices) -> Callable[[Sequence[StateRecord], int], None]:
    """Returns the callback that charges appended state records to their instances (`throttling.shares`)."""

    def on_append(records: Sequence[StateRecord], batch_bytes: int) -> None:
        for instance_id, size_bytes in bytes_by_instance(records, batch_bytes).items():
            accounting = None if instance_id is None else services.accounting.accountings.get(instance_id)
            if accounting is not None:
                accounting.shares.charge_state(size_bytes, services.clock.monotonic_ms())

    return on_append


class Coordination:
    """Coordinators of one broker. Create it after the parts that make partitions follow the metadata."""

    def __init__(self, services: BrokerServices, connect: Connect) -> None:
        self._services = services
        self.counts = Counts()
        loop = EngineLoop(services, services.storage.stall_detector)
        settings = services.coordination.settings
        existing = _ExistingNames(services.metadata.current)
        led = LedGroupShards(lambda: self._groups.partitions, services.accounting.loop_weights.tenant_instances)
        self._groups: Runtime[GroupMachine] = Runtime(
            topic=settings.groups_topic.name,
            new_machine=lambda log: CountedGroups(
                self.counts, lambda: services.coordination.settings.groups, existing, led
            ),
            loop=loop,
            commit_timeout_ms=settings.commit_timeout_ms,
            on_append=charging_owners(services),
        )
        services.coordination.groups = self._groups
        self._transactions = Transactions(services, loop, connect, self.counts, charging_owners(services))
        self._runtimes: tuple[Runtime[Any], ...] = (self._groups, self._transactions.runtime)
        services.metadata.current.subscribe(self.on_image)

    def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        for runtime in self._runtimes:
            topic = after.topics.get(runtime.topic)
            runtime.partitions = 0 if topic is None or topic.deleting else len(topic.partitions)
        self.follow()
        self._forget(before, after)
        self._services.storage.leadership_checks.evaluate()

    def follow(self) -> None:
        """Starts and stops coordinators according to the current leaderships. Also called when logs of partitions have
        been created, which may be later than the image that names this broker as their leader.
        """
        for runtime in self._runtimes:
            self._follow(runtime)

    def _follow(self, runtime: Runtime[Any]) -> None:
        table, image = self._services.storage.table, self._services.metadata.current.image
        topic = image.topics.get(runtime.topic)
        opening = []
        for index in range(runtime.partitions):
            partition = table.get(runtime.topic, index)
            if partition is None and topic is not None and topic.partitions[index].leader == self._services.broker_id:
                opening.append(index)
            if partition is None or not partition.is_leader or partition.offline:
                runtime.resign(index)
            elif not runtime.leads(index, partition.leader_epoch):
                runtime.lead(PartitionLog(self._services, partition))
        for index in runtime.led_partitions():
            if index >= runtime.partitions:
                runtime.resign(index)
        runtime.opening = frozenset(opening)

    def _forget(self, before: ClusterImage, after: ClusterImage) -> None:
        """Deletes the offsets of deleted topics and instances (GRP-27)."""
        if before.topics is not after.topics:
            deleted = [
                name
                for name in after.changed_topics(before)
                if name in before.topics and _has_ended(after, name, before.topics[name].topic_id)
            ]
            if deleted:
                for shard in self._groups.shards():
                    shard.perform_internal(lambda machine, now: machine.removals.on_topics_deleted(now, deleted))
        if before.instances is not after.instances:
            deleted_ids = before.instances.keys() - after.instances.keys()
            for instance_id in deleted_ids:
                self._forget_instance(instance_id)
            if deleted_ids and after.controller_id == self._services.broker_id:
                self._services.spawn(self._forget_in_zookeeper())

    def _forget_instance(self, instance_id: str) -> None:
        for shard in self._groups.shards():
            shard.perform_internal(lambda machine, now: machine.removals.on_instance_deleted(now, instance_id))

    async def _forget_in_zookeeper(self) -> None:
        """Deletes offsets of old consumers of deleted instances in ZooKeeper; failures are retried at the next
        deletion.
        """
        try:
            await self._services.metadata.store.remove_orphaned_legacy_offsets()
        except ClusterError as error:
            log.warning("legacy_offsets_not_removed", reason=str(error))

    def start_periodic(self, periodic: Periodic) -> None:
        periodic.every(TRIM_INTERVAL_S, self._transactions.trim)

    def close(self) -> None:
        """Resigns from all partitions: waiting requests fail, and their clients look up the next coordinator."""
        for runtime in self._runtimes:
            for index in runtime.led_partitions():
                runtime.resign(index)
        self._transactions.close()


def _has_ended(image: ClusterImage, name: str, topic_id: bytes) -> bool:
    topic = image.topics.get(name)
    return image.is_topic_deleted(name) or (topic is not None and topic.topic_id != topic_id)


class _ExistingNames:
    """Implements `coordinators.groups.removals.ExistingNames` with the current metadata image."""

    def __init__(self, current: CurrentImage) -> None:
        self._current = current

    def has_topic(self, internal_name: str) -> bool:
        return not self._current.image.is_topic_deleted(internal_name)

    def has_instance(self, instance_id: str) -> bool:
        return not self._current.image.is_instance_deleted(instance_id)
