"""Replication throttle of a fetcher for topics with throttled replicas (QUO-60, QUO-61); clock and rate are those of
the context.
"""

from __future__ import annotations

from brokers.engine.replication.fetch_plan import PARTITION_BYTES_MAX, PartitionFetchState
from brokers.engine.replication.fetcher_context import FetcherContext


class FollowerThrottle:
    """Throttle of one fetcher with the rate of the whole broker.

    In-sync replicas are not delayed: clients wait for them.
    """

    def __init__(self, context: FetcherContext) -> None:
        self._context = context

    def throttle_delay_ms(self, followed: PartitionFetchState) -> int:
        """Returns the delay before the partition may be fetched, 0 if it may be fetched now."""
        if not self._is_delayed(followed):
            return 0
        return self._context.throttle.delay_ms(self._context.clock.monotonic_ms())

    def bytes_max(self, followed: PartitionFetchState) -> int:
        """Returns the maximum number of bytes to fetch for the partition."""
        if not self._is_delayed(followed):
            return PARTITION_BYTES_MAX
        return min(PARTITION_BYTES_MAX, self._context.throttle.chunk_bytes)

    def record_received(self, followed: PartitionFetchState, count: int) -> int:
        """Records `count` received bytes and returns the delay before the next fetch."""
        if not self._is_throttled(followed):
            return 0
        self._context.throttle.record(count, self._context.clock.monotonic_ms())
        return self.throttle_delay_ms(followed)

    def _is_delayed(self, followed: PartitionFetchState) -> bool:
        return self._is_throttled(followed) and self._context.broker_id not in followed.partition.isr

    def _is_throttled(self, followed: PartitionFetchState) -> bool:
        throttled = followed.partition.config.follower_throttled
        return (
            throttled is not None
            and self._context.throttle.is_limited
            and throttled.holds(followed.partition.index, self._context.broker_id)
        )
