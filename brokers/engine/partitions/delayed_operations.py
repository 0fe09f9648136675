"""Requests that wait for a partition: a Fetch for bytes, an acks=-1 Produce for the high watermark (REP-14, WIRE-27).

Each wait ends exactly once: by the partitions, or by `expire()`, which the caller's deadline calls. Ending calls
`wake`, a plain callable; nothing here knows a clock or a loop. One append may end thousands of waits of an instance, so
`wake` only notes that there is something to do, and a read stays registered until its owner calls `leave`. The owner
mostly holds its wait, so an ended one drops `wake`: no cycle is left for the garbage collector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol


class ReplicatedWaits(Protocol):
    """What a leader of a partition with followers keeps of those who wait; `leadership.Leadership` fits."""

    def await_commit(self, wait: DelayedReplication, last_offset: int) -> None:
        """Has `wait.on_progress` called once the high watermark passed `last_offset`."""


class Measured(Protocol):
    """A log, as those see it who wait for so many bytes of it."""

    def bytes_between(self, start_offset: int, end_offset: int) -> int:
        """About as many bytes as lie between the two."""


class WatchedPartition(Protocol):
    """A partition as whoever waits for it sees it; `partition.Partition` fits."""

    waits: set[DelayedOperation]
    high_watermark: int

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def low_watermark(self) -> int: ...

    @property
    def log(self) -> Measured: ...

    @property
    def leadership(self) -> ReplicatedWaits | None: ...


def _nobody() -> None:
    """Whom an ended wait wakes."""


class DelayedOperation:
    """Registered at some partitions until it ends. `done` turns true before `wake` is called."""

    __slots__ = ("_partitions", "done", "expired", "wake")

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        self.done = False
        self.expired = False
        self._partitions: list[WatchedPartition] = []

    def expire(self) -> None:
        """The deadline passed: ends the wait (does nothing if it has ended)."""
        if not self.done:
            self.expired = True
            self.end()

    def cancel(self) -> None:
        """The connection went away: ends the wait without waking."""
        self.done = True
        self.wake = _nobody
        self._leave()

    def end(self) -> None:
        """Ends the wait and wakes its owner, once."""
        if not self.done:
            self.done = True
            self._leave()
            wake, self.wake = self.wake, _nobody
            wake()

    def _register(self, partition: WatchedPartition) -> None:
        self._partitions.append(partition)
        partition.waits.add(self)

    def _leave(self) -> None:
        for partition in self._partitions:
            partition.waits.discard(self)
        self._partitions.clear()

    def on_append(self, readable_bytes: int) -> None:
        """A partition's readable end moved by `readable_bytes`."""

    def on_progress(self, partition: WatchedPartition) -> None:
        """A partition's high watermark or ISR moved."""

    def on_start(self, partition: WatchedPartition) -> None:
        """A partition's log starts later than before, because somebody deleted records."""

    def on_lost(self, partition: WatchedPartition) -> None:
        """A partition is no longer led here (resigned, deleted, disk failed): answer at once."""
        self.end()


