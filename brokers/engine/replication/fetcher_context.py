"""Context that all fetchers of a broker share, with the fixed fields of their requests; and two parts of a fetcher: the
throttle of topics with throttled replicas (QUO-60, QUO-61), and the log start offsets that are on disk.

A log start offset must be on disk before the leader learns of it (LOG-46). The leader confirms a deletion to its client
once every in-sync replica has reported it; a replica that reported it and lost it in a crash would restore the records
as the next leader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from brokers.engine.clock import Clock
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.protocol.fast_codec_replica_fetch import ReplicaFetchEncoder
from brokers.engine.replication.fetch_plan import PARTITION_BYTES_MAX, FetchPlan, PartitionFetchState
from brokers.engine.replication.interfaces import CallLater, Connect
from brokers.engine.throttling.replication import ReplicationThrottle

# Writes the log start offsets of a directory, and calls back when they are on disk.
PersistLogStartOffsets = Callable[[Path, Callable[[], object]], object]
# Minimum and maximum size of a response (`replica.fetch.min.bytes`, `replica.fetch.response.max.bytes`). A response is
# appended without yielding to the event loop, and producers wait for the response in flight, for which Kafka's 10 MB
# would take too long.
BYTES_MIN: Final = 1
RESPONSE_BYTES_MAX: Final = 2_097_152


class PersistedLogStartOffsets:
    """Log start offsets of the partitions followed from one leader; `wake` sends the plan's pending reports."""

    def __init__(self, persist: PersistLogStartOffsets, plan: FetchPlan, wake: Callable[[], object]) -> None:
        self._persist = persist
        self._plan = plan
        self._wake = wake
        self._in_progress: set[PartitionFetchState] = set()

    def persist_if_advanced(self, state: PartitionFetchState) -> None:
        """Persists the log start offset if it has advanced."""
        log = state.partition.log
        if log.durable_start_offset < log.log_start_offset and state not in self._in_progress:
            self._in_progress.add(state)
            self._persist(log.root, partial(self._on_persisted, state))

    def on_advanced(self, state: PartitionFetchState) -> None:
        """Persists and reports a log start offset that did not come from the leader.

        Nothing else would report it, and the leader keeps replicas with a lower log start out of the ISR.
        """
        self.persist_if_advanced(state)
        if state not in self._in_progress:
            self._plan.report_now(state)
            self._wake()

    def _on_persisted(self, state: PartitionFetchState) -> None:
        self._in_progress.discard(state)
        # No file names a deleted log, however often it is written.
        if state.partition.offline or self._plan.state_by_key.get(state.key) is not state:
            return
        self._plan.report_now(state)
        self._wake()
        # It may have advanced meanwhile.
        self.persist_if_advanced(state)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherContext:
    """Shared context of fetchers; `broker_epoch` returns the current incarnation of this broker, new after every
    registration.
    """

    broker_id: int
    broker_epoch: Callable[[], int]
    table: PartitionTable
    clock: Clock
    connect: Connect
    call_later: CallLater
    throttle: ReplicationThrottle
    persist_log_start_offsets: PersistLogStartOffsets

    @property
    def client_id(self) -> str:
        return f"broker-{self.broker_id}-fetcher"

    def encoder(self, broker_epoch: int) -> ReplicaFetchEncoder:
        """Returns an encoder of fetch requests of this broker in one incarnation."""
        return ReplicaFetchEncoder(
            client_id=self.client_id,
            replica_id=self.broker_id,
            replica_epoch=broker_epoch,
            min_bytes=BYTES_MIN,
            response_bytes_max=RESPONSE_BYTES_MAX,
        )


class FollowerThrottle:
    """Throttle of one fetcher with the rate of the whole broker.

    In-sync replicas are not delayed: clients wait for them.
    """

    def __init__(self, context: FetcherContext) -> None:
        self._context = context

    def throttle_delay_ms(self, state: PartitionFetchState) -> int:
        """Returns the delay before the partition may be fetched, 0 if it may be fetched now."""
        if not self._is_delayed(state):
            return 0
        return self._context.throttle.delay_ms(self._context.clock.monotonic_ms())

    def bytes_max(self, state: PartitionFetchState) -> int:
        """Returns the maximum number of bytes to fetch for the partition."""
        if not self._is_delayed(state):
            return PARTITION_BYTES_MAX
        return min(PARTITION_BYTES_MAX, self._context.throttle.chunk_bytes)

    def record_received(self, state: PartitionFetchState, count: int) -> int:
        """Records `count` received bytes and returns the delay before the next fetch."""
        if not self._is_throttled(state):
            return 0
        self._context.throttle.record(count, self._context.clock.monotonic_ms())
        return self.throttle_delay_ms(state)

    def _is_delayed(self, state: PartitionFetchState) -> bool:
        return self._is_throttled(state) and self._context.broker_id not in state.partition.isr

    def _is_throttled(self, state: PartitionFetchState) -> bool:
        throttled = state.partition.config.follower_throttled
        return (
            throttled is not None
            and self._context.throttle.is_limited
            and throttled.includes(state.partition.index, self._context.broker_id)
        )
