"""Fakes: a minimal state machine, a log in memory whose high watermark the test moves, and a loop whose time the test
moves.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Sequence
from typing import Any

from brokers.engine.coordinators.interfaces import LogUnreadable, StoredBatch
from brokers.engine.coordinators.result import (
    NO_PRODUCER,
    NO_RECORD,
    REPLY_PENDING,
    CoordinatorResult,
    Now,
    StateRecord,
    Ticket,
)
from brokers.engine.records.builder import read_records

FAILED_APPEND = 19


class Call:
    """A ticket's replies in order of arrival; error codes come as `("failed", code)`."""

    def __init__(self) -> None:
        self.replies: list[Any] = []
        self.ticket = Ticket(lambda code: ("failed", code), self.replies.append)


class FakeCommit:
    def __init__(self, last_offset: int, completed: Callable[[int], None]) -> None:
        self.last_offset = last_offset
        self.completed = completed
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLog:
    """A log in memory. `replicate` moves the high watermark; with `at_once`, every append does."""

    def __init__(self, index: int = 0, leader_epoch: int = 0, *, at_once: bool = False) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.is_led = True
        self.start_offset = 0
        self.high_watermark = 0
        self.refuses = 0
        self.unreadable = False
        self.batches: list[StoredBatch] = []
        self.is_sole_in_sync_replica = True
        self._at_once = at_once
        self._waiting: list[FakeCommit] = []
        self._asking: list[FakeCommit] = []

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def append(self, batch: bytearray, now: Now, verification_token: int) -> tuple[int, int]:
        if self.refuses:
            return self.refuses, -1
        records = [record for _, record in read_records(bytes(batch))]
        producer_id = int.from_bytes(batch[43:51], "big", signed=True)
        base = self.end_offset
        stored = [(base + i, record.key or b"", record.value) for i, record in enumerate(records)]
        self.batches.append(StoredBatch(base, base + len(records) - 1, stored, producer_id, producer_id != NO_PRODUCER))
        if self._at_once:
            self.high_watermark = self.end_offset
        return 0, self.end_offset - 1

    def mark(self, producer_id: int, committed: bool) -> int:
        offset = self.end_offset
        self.batches.append(StoredBatch(offset, offset, [], producer_id, True, committed))
        return offset

    def call_when_committed(self, last_offset: int, completed: Callable[[int], None]) -> FakeCommit:
        commit = FakeCommit(last_offset, completed)
        self._waiting.append(commit)
        return commit

    def call_when_leadership_confirmed(self, completed: Callable[[int], None]) -> FakeCommit:
        question = FakeCommit(-1, completed)
        self._asking.append(question)
        return question

    @property
    def asking(self) -> list[FakeCommit]:
        """Return the pending leadership checks, in order."""
        return list(self._asking)

    def confirm(self, code: int = 0) -> None:
        asking, self._asking = self._asking, []
        for question in asking:
            if not question.cancelled:
                question.completed(code)

    def commits(self, at_once: bool) -> None:
        """Set whether later appends are committed at once."""
        self._at_once = at_once

    def stops_committing(self) -> None:
        """Leave later appends uncommitted until `replicate` is called."""
        self.commits(False)

    def replicate(self) -> None:
        self.high_watermark = self.end_offset
        self._complete(0)

    def lose(self) -> None:
        self.is_led = False
        self._complete(6)

    def _complete(self, code: int) -> None:
        waiting, self._waiting = self._waiting, []
        for commit in waiting:
            if not commit.cancelled:
                commit.completed(code)

    async def read(self, offset: int) -> tuple[Sequence[StoredBatch], int]:
        if self.unreadable or not self.is_led:
            raise LogUnreadable("it is broken")
        result = [batch for batch in self.batches if batch.last_offset >= offset][:2]
        return result, result[-1].last_offset + 1 if result else offset


class _Alarm:
    def __init__(self, at_ms: int, callback: Callable[[], object]) -> None:
        self.at_ms = at_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class FakeLoop:
    """An event loop that runs spawned work when `turn` is called."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._alarms: list[_Alarm] = []
        self._work: list[Coroutine[Any, Any, None]] = []

    def now(self) -> Now:
        return Now(1_000_000 + self.now_ms, self.now_ms)

    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> _Alarm:
        alarm = _Alarm(self.now_ms + delay_ms, callback)
        self._alarms.append(alarm)
        return alarm

    def spawn(self, work: Coroutine[Any, Any, None]) -> _Alarm:
        self._work.append(work)
        return _Alarm(0, work.close)

    def turn(self) -> None:
        work, self._work = self._work, []
        for coroutine in work:
            try:
                coroutine.send(None)
            except StopIteration:
                continue
            raise AssertionError("work that fakes serve never waits")

    def advance(self, by_ms: int) -> None:
        until_ms = self.now_ms + by_ms
        while True:
            due = min(
                (alarm for alarm in self._alarms if not alarm.cancelled and alarm.at_ms <= until_ms),
                key=lambda alarm: alarm.at_ms,
                default=None,
            )
            if due is None:
                break
            self._alarms.remove(due)
            self.now_ms = max(self.now_ms, due.at_ms)
            due.callback()
        self.now_ms = until_ms


class Counter:
    """A minimal state machine: the last value of each key, and pending values by producer."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes | None] = {}
        self.pending: dict[int, dict[bytes, bytes | None]] = {}
        self.offsets: list[int] = []
        self.rang: list[Hashable] = []
        self.unanswered: list[Ticket] = []

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int) -> None:
        self.offsets.append(offset)
        into = self.values if producer_id == NO_PRODUCER else self.pending.setdefault(producer_id, {})
        into[key] = value

    def replay_marker(self, producer_id: int, committed: bool, offset: int) -> None:
        gone = self.pending.pop(producer_id, {})
        if committed:
            self.values.update(gone)

    def on_loaded(self, now: Now) -> CoordinatorResult:
        return CoordinatorResult(timers=[("loaded", now.monotonic_ms + 100)])

    def on_timer(self, key: Hashable, now: Now) -> CoordinatorResult:
        self.rang.append(key)
        if key == "mistake":
            raise ValueError("our own")
        return CoordinatorResult()

    def arm(self, *keys: str) -> CoordinatorResult:
        return CoordinatorResult("armed", timers=[(key, 10) for key in keys])

    def unload(self) -> list[tuple[object, Any]]:
        return [(ticket, "unloaded") for ticket in self.unanswered]

    # decisions

    def put(self, key: bytes, value: bytes, **more: Any) -> CoordinatorResult:
        deferred_replies: list[tuple[object, Any]] = [(ticket, "woken") for ticket in self.unanswered]
        self.unanswered = []
        return CoordinatorResult(
            "put",
            [StateRecord(key, value)],
            deferred_replies=deferred_replies,
            effects=[("effect", value)],
            on_refused=lambda code: CoordinatorResult(("refused", code)),
            **more,
        )

    def get(self, key: bytes) -> CoordinatorResult:
        return CoordinatorResult(
            self.values.get(key), depends_on_offset=self.offsets[-1] if self.offsets else NO_RECORD, is_read=True
        )

    def leave_unanswered(self, ticket: Ticket) -> CoordinatorResult:
        self.unanswered.append(ticket)
        return CoordinatorResult(REPLY_PENDING)
