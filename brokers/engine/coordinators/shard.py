"""Shard of a coordinator: one led partition of a state topic.

The records of a decision are appended to its log and replayed into its state machine. The call is answered when they
are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import structlog

from brokers.engine.coordinators.interfaces import LogWait, StateLog, StateMachine
from brokers.engine.coordinators.result import NO_PRODUCER, REPLY_PENDING, CoordinatorResult, Now, StateRecord, Ticket
from brokers.engine.coordinators.timers import Timers
from brokers.engine.records.batch import TRANSACTIONAL
from brokers.engine.records.builder import Record, build_batch

log = structlog.get_logger(__name__)

REQUEST_TIMED_OUT: Final = 7
LOAD_IN_PROGRESS: Final = 14
NOT_COORDINATOR: Final = 16
# Deadlines may fire this much late, so that many of them share one turn of the event loop.
ALARM_SLACK_MS: Final = 20
# If many deadlines are due at once (a thousand members lost their network), the event loop does other work after each
# batch of this size.
DEADLINES_PER_TURN_MAX: Final = 50
# Maximum wait of a read, after which the client is asked to retry. Writes wait up to `commit_timeout_ms`.
READ_TIMEOUT_MS: Final = 2_000

M = TypeVar("M", bound=StateMachine)


class CancelHandle(Protocol):
    """Handle of a scheduled call or of background work."""

    def cancel(self) -> None: ...


class ShardHost(Protocol):
    """The part of the runtime that a shard uses."""

    commit_timeout_ms: int

    def now(self) -> Now: ...
    def call_later(self, delay_ms: int, callback: Callable[[], object]) -> CancelHandle: ...
    def perform_effect(self, index: int, effect: object) -> None: ...
    def on_append(self, records: Sequence[StateRecord], batch_bytes: int) -> None: ...
    def reload(self, index: int) -> None: ...


class Shard(Generic[M]):
    """One led partition of a state topic, with its log and its state machine.

    `loading` is True until the whole log was replayed. `last_offset` is the last offset that was replayed.
    """

    def __init__(self, log: StateLog, machine: M, host: ShardHost) -> None:
        self.log = log
        self.machine = machine
        self.loading = True
        self.last_offset = -1
        self._host = host
        self._timers = Timers()
        self._alarm: CancelHandle | None = None
        self._alarm_ms = 0
        self._pending_commits: dict[_PendingCommit, None] = {}
        self._closed = False

    @property
    def index(self) -> int:
        return self.log.index

    def refusal(self) -> int:
        """Returns the error code with which this shard refuses calls, 0 if it serves them."""
        if self._closed or not self.log.is_led:
            return NOT_COORDINATOR
        return LOAD_IN_PROGRESS if self.loading else 0

    def perform(self, operation: Callable[[M, Now, Ticket], CoordinatorResult], ticket: Ticket) -> Any:
        """Returns the reply, or REPLY_PENDING if `ticket` gets it later."""
        return self._apply_decision(operation(self.machine, self._host.now(), ticket), ticket)

    def perform_internal(self, operation: Callable[[M, Now], CoordinatorResult]) -> None:
        """Performs an operation that no client requested; does nothing while this shard refuses calls."""
        if not self.refusal():
            self._apply_decision(operation(self.machine, self._host.now()), None)

    def start_serving(self, last_offset: int) -> None:
        """Starts serving calls, after everything up to `last_offset` was replayed."""
        self.last_offset = max(self.last_offset, last_offset)
        self.loading = False
        self._apply_decision(self.machine.on_loaded(self._host.now()), None)

    def on_marker_appended(self, producer_id: int, committed: bool, offset: int) -> None:
        """Replays the marker of a transaction that ended on this partition. During a load it is read from the log."""
        if not self.loading and not self._closed:
            self.machine.replay_marker(producer_id, committed, offset)
            self.last_offset = max(self.last_offset, offset)

    def close(self) -> None:
        """Stops coordinating and fails all waiting calls with NOT_COORDINATOR."""
        self._closed = True
        if self._alarm is not None:
            self._alarm.cancel()
        for pending in tuple(self._pending_commits):
            pending.fail()
        for ticket, reply in self.machine.unload():
            assert isinstance(ticket, Ticket)
            ticket.deliver(reply)

    # -- decisions -----------------------------------------------------------------------------------------------------

    def _apply_decision(self, result: CoordinatorResult, ticket: Ticket | None) -> Any:
        """Appends the records, sets the timers, and returns the reply, or REPLY_PENDING if the decision must wait."""
        if result.records:
            code = self._append(result, for_client=ticket is not None)
            if code:
                return self._apply_decision(result.on_refused(code), ticket)
        for key, deadline_ms in result.timers:
            if deadline_ms is None:
                self._timers.cancel(key)
            else:
                self._timers.set(key, deadline_ms)
        if result.timers:
            self._set_alarm()
        awaited_offset = self.last_offset if result.records else result.depends_on_offset
        if awaited_offset >= self.log.high_watermark or (result.is_read and not self.log.is_sole_in_sync_replica):
            self._await_commit(result, ticket, awaited_offset)
            return REPLY_PENDING
        self.release_replies_and_effects(result)
        return result.reply

    def _append(self, result: CoordinatorResult, *, for_client: bool) -> int:
        """Appends and replays the records of a decision; returns the error code if the append was refused."""
        now = self._host.now()
        in_transaction = result.producer_id != NO_PRODUCER
        batch = build_batch(
            [Record(now.wall_ms, record.key, record.value) for record in result.records],
            attributes=TRANSACTIONAL if in_transaction else 0,
            producer_id=result.producer_id,
            producer_epoch=result.producer_epoch,
        )
        code, last_offset = self.log.append(batch, now, result.verification_token)
        if code:
            return code
        if for_client or any(record.value is not None for record in result.records):
            # Expiry is charged to no client.
            self._host.on_append(result.records, len(batch))
        offset = last_offset - len(result.records) + 1
        for record in result.records:
            self.machine.replay(record.key, record.value, offset, result.producer_id)
            offset += 1
        self.last_offset = last_offset
        return 0

    def _await_commit(self, result: CoordinatorResult, ticket: Ticket | None, last_offset: int) -> None:
        pending = _PendingCommit(self, result, None if result.reply is REPLY_PENDING else ticket)
        self._pending_commits[pending] = None
        pending.wait(self._host, last_offset)

    def release_replies_and_effects(self, result: CoordinatorResult) -> None:
        """Delivers the deferred replies and performs the effects of a committed decision."""
        for ticket, reply in result.deferred_replies:
            assert isinstance(ticket, Ticket)
            ticket.deliver(reply)
        for effect in result.effects:
            self._host.perform_effect(self.index, effect)

    def remove_pending_commit(self, pending: _PendingCommit) -> bool:
        """Removes a pending commit; returns False if it was removed before."""
        if pending not in self._pending_commits:
            return False
        del self._pending_commits[pending]
        return True

    def request_reload(self) -> None:
        """Requests that the runtime reloads this shard, because a replayed record may be lost."""
        if not self._closed:
            self._host.reload(self.index)

    # -- time ----------------------------------------------------------------------------------------------------------

    def _set_alarm(self) -> None:
        next_ms = self._timers.next_ms
        if next_ms is None or self._closed or (self._alarm is not None and self._alarm_ms <= next_ms):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_ms = next_ms
        delay_ms = max(0, next_ms - self._host.now().monotonic_ms) + ALARM_SLACK_MS
        self._alarm = self._host.call_later(delay_ms, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        if self._closed:
            return
        if self.log.is_led:
            now = self._host.now()
            for key in self._timers.pop_due_keys(now.monotonic_ms, DEADLINES_PER_TURN_MAX):
                self._on_deadline(key, now)
        self._set_alarm()

    def _on_deadline(self, key: Hashable, now: Now) -> None:
        try:
            self._apply_decision(self.machine.on_timer(key, now), None)
        except Exception:  # a bug with one group must not stop the deadlines of the others
            log.exception("deadline_failed", partition=self.index, about=str(key))


class _PendingCommit:
    """A decision that waits for its commit, for a leadership check, or for both."""

    __slots__ = ("_deadline", "_outstanding", "_result", "_shard", "_ticket", "_waits")

    def __init__(self, shard: Shard[Any], result: CoordinatorResult, ticket: Ticket | None) -> None:
        self._shard = shard
        self._result = result
        self._ticket = ticket
        self._waits: list[LogWait] = []
        self._outstanding = 0
        self._deadline: CancelHandle | None = None

    def wait(self, host: ShardHost, last_offset: int) -> None:
        log = self._shard.log
        if last_offset >= log.high_watermark:
            self._waits.append(log.call_when_committed(last_offset, self._on_commit))
        if self._result.is_read and not log.is_sole_in_sync_replica:
            self._waits.append(log.call_when_leadership_confirmed(self._on_confirmation))
        self._outstanding = len(self._waits)
        if self._ticket is not None:
            wait_ms = host.commit_timeout_ms
            if not self._result.records:
                wait_ms = min(wait_ms, READ_TIMEOUT_MS)
            self._deadline = host.call_later(wait_ms, self._on_timeout)

    def _on_timeout(self) -> None:
        """Answers the caller with a time-out. The record stays in the log, and its effects follow the commit."""
        ticket, self._ticket = self._ticket, None
        self._deadline = None
        if ticket is None:
            return
        if not self._result.records:
            # Clients do not expect a time-out for a read and would give up; LOAD_IN_PROGRESS makes them retry.
            ticket.fail(LOAD_IN_PROGRESS)
            return
        error_reply = self._result.make_timeout_reply or ticket.error_reply
        ticket.deliver(error_reply(REQUEST_TIMED_OUT))

    def _on_commit(self, code: int) -> None:
        if code:
            self.fail()
            self._shard.request_reload()
        else:
            self._on_wait_done()

    def _on_confirmation(self, code: int) -> None:
        if code:
            self.fail()
        else:
            self._on_wait_done()

    def _on_wait_done(self) -> None:
        self._outstanding -= 1
        if self._outstanding or not self._cancel_waits():
            return
        self._shard.release_replies_and_effects(self._result)
        if self._ticket is not None:
            self._ticket.deliver(self._result.reply)

    def fail(self) -> None:
        """Fails the caller and the waiting calls with NOT_COORDINATOR. The next coordinator knows the decision if its
        records were committed.
        """
        if not self._cancel_waits():
            return
        if self._ticket is not None:
            self._ticket.fail(NOT_COORDINATOR)
        for ticket, _ in self._result.deferred_replies:
            assert isinstance(ticket, Ticket)
            ticket.fail(NOT_COORDINATOR)

    def _cancel_waits(self) -> bool:
        """Cancels all waits; returns False if this had ended before."""
        if not self._shard.remove_pending_commit(self):
            return False
        for wait in self._waits:
            wait.cancel()
        self._waits = []
        if self._deadline is not None:
            self._deadline.cancel()
        return True
