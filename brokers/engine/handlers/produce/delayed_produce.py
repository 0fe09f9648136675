"""Produces that are appended and wait for followers, while the next ones of their connection are processed (decision
56): what `completing` does, without keeping anybody waiting but the answer.
"""

from __future__ import annotations

from collections.abc import Callable

from brokers.engine.handlers.produce.delayed_produce_legacy import PartitionErrors, error_of
from brokers.engine.handlers.session import Session
from brokers.engine.partitions.delayed_operations import DelayedReplication
from brokers.engine.partitions.partition import Partition


class Owing:
    """One such produce. `frame_of` makes the answer once it is known how each partition ended."""

    __slots__ = ("_deadlines", "_frame_of", "_operation", "_pending", "_pending_response", "_tick")

    def __init__(
        self,
        session: Session,
        pending: list[tuple[Partition, int]],
        timeout_ms: int,
        frame_of: Callable[[PartitionErrors], bytes],
    ) -> None:
        """`pending`: partition, last offset."""
        self._frame_of = frame_of
        self._pending = pending
        self._pending_response = session.channel.defer(self._on_closed)
        self._operation = operation = DelayedReplication(self._on_completed)
        self._deadlines = session.engine.deadlines
        self._tick = self._deadlines.add(operation, max(0, timeout_ms))
        for partition, last_offset in pending:
            operation.watch(partition, last_offset)

    def _on_completed(self) -> None:
        """All are, or the time is over. The answer leaves later: this runs inside of what settled it."""
        operation = self._operation
        self._deadlines.drop(operation, self._tick)
        partition_errors: PartitionErrors = {}
        for partition, last_offset in self._pending:
            code = error_of(operation, partition, last_offset)
            if code:
                partition_errors[partition.topic, partition.index] = code
        self._pending_response.complete(self._frame_of(partition_errors))

    def _on_closed(self) -> None:
        self._deadlines.drop(self._operation, self._tick)
        self._operation.cancel()
