"""acks=-1 with followers: the answer waits until every high watermark is there, or the time is over (REP-12)."""

from __future__ import annotations

from collections.abc import Callable

from brokers.engine.handlers.session import Session
from brokers.engine.partitions.delayed_operations import DelayedReplication
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.errors import ErrorCode

# By internal topic name and partition: the error code that each ended with.
PartitionErrors = dict[tuple[str, int], int]


def when_complete(
    session: Session, pending: list[tuple[Partition, int]], timeout_ms: int, answer: Callable[[PartitionErrors], None]
) -> None:
    """Calls `answer` once, later; not at all if the session is cancelled. `pending`: partition, last offset."""
    Settling(session, pending, timeout_ms, answer)


class Settling:
    """One such wait. Over, it refers to nothing that refers to it."""

    __slots__ = ("_answer", "_operation", "_pending", "_session", "_tick")

    def __init__(
        self,
        session: Session,
        pending: list[tuple[Partition, int]],
        timeout_ms: int,
        answer: Callable[[PartitionErrors], None],
    ) -> None:
        self._session = session
        self._pending = pending
        self._answer = answer
        self._operation = operation = DelayedReplication(self._wake)
        for partition, last_offset in pending:
            operation.watch(partition, last_offset)
        self._tick = session.engine.deadlines.add(operation, max(0, timeout_ms))
        session.cancel = self._cancel

    def _wake(self) -> None:
        session = self._session
        session.engine.deadlines.drop(self._operation, self._tick)
        # Not inside the append or the answer that woke us.
        session.cancel = session.engine.loop.call_soon(self._completed).cancel

    def _completed(self) -> None:
        self._session.cancel = None
        last_offsets: dict[tuple[str, int], int] = {}
        for partition, last_offset in self._pending:
            key = partition.topic, partition.index
            last_offsets[key] = max(last_offset, last_offsets.get(key, -1))
        self._answer(
            {
                (partition.topic, partition.index): error_of(
                    self._operation, partition, last_offsets[partition.topic, partition.index]
                )
                for partition, _ in self._pending
            }
        )

    def _cancel(self) -> None:
        self._session.engine.deadlines.drop(self._operation, self._tick)
        self._operation.cancel()


def error_of(operation: DelayedReplication, partition: Partition, last_offset: int) -> int:
    """How the append up to `last_offset` ended, as an error code."""
    if partition in operation.lost or not partition.is_leader:
        return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.high_watermark <= last_offset:
        return int(ErrorCode.REQUEST_TIMED_OUT)
    return 0 if partition.has_enough_replicas() else int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
