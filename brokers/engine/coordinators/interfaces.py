"""Interfaces of the coordinators: the log that they write to, and the state machine that decides.

`assembly.state_log` implements the log with partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from brokers.engine.coordinators.result import CoordinatorResult, Now


class StoredBatch(NamedTuple):
    """A batch of a state topic's log as it is read at load.

    `records` are `(offset, key, value)`. A control batch has no records, and `committed` is the outcome of its
    transaction.
    """

    base_offset: int
    last_offset: int
    records: Sequence[tuple[int, bytes, bytes | None]]
    producer_id: int = -1
    is_transactional: bool = False
    committed: bool | None = None


class LogWait(Protocol):
    """A wait for the high watermark or for a leadership check, which can be cancelled."""

    def cancel(self) -> None: ...


class StateLog(Protocol):
    """A partition of a state topic that this broker leads, or led."""

    @property
    def index(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def is_led(self) -> bool:
        """True while this broker leads the partition in `leader_epoch`."""

    @property
    def high_watermark(self) -> int: ...

    def append(self, batch: bytearray, now: Now, verification_token: int) -> tuple[int, int]:
        """Appends a batch and returns `(error code, last offset)`. With an error code the log is unchanged."""

    def call_when_committed(self, last_offset: int, on_complete: Callable[[int], None]) -> LogWait:
        """Calls `on_complete` once: with 0 when `last_offset` is committed, or with an error code when the leadership
        is lost. It is never called during `append`.
        """

    @property
    def is_sole_in_sync_replica(self) -> bool:
        """True if no other broker can have become the leader."""

    def call_when_leadership_confirmed(self, on_complete: Callable[[int], None]) -> LogWait:
        """Calls `on_complete` once: with 0 when it is confirmed that this broker was the leader at the time of this
        call, or with an error code when the leadership is lost. It is never called before this method returns.
        """

    async def read(self, offset: int) -> tuple[Sequence[StoredBatch], int]:
        """Returns the next batches from `offset` on and the offset to continue at; no batches at the end of the log.

        Raises LogUnreadable.
        """

    @property
    def start_offset(self) -> int: ...


class LogUnreadable(Exception):
    """The log of a state partition cannot be read: the disk failed, or the leadership is lost."""


class StateMachine(Protocol):
    """State machine of one shard; `coordinators.result` has the rules that it follows."""

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        """Applies a record. With a `producer_id` other than -1 it takes effect when that transaction commits."""

    def replay_marker(self, producer_id: int, committed: bool, offset: int) -> None:
        """Ends the transaction of a producer on this partition: its pending records take effect or are dropped."""

    def on_loaded(self, now: Now) -> CoordinatorResult:
        """Returns the first decision after the load: timers to set and effects to repeat."""

    def on_timer(self, key: Hashable, now: Now) -> CoordinatorResult:
        """Returns the decision when the deadline of the timer `key` has passed."""

    def unload(self) -> list[tuple[object, Any]]:
        """Returns `(ticket, reply)` for every waiting call, because this broker stops coordinating."""
