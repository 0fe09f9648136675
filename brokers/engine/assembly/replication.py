"""What makes this broker one of several: it follows leaders, leads followers, and says who is in sync."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from brokers.engine.cluster.current import CurrentImage
from brokers.engine.cluster.image import BrokerInfo
from brokers.engine.cluster.store import ClusterStore
from brokers.engine.cluster.watcher import ClusterWatcher
from brokers.engine.config import EngineConfig
from brokers.engine.handlers.context import Engine
from brokers.engine.lifecycle import Periodic
from brokers.engine.replication.fetchers import CHECK_INTERVAL_MS, Fetchers
from brokers.engine.replication.isr_publisher import IsrPublisher
from brokers.engine.replication.link import SocketLink
from brokers.engine.replication.ports import LinkOwner
from brokers.engine.replication.roles import Roles
from brokers.engine.throttling.replication import ReplicationThrottle

CHECKS_PER_LAG: Final = 2
DISK_CHECK_INTERVAL_S: Final = 1.0


class Replication:
    """Subscribes to the picture: create it before whoever serves from what is led."""

    def __init__(
        self,
        config: EngineConfig,
        engine: Engine,
        *,
        current: CurrentImage,
        store: ClusterStore,
        watcher: ClusterWatcher,
        broker_epoch: Callable[[], int],
    ) -> None:
        loop, clock, secret = engine.loop, engine.clock, config.control_secret

        def connect(broker: BrokerInfo, owner: LinkOwner) -> SocketLink:
            return SocketLink(broker, owner, secret, loop)

        def call_later(delay_ms: int, callback: Callable[[], object]) -> asyncio.TimerHandle:
            return loop.call_later(delay_ms / 1000, callback)

        self.fetchers = Fetchers(
            broker_id=config.broker_id,
            broker_epoch=broker_epoch,
            table=engine.table,
            clock=clock,
            connect=connect,
            call_later=call_later,
            throttle=ReplicationThrottle(config.follower_throttle_bytes_per_s),
        )
        self.roles = Roles(
            broker_id=config.broker_id,
            table=engine.table,
            fetchers=self.fetchers,
            now_ms=clock.now_ms,
            monotonic_ms=clock.monotonic_ms,
        )
        self.publisher = IsrPublisher(
            broker_id=config.broker_id,
            table=engine.table,
            current=current,
            store=store,
            read_again=watcher.mark_topics,
            monotonic_ms=clock.monotonic_ms,
            lag_ms_max=config.replica_lag_ms_max,
        )
        engine.replication_throttle = ReplicationThrottle(config.leader_throttle_bytes_per_s)
        engine.may_join_isr = self.publisher.consider
        current.subscribe(self.roles.on_image)
        current.subscribe(self.publisher.on_image)

    def keep_going(self, periodic: Periodic) -> None:
        periodic.keep(self.publisher.run())
        periodic.every(self.publisher.lag_ms_max / CHECKS_PER_LAG / 1000, self.publisher.check)
        periodic.every(CHECK_INTERVAL_MS / 1000, self.fetchers.check)
        periodic.every(DISK_CHECK_INTERVAL_S, self.publisher.check_disks)
