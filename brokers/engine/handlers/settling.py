"""acks=-1 with followers: the answer waits until every high watermark is there, or the time is over (REP-12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.waiting import ProduceWait
from brokers.engine.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from brokers.engine.handlers.session import Session

# By internal topic name and partition: the error code that each ended with.
Verdicts = dict[tuple[str, int], int]


def when_settled(
    session: Session, unsettled: list[tuple[Partition, int]], timeout_ms: int, answer: Callable[[Verdicts], None]
) -> None:
    """Calls `answer` once, later; not at all if the session is cancelled. `unsettled`: partition, last offset."""
    loop = session.engine.loop

    def wake() -> None:
        timer.cancel()
        # Not inside the append or the answer that woke us.
        session.cancel = loop.call_soon(settled).cancel

    def settled() -> None:
        session.cancel = None
        last_offsets: dict[tuple[str, int], int] = {}
        for partition, last_offset in unsettled:
            key = partition.topic, partition.index
            last_offsets[key] = max(last_offset, last_offsets.get(key, -1))
        answer(
            {
                (partition.topic, partition.index): verdict(
                    wait, partition, last_offsets[partition.topic, partition.index]
                )
                for partition, _ in unsettled
            }
        )

    wait = ProduceWait(wake)
    for partition, last_offset in unsettled:
        wait.watch(partition, last_offset)
    timer = loop.call_later(max(0, timeout_ms) / 1000, wait.expire)

    def cancel() -> None:
        timer.cancel()
        wait.cancel()

    session.cancel = cancel


def verdict(wait: ProduceWait, partition: Partition, last_offset: int) -> int:
    """How the append up to `last_offset` ended, as an error code."""
    if partition in wait.lost or not partition.is_leader:
        return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.high_watermark <= last_offset:
        return int(ErrorCode.REQUEST_TIMED_OUT)
    return 0 if partition.has_enough_replicas() else int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
