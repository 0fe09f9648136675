"""Replication on this broker: it follows leaders, serves followers, and maintains ISRs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from brokers.engine.clock import STALL_CHECK_INTERVAL_S, StallDetector
from brokers.engine.cluster.image import ClusterImage
from brokers.engine.cluster.watcher import ClusterWatcher, Part
from brokers.engine.config import EngineConfig
from brokers.engine.handlers.services import BrokerServices
from brokers.engine.lifecycle import Periodic
from brokers.engine.replication.fetchers import CHECK_INTERVAL_MS, Fetchers
from brokers.engine.replication.interfaces import Connect
from brokers.engine.replication.isr_publisher import IsrPublisher
from brokers.engine.replication.roles import Roles
from brokers.engine.throttling.replication import ReplicationThrottle

log = structlog.get_logger(__name__)

CHECKS_PER_LAG: Final = 2
# A session expires one timeout after its last heartbeat, which is at most a third of a timeout old.
PAUSES_PER_SESSION: Final = 2
DISK_CHECK_INTERVAL_S: Final = 1.0
SHORTAGE_INTERVAL_S: Final = 1.0
# A new topic waits until the checkpoint files have dropped a deleted one of its name. Pause between two such
# checkpoints, so that many topics share one.
CHECKPOINT_PAUSE_S: Final = 0.1


class Replication:
    """Replication of one broker. Create it before the parts that serve led partitions, so that it gets images first."""

    def __init__(
        self,
        config: EngineConfig,
        services: BrokerServices,
        watcher: ClusterWatcher,
        broker_epoch: Callable[[], int],
        connect: Connect,
        drop_deleted_from_checkpoints: Callable[[], Awaitable[bool]],
    ) -> None:
        """Creates the parts. `drop_deleted_from_checkpoints` removes deleted partitions from the checkpoint files."""
        loop, clock = services.loop, services.clock
        current, store = services.metadata.current, services.metadata.store

        def call_later(delay_ms: int, callback: Callable[[], object]) -> asyncio.TimerHandle:
            return loop.call_later(delay_ms / 1000, callback)

        self.follower_throttle = ReplicationThrottle(config.follower_throttle_bytes_per_s)
        self.fetchers = Fetchers(
            broker_id=config.broker_id,
            broker_epoch=broker_epoch,
            table=services.storage.table,
            clock=clock,
            connect=connect,
            call_later=call_later,
            persist_log_start_offsets=services.storage.durable_start_offsets.call_when_durable,
            throttle=self.follower_throttle,
        )
        self._own_turns = services.own_turns
        self._write_checkpoints = drop_deleted_from_checkpoints
        # Called after some of the partitions that waited to be created have been created.
        self.on_logs_created: Callable[[], object] = lambda: None
        # Set while partitions wait to be created.
        self._has_pending_logs = asyncio.Event()
        # Set if some of them wait until the checkpoint files have dropped deleted partitions of the same name.
        self._checkpoint_requested = asyncio.Event()
        self.roles = self._roles(config, services)
        self.publisher = IsrPublisher(
            broker_id=config.broker_id,
            table=services.storage.table,
            current=current,
            store=store,
            read_again=watcher.mark_topics,
            monotonic_ms=clock.monotonic_ms,
            lag_ms_max=config.replica_lag_ms_max,
        )
        services.storage.replication_throttle = ReplicationThrottle(config.leader_throttle_bytes_per_s)
        services.storage.may_join_isr = self.publisher.schedule_check
        services.storage.reaches_leader = self.fetchers.reaches
        services.storage.stall_detector = self._stall_detector = StallDetector(
            clock.now_ms(), config.session_timeout_ms // PAUSES_PER_SESSION
        )
        self._stall_detector.subscribe(self._on_pause)
        self._now_ms = clock.now_ms
        self._watcher = watcher
        self._suspected_at_load: int | None = None
        current.subscribe(self.roles.on_image)
        current.subscribe(self._on_image)
        current.subscribe(self.publisher.on_image)

    def _roles(self, config: EngineConfig, services: BrokerServices) -> Roles:
        return Roles(
            broker_id=config.broker_id,
            table=services.storage.table,
            fetchers=self.fetchers,
            now_ms=services.clock.now_ms,
            monotonic_ms=services.clock.monotonic_ms,
            wake=self._has_pending_logs.set,
            request_checkpoint=self._checkpoint_requested.set,
        )

    def _on_pause(self, paused_ms: int) -> None:
        """Suspends all leaderships until the cluster has been read again: the session may have expired (CTL-4)."""
        log.warning("process_was_paused", for_ms=paused_ms)
        self.roles.suspect_leaderships()
        self._suspected_at_load = self._watcher.loads_started
        self._watcher.mark(Part.EVERYTHING)

    def _on_image(self, _before: ClusterImage, after: ClusterImage) -> None:
        if self._suspected_at_load is not None and self._watcher.last_published_load > self._suspected_at_load:
            self._suspected_at_load = None
            self.roles.confirm_leadership(after)

    def _check(self) -> None:
        self._stall_detector.check(self._now_ms())

    async def _create_pending_logs(self) -> None:
        while True:
            await self._has_pending_logs.wait()
            await self._own_turns.enqueue()
            if not self.roles.continue_changes():
                self._has_pending_logs.clear()
            self.on_logs_created()

    async def _forget_deleted(self) -> None:
        while True:
            await self._checkpoint_requested.wait()
            self._checkpoint_requested.clear()
            self.roles.on_checkpoint(is_written=await self._write_checkpoints())
            await asyncio.sleep(CHECKPOINT_PAUSE_S)

    def start_periodic(self, periodic: Periodic) -> None:
        periodic.spawn(self._create_pending_logs())
        periodic.spawn(self._forget_deleted())
        periodic.every(STALL_CHECK_INTERVAL_S, self._check)
        periodic.spawn(self.publisher.run())
        periodic.every(self.publisher.lag_ms_max / CHECKS_PER_LAG / 1000, self.publisher.check)
        periodic.every(CHECK_INTERVAL_MS / 1000, self.fetchers.check)
        periodic.every(SHORTAGE_INTERVAL_S, self.roles.retry_failed)
        periodic.every(DISK_CHECK_INTERVAL_S, self.publisher.check_disks)
