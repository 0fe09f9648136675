"""Fetchers of this broker, one per leader broker (REP-6): created on demand and kept while the broker lives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from brokers.contract.partitions import NO_LEADER, PartitionKey
from brokers.engine.clock import Clock
from brokers.engine.cluster.image import BrokerInfo
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.replication.fetch_plan import UNKNOWN, Key
from brokers.engine.replication.fetcher import Fetcher
from brokers.engine.replication.fetcher_context import FetcherContext, PersistLogStartOffsets
from brokers.engine.replication.interfaces import CallLater, Connect
from brokers.engine.throttling.replication import ReplicationThrottle


@dataclass(frozen=True, slots=True)
class FollowedState:
    """State of one followed partition for display.

    `lag` is the number of records behind the leader's high watermark, -1 before the first response. `error` is the
    reason for a failure, else "". `last_acked_ms` is the wall clock time of the last response for it, 0 before one.
    """

    topic: str
    index: int
    leader: int
    leader_epoch: int
    end_offset: int
    lag: int
    error: str
    last_acked_ms: int


CHECK_INTERVAL_MS: Final = 1_000


class Fetchers:
    """Follows the partitions set by the roles, at the broker addresses of the image; runs in the event loop's
    thread.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        table: PartitionTable,
        clock: Clock,
        connect: Connect,
        call_later: CallLater,
        persist_log_start_offsets: PersistLogStartOffsets,
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        """Creates an empty set of fetchers; `throttle` is the follower throttle of this broker, and None means no
        throttle.
        """
        self._context = FetcherContext(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            table=table,
            clock=clock,
            connect=connect,
            call_later=call_later,
            throttle=throttle or ReplicationThrottle(),
            persist_log_start_offsets=persist_log_start_offsets,
        )
        self._broker_by_id: Mapping[int, BrokerInfo] = {}
        self._fetcher_by_leader: dict[int, Fetcher] = {}
        self._entry_by_partition: dict[PartitionKey, tuple[Partition, int, Key]] = {}
        self._is_closed = False
        table.on_log_start_advanced = self._on_log_start_advanced

    def follow(self, partition: Partition) -> None:
        """Fetches from `partition.leader` in `partition.leader_epoch`.

        Called again after either changed, or when the image of the partition changed: it is then fetched at once, in
        spite of an earlier failure.
        """
        if self._is_closed:
            return
        name = (partition.topic, partition.index)
        leader, key = partition.leader, (partition.topic_id, partition.index)
        entry = self._entry_by_partition.get(name)
        if entry is not None and entry != (partition, leader, key):
            self.unfollow(*name)
        self._entry_by_partition[name] = (partition, leader, key)
        if leader != NO_LEADER:
            self._get_or_create_fetcher(leader).follow(partition)

    def unfollow(self, topic: str, index: int) -> None:
        """Stops fetching a partition that is led here, deleted or without a leader; no record is appended afterwards.

        Does nothing for a partition that is not followed.
        """
        entry = self._entry_by_partition.pop((topic, index), None)
        if entry is not None and entry[1] in self._fetcher_by_leader:
            self._fetcher_by_leader[entry[1]].unfollow(entry[2])

    def _on_log_start_advanced(self, partition: Partition) -> None:
        entry = self._entry_by_partition.get((partition.topic, partition.index))
        if entry is not None and entry[1] in self._fetcher_by_leader:
            self._fetcher_by_leader[entry[1]].on_log_start_advanced(entry[2])

    def _get_or_create_fetcher(self, leader: int) -> Fetcher:
        fetcher = self._fetcher_by_leader.get(leader)
        if fetcher is None:
            fetcher = self._fetcher_by_leader[leader] = Fetcher(leader, self._context)
            fetcher.on_broker(self._broker_by_id.get(leader))
        return fetcher

    def on_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Sets the live brokers of the image; called before `follow` for the same image."""
        self._broker_by_id = brokers
        for leader, fetcher in self._fetcher_by_leader.items():
            fetcher.on_broker(brokers.get(leader))

    def check(self) -> None:
        """Checks for leaders that do not respond and frees unused memory; called every CHECK_INTERVAL_MS."""
        for fetcher in self._fetcher_by_leader.values():
            fetcher.check()

    def reaches(self, leader: int) -> bool:
        """True if the leader answers the requests of this follower."""
        fetcher = self._fetcher_by_leader.get(leader)
        return fetcher is not None and not fetcher.error

    def states(self) -> Iterator[FollowedState]:
        """Yields the state of every followed partition."""
        for partition, leader, key in tuple(self._entry_by_partition.values()):
            fetcher = self._fetcher_by_leader.get(leader)
            state = None if fetcher is None else fetcher.plan.state_by_key.get(key)
            error = "the partition has no leader" if fetcher is None else fetcher.error
            if state is not None:
                error = error or state.error
            elif partition.offline:
                error = "its disk failed"
            yield FollowedState(
                topic=partition.topic,
                index=partition.index,
                leader=leader,
                leader_epoch=partition.leader_epoch,
                end_offset=partition.log_end_offset,
                lag=UNKNOWN if state is None else state.lag,
                error=error,
                last_acked_ms=0 if state is None else state.last_acked_ms,
            )

    def close(self) -> None:
        """Closes every connection; no record is appended afterwards, even if `follow` is called."""
        self._is_closed = True
        for fetcher in self._fetcher_by_leader.values():
            fetcher.close()
        self._fetcher_by_leader.clear()
        self._entry_by_partition.clear()
