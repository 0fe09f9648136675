"""What coordinators need of the world. The assembly plugs in partitions and the loop, a test its own."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from brokers.engine.coordinators.result import CoordinatorResult, Now


class Stored(NamedTuple):
    """A batch of a state topic's log as it is read at load. A control batch has no records and says how it ended."""

    base_offset: int
    last_offset: int
    records: Sequence[tuple[int, bytes, bytes | None]]
    producer_id: int = -1
    is_transactional: bool = False
    committed: bool | None = None


class Commit(Protocol):
    """Somebody waits for a high watermark."""

    def cancel(self) -> None: ...


class StateLog(Protocol):
    """A partition of a state topic that this broker leads, or led."""

    @property
    def index(self) -> int: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def is_led(self) -> bool:
        """Whether this broker still leads in the epoch this was opened for."""

    @property
    def high_watermark(self) -> int: ...

    def append(self, batch: bytearray, now: Now, verification_token: int) -> tuple[int, int]:
        """`(error code, last offset)`. An append whose error code is not 0 has changed nothing."""

    def when_committed(self, last_offset: int, on_complete: Callable[[int], None]) -> Commit:
        """Calls `on_complete` once with 0, or with the error code of a lost leadership; never from inside of
        `append`.
        """

    @property
    def leads_alone(self) -> bool:
        """Nobody else can have begun to lead."""

    def when_confirmed(self, on_complete: Callable[[int], None]) -> Commit:
        """Calls `on_complete` once: with 0 when it is known that nobody else led when this was called, or with the
        error code of a lost leadership; never from inside of this.
        """

    async def read(self, offset: int) -> tuple[Sequence[Stored], int]:
        """The next batches from `offset` on and where to go on; no batch means the end of the log.

        Raises LogUnreadable.
        """

    @property
    def start_offset(self) -> int: ...


class LogUnreadable(Exception):
    """The state cannot be read: the disk failed, or the leadership is gone."""


class Machine(Protocol):
    """The state of one shard. See `result` for the rules."""

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        """`producer_id` is not -1 in a transaction: it counts when that producer's marker says so."""

    def replay_marker(self, producer_id: int, committed: bool, offset: int) -> None: ...

    def loaded(self, now: Now) -> CoordinatorResult:
        """All there is was replayed: begin to serve."""

    def on_timer(self, key: Hashable, now: Now) -> CoordinatorResult: ...

    def unload(self) -> list[tuple[object, Any]]:
        """`(ticket, reply)` of everybody who waits here: somebody else coordinates from here on."""
