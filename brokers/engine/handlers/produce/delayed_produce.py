"""Delayed response of an acks=-1 Produce: waits for each high watermark, or for the timeout (REP-12)."""

from __future__ import annotations

from collections.abc import Callable

from brokers.engine.handlers.context import DeferredResponse
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.delayed_operations import DelayedReplication
from brokers.engine.partitions.partition import Partition
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.scheduling.fair_turns import QueuedWork
from brokers.engine.throttling.waits import Mute

# Error codes of the partitions that failed, by internal topic name and partition index.
PartitionErrors = dict[tuple[str, int], int]


class DelayedProduce:
    """Wait of one Produce for the replication of its records. A completed wait leaves no reference cycle.

    The connection's next requests are processed during the wait, and answered after this one (decision 56). If the wait
    `holds_connection`, they are processed after the response.
    """

    __slots__ = (
        "_deferred_response", "_delay_ms", "_frame_of", "_mute", "_operation", "_pending", "_session", "_tick", "_turn",
    )  # fmt: skip

    def __init__(
        self,
        session: Session,
        pending: list[tuple[Partition, int]],
        timeout_ms: int,
        frame_of: Callable[[PartitionErrors], bytes],
        delay_ms: int,
        mute: Mute | None,
        *,
        holds_connection: bool,
    ) -> None:
        """Starts the wait for `pending`, pairs of a partition and the last offset appended to it. `frame_of` encodes
        the response, which is sent `delay_ms` after the wait, or not at all if the connection closes first. Only a wait
        that holds its connection may have a delay.
        """
        self._session = session
        self._pending = pending
        self._frame_of = frame_of
        self._delay_ms = delay_ms
        self._mute = mute
        self._deferred_response: DeferredResponse | None = None
        self._turn: QueuedWork | None = None
        if holds_connection:
            session.cancel = self._cancel
        else:
            self._deferred_response = session.channel.defer(self._cancel)
        self._operation = operation = DelayedReplication(self._wake)
        self._tick = session.services.deadlines.add(operation, max(0, timeout_ms))
        for partition, last_offset in pending:
            operation.watch(partition, last_offset)

    def _wake(self) -> None:
        """Schedules the response when all appends are committed or lost, or the time is over. This runs inside the
        append or the fetch that ended the wait, perhaps with thousands of others: an instance that has used its share
        of the event loop responds in its turn.
        """
        session = self._session
        session.services.deadlines.drop(self._operation, self._tick)
        turns = session.channel.turns
        if self._deferred_response is None:
            self._turn = turns.schedule(session.services.loop.call_soon, self._respond)
        else:
            self._turn = turns.run_or_enqueue(self._complete)

    def _respond(self) -> None:
        self._turn = self._session.cancel = None
        try:
            self._session.channel.respond(self._frame_of(self._partition_errors()), self._delay_ms, self._mute)
        except Exception as error:  # one tenant's request must not stop the broker of all tenants
            self._session.channel.fail(error)

    def _complete(self) -> None:
        """Completes the response of a connection that was not held."""
        assert self._deferred_response is not None, "the wait holds the connection"
        try:
            self._deferred_response.complete(self._frame_of(self._partition_errors()))
        except Exception as error:  # see `_respond`
            self._session.channel.fail(error)

    def _partition_errors(self) -> PartitionErrors:
        """Returns the error codes. Of two batches of a partition the later one decides."""
        partition_errors: PartitionErrors = {}
        for partition, last_offset in self._pending:
            code = error_of(self._operation, partition, last_offset)
            if code:
                partition_errors[partition.topic, partition.index] = code
        return partition_errors

    def _cancel(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.cancel()
        self._session.services.deadlines.drop(self._operation, self._tick)
        self._operation.cancel()


def error_of(operation: DelayedReplication, partition: Partition, last_offset: int) -> int:
    """Returns the error code of the append up to `last_offset`, 0 if it is committed."""
    if partition in operation.lost or not partition.is_leader:
        return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.high_watermark <= last_offset:
        return int(ErrorCode.REQUEST_TIMED_OUT)
    return 0 if partition.has_enough_replicas() else int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
