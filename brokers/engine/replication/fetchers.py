"""Everything this broker follows: one fetcher per leader broker (REP-6), made when it is needed and kept while the
broker lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from brokers.engine.clock import Clock
from brokers.engine.cluster.image import BrokerInfo
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.replication.ports import CallLater, Connect


@dataclass(frozen=True, slots=True)
class FollowedState:
    """One followed partition, for people. `lag` is in records behind the leader's high watermark, -1 when the leader
    was not heard yet; `error` says why it does not get on, "" when it does; `heard_ms` is the wall time of the last
    answer for it, 0 before the first.
    """

    topic: str
    index: int
    leader: int
    leader_epoch: int
    end_offset: int
    lag: int
    error: str
    heard_ms: int


class Fetchers:
    """Told by the roles what to follow and by the picture where brokers are. Everything runs on the loop's thread."""

    def __init__(
        self,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        table: PartitionTable,
        clock: Clock,
        connect: Connect,
        call_later: CallLater,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._table = table
        self._clock = clock
        self._connect = connect
        self._call_later = call_later
        self._brokers: Mapping[int, BrokerInfo] = {}
        self._followed: dict[tuple[str, int], Partition] = {}

    def follow(self, partition: Partition) -> None:
        """Fetches from `partition.leader` in `partition.leader_epoch`. Again after either changed, or when the picture
        says something else about it: an earlier failure is forgotten and it is asked for at once.
        """
        self._followed[partition.topic, partition.index] = partition

    def unfollow(self, topic: str, index: int) -> None:
        """Led here, deleted, or nobody leads it. Harmless for what is not followed. No record is appended after it."""
        self._followed.pop((topic, index), None)

    def on_brokers(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """The live brokers of the picture; call it before `follow` for the same picture."""
        self._brokers = brokers

    def states(self) -> Iterator[FollowedState]:
        """Every followed partition."""
        for partition in tuple(self._followed.values()):
            yield FollowedState(
                partition.topic, partition.index, -1, partition.leader_epoch, partition.log_end_offset, -1, "", 0
            )

    def close(self) -> None:
        """Ends every connection; nothing is appended any more."""
        self._followed.clear()
