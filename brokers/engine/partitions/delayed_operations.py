"""Delayed operations of partitions: a Fetch waits for bytes, an acks=-1 Produce for the high watermark (REP-14,
WIRE-27).

Each operation ends exactly once: by its partitions, or by `expire()` at the caller's deadline. It then calls `wake`, a
plain callable; this module uses neither a clock nor an event loop. One append may end thousands of operations of an
instance, so `wake` only schedules work, and a read stays registered until its owner calls `leave`. The owner usually
references its operation, so an ended operation drops `wake` and leaves no cycle to the garbage collector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol


class CommitNotifier(Protocol):
    """Part of a leadership that delayed replications use; implemented by `leadership.Leadership`."""

    def await_commit(self, produce: DelayedReplication, last_offset: int) -> None:
        """Calls `produce.on_progress` once the high watermark has passed `last_offset`."""


class MeasurableLog(Protocol):
    """Part of a log that measures byte ranges for delayed reads."""

    def bytes_between(self, start_offset: int, end_offset: int) -> int:
        """Approximate number of bytes between two offsets."""


class WatchedPartition(Protocol):
    """Part of a partition that delayed operations use; implemented by `partition.Partition`."""

    delayed_operations: set[DelayedOperation]
    high_watermark: int

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def low_watermark(self) -> int: ...

    @property
    def log(self) -> MeasurableLog: ...

    @property
    def leadership(self) -> CommitNotifier | None: ...


def _do_nothing() -> None:
    """Replaces `wake` of an ended operation."""


class DelayedOperation:
    """An operation registered at partitions until it ends; `done` is true before `wake` is called."""

    __slots__ = ("_partitions", "done", "expired", "wake")

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        self.done = False
        self.expired = False
        self._partitions: list[WatchedPartition] = []

    def expire(self) -> None:
        """Ends the operation at its deadline; does nothing if it has ended."""
        if not self.done:
            self.expired = True
            self.end()

    def cancel(self) -> None:
        """Ends the operation without calling `wake`, when the connection is closed."""
        self.done = True
        self.wake = _do_nothing
        self._unregister()

    def end(self) -> None:
        """Ends the operation and calls `wake`, once."""
        if not self.done:
            self.done = True
            self._unregister()
            wake, self.wake = self.wake, _do_nothing
            wake()

    def _register(self, partition: WatchedPartition) -> None:
        self._partitions.append(partition)
        partition.delayed_operations.add(self)

    def _unregister(self) -> None:
        for partition in self._partitions:
            partition.delayed_operations.discard(self)
        self._partitions.clear()

    def on_append(self, readable_bytes: int) -> None:
        """Called when the readable end of a partition has advanced by `readable_bytes`."""

    def on_progress(self, partition: WatchedPartition) -> None:
        """Called when the high watermark or the ISR of a partition has changed."""

    def on_log_start_advanced(self, partition: WatchedPartition) -> None:
        """Called when the log start offset of a partition has advanced because records were deleted."""

    def on_leadership_lost(self, partition: WatchedPartition) -> None:
        """Called when a partition is no longer led here (resigned, deleted, disk failed); ends the operation."""
        self.end()


class DelayedRead(DelayedOperation):
    """A read that waits until `missing_bytes` more bytes are readable in all watched partitions together.

    It may watch thousands of partitions, so an ended read stays registered until its owner calls `leave`.
    """

    __slots__ = ("missing_bytes",)

    def __init__(self, wake: Callable[[], object], missing_bytes: int) -> None:
        super().__init__(wake)
        self.missing_bytes = missing_bytes

    def watch(self, partition: WatchedPartition) -> None:
        self._register(partition)

    def end(self) -> None:
        if not self.done:
            self.done = True
            wake, self.wake = self.wake, _do_nothing
            wake()

    def leave(self) -> None:
        """Unregisters the read from all partitions."""
        self._unregister()

    def on_append(self, readable_bytes: int) -> None:
        self.missing_bytes -= readable_bytes
        if self.missing_bytes <= 0:
            self.end()


class _RangeSize:
    """Cached size in bytes of the last measured range of a log, because thousands of readers of a partition request the
    same range.
    """

    __slots__ = ("_begin", "_bytes", "_end", "_log")

    def __init__(self) -> None:
        self._log: MeasurableLog | None = None
        self._begin = self._end = self._bytes = 0

    def bytes_between(self, log: MeasurableLog, begin: int, end: int) -> int:
        if log is not self._log or begin != self._begin or end != self._end:
            self._bytes = log.bytes_between(begin, end)
            self._log, self._begin, self._end = log, begin, end
        return self._bytes


# Range that became stable, and range behind an open transaction.
_stable_range_size: Final = _RangeSize()
_undecided_range_size: Final = _RangeSize()


class DelayedCommittedRead(DelayedRead):
    """A delayed read with isolation level read_committed.

    Bytes count when the last stable offset passes them (TXN-23), which it does only when the high watermark advances.
    """

    __slots__ = ("_appended_bytes", "_stable_offset_by_partition")

    def __init__(self, wake: Callable[[], object], missing_bytes: int) -> None:
        super().__init__(wake, missing_bytes)
        # Last stable offset of each partition at which an open transaction holds readers back.
        self._stable_offset_by_partition: dict[WatchedPartition, int] = {}
        self._appended_bytes = 0

    def watch(self, partition: WatchedPartition) -> None:
        super().watch(partition)
        stable_offset = partition.last_stable_offset
        if stable_offset < partition.high_watermark:
            self._stable_offset_by_partition[partition] = stable_offset

    def on_append(self, readable_bytes: int) -> None:
        """Records the bytes; the following call of `on_progress` for the same partition evaluates them."""
        self._appended_bytes = readable_bytes

    def on_progress(self, partition: WatchedPartition) -> None:
        if self.done:
            return
        grown_bytes, self._appended_bytes = self._appended_bytes, 0
        stable_offset, high_watermark = partition.last_stable_offset, partition.high_watermark
        previous_offset = (
            self._stable_offset_by_partition.pop(partition, -1) if self._stable_offset_by_partition else -1
        )
        if previous_offset >= 0:
            grown_bytes = (
                _stable_range_size.bytes_between(partition.log, previous_offset, stable_offset)
                if stable_offset > previous_offset
                else 0
            )
        elif stable_offset < high_watermark:
            grown_bytes -= _undecided_range_size.bytes_between(partition.log, stable_offset, high_watermark)
        if stable_offset < high_watermark:
            self._stable_offset_by_partition[partition] = stable_offset
        if grown_bytes > 0:
            super().on_append(grown_bytes)


class DelayedReplication(DelayedOperation):
    """An acks=-1 produce that waits until the high watermark of every watched partition has passed its offset.

    A lost partition ends it only when no other is pending. `lost` are the partitions that were not led here for a time:
    records appended there may be gone, even if this broker leads them again at the end.
    """

    __slots__ = ("_offset_by_partition", "lost")

    def __init__(self, wake: Callable[[], object]) -> None:
        super().__init__(wake)
        self._offset_by_partition: dict[WatchedPartition, int] = {}
        self.lost: set[WatchedPartition] = set()

    def watch(self, partition: WatchedPartition, last_offset: int) -> None:
        """Watches a partition whose high watermark is still at or below `last_offset`."""
        self._offset_by_partition[partition] = max(last_offset, self._offset_by_partition.get(partition, -1))
        leadership = partition.leadership
        if leadership is None:
            self._register(partition)
        else:
            leadership.await_commit(self, last_offset)

    @property
    def pending(self) -> bool:
        return bool(self._offset_by_partition)

    def on_progress(self, partition: WatchedPartition) -> None:
        awaited_offset = self._offset_by_partition.get(partition)
        if awaited_offset is not None and partition.high_watermark > awaited_offset:
            self._complete(partition)

    def on_leadership_lost(self, partition: WatchedPartition) -> None:
        self.lost.add(partition)
        self._complete(partition)

    def _complete(self, partition: WatchedPartition) -> None:
        self._offset_by_partition.pop(partition, None)
        partition.delayed_operations.discard(self)
        if not self._offset_by_partition:
            self.end()


class DelayedDeletion(DelayedOperation):
    """A record deletion that waits until every in-sync replica has advanced its log start to `offset` (LOG-46)."""

    __slots__ = ("offset",)

    def __init__(self, wake: Callable[[], object], offset: int) -> None:
        super().__init__(wake)
        self.offset = offset

    def watch(self, partition: WatchedPartition) -> None:
        """Watches the partition; ends at once if no replica is missing."""
        self._register(partition)
        self.on_progress(partition)

    def on_progress(self, partition: WatchedPartition) -> None:
        if partition.low_watermark >= self.offset:
            self.end()


class LeadershipCheck(DelayedOperation):
    """Check that a partition is still led here (`leadership_check`); `is_confirmed` is its result."""

    __slots__ = ("is_confirmed", "number")

    def __init__(self, wake: Callable[[], object], number: int) -> None:
        super().__init__(wake)
        self.number = number
        self.is_confirmed = False

    def watch(self, partition: WatchedPartition) -> None:
        """Watches the partition; the end of its leadership ends the check."""
        self._register(partition)

    def confirm(self) -> None:
        self.is_confirmed = True
        self.end()