class DelayedRead(DelayedOperation):
    """Waits until `missing_bytes` more bytes are readable over all watched partitions together. It may watch very many:
    an ended one is registered until `leave`, which its owner calls when its turn comes.
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
            wake, self.wake = self.wake, _nobody
            wake()

    def leave(self) -> None:
        """Unregisters it everywhere."""
        self._leave()

    def on_append(self, readable_bytes: int) -> None:
        self.missing_bytes -= readable_bytes
        if self.missing_bytes <= 0:
            self.end()


class _Span:
    """The size of one stretch of a log, remembered: thousands of readers of a partition ask for the same one."""

    __slots__ = ("_begin", "_bytes", "_end", "_log")

    def __init__(self) -> None:
        self._log: Measured | None = None
        self._begin = self._end = self._bytes = 0

    def bytes_between(self, log: Measured, begin: int, end: int) -> int:
        if log is not self._log or begin != self._begin or end != self._end:
            self._bytes = log.bytes_between(begin, end)
            self._log, self._begin, self._end = log, begin, end
        return self._bytes


# What became stable, and what is behind an open transaction.
_stable: Final = _Span()
_undecided: Final = _Span()


class DelayedCommittedRead(DelayedRead):
    """As `DelayedRead`, of somebody who reads only what is decided: bytes count when the last stable offset passes them
    (TXN-23), which it does only when the high watermark moves.
    """

    __slots__ = ("_blocked", "_fresh_bytes")

    def __init__(self, wake: Callable[[], object], missing_bytes: int) -> None:
        super().__init__(wake, missing_bytes)
        # Where readers stood, by partition, while an open transaction keeps them back.
        self._blocked: dict[WatchedPartition, int] = {}
        self._fresh_bytes = 0

    def watch(self, partition: WatchedPartition) -> None:
        super().watch(partition)
        stable_offset = partition.last_stable_offset
        if stable_offset < partition.high_watermark:
            self._blocked[partition] = stable_offset

    def on_append(self, readable_bytes: int) -> None:
        """`on_progress` of the same partition follows, and judges them."""
        self._fresh_bytes = readable_bytes

    def on_progress(self, partition: WatchedPartition) -> None:
        if self.done:
            return
        grown_bytes, self._fresh_bytes = self._fresh_bytes, 0
        stable_offset, high_watermark = partition.last_stable_offset, partition.high_watermark
        before = self._blocked.pop(partition, -1) if self._blocked else -1
        if before >= 0:
            grown_bytes = _stable.bytes_between(partition.log, before, stable_offset) if stable_offset > before else 0
        elif stable_offset < high_watermark:
            grown_bytes -= _undecided.bytes_between(partition.log, stable_offset, high_watermark)
        if stable_offset < high_watermark:
            self._blocked[partition] = stable_offset
        if grown_bytes > 0:
            super().on_append(grown_bytes)


class DelayedReplication(DelayedOperation):
    """Waits until every watched partition's high watermark reached its offset; `on_lost` ends only when all are
    settled. `lost` are those that were no longer led meanwhile: what was appended there may be gone, even where this
    broker leads again by the end.
    """

    __slots__ = ("_needed", "lost")

    def __init__(self, wake: Callable[[], object]) -> None:
        super().__init__(wake)
        self._needed: dict[WatchedPartition, int] = {}
        self.lost: set[WatchedPartition] = set()

    def watch(self, partition: WatchedPartition, last_offset: int) -> None:
        """Not reached yet: `partition.high_watermark <= last_offset`."""
        self._needed[partition] = max(last_offset, self._needed.get(partition, -1))
        leadership = partition.leadership
        if leadership is None:
            self._register(partition)
        else:
            leadership.await_commit(self, last_offset)

    @property
    def pending(self) -> bool:
        return bool(self._needed)

    def on_progress(self, partition: WatchedPartition) -> None:
        needed = self._needed.get(partition)
        if needed is not None and partition.high_watermark > needed:
            self._complete(partition)

    def on_lost(self, partition: WatchedPartition) -> None:
        self.lost.add(partition)
        self._complete(partition)

    def _complete(self, partition: WatchedPartition) -> None:
        self._needed.pop(partition, None)
        partition.waits.discard(self)
        if not self._needed:
            self.end()


class DelayedDeletion(DelayedOperation):
    """Waits until every replica in sync has deleted what lies below `offset` of the one partition (LOG-46)."""

    __slots__ = ("offset",)

    def __init__(self, wake: Callable[[], object], offset: int) -> None:
        super().__init__(wake)
        self.offset = offset

    def watch(self, partition: WatchedPartition) -> None:
        """Ends at once when there is nobody to wait for."""
        self._register(partition)
        self.on_progress(partition)

    def on_progress(self, partition: WatchedPartition) -> None:
        if partition.low_watermark >= self.offset:
            self.end()


class LeadershipCheck(DelayedOperation):
    """One question whether a partition is still led here (`confirming`). `is_confirmed` says how it ended."""

    __slots__ = ("is_confirmed", "number")

    def __init__(self, wake: Callable[[], object], number: int) -> None:
        super().__init__(wake)
        self.number = number
        self.is_confirmed = False

    def watch(self, partition: WatchedPartition) -> None:
        """A leadership that ends is the end of it."""
        self._register(partition)

    def confirm(self) -> None:
        self.is_confirmed = True
        self.end()
