"""Decisions of a coordinator (the records to append, the replies and the effects) and tickets of calls that wait.

A state machine has the state of one led partition of a state topic. State that is in records changes only in
`replay`, which runs right after the append and again at load, so both give the same state. State that is not in records
(pending joins, waiting calls, timers) is changed directly by the machine's methods.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple


class Now(NamedTuple):
    """The current time in milliseconds: `wall_ms` goes into records, `monotonic_ms` into deadlines."""

    wall_ms: int
    monotonic_ms: int


class StateRecord(NamedTuple):
    """A record of a state topic; a `value` of None deletes its key."""

    key: bytes
    value: bytes | None


class _ReplyPending:
    def __repr__(self) -> str:
        return "REPLY_PENDING"


# The reply to a call whose ticket is answered later.
REPLY_PENDING: Final = _ReplyPending()
NO_PRODUCER: Final = -1
# `depends_on_offset` of a reply that depends on no record.
NO_RECORD: Final = -1
# The append needs no verification of its transaction.
NO_VERIFICATION_TOKEN: Final = -1


def _raise_unexpected_refusal(code: int) -> CoordinatorResult:
    raise AssertionError(f"an append was refused with {code}, which the decision does not handle")


class CoordinatorResult:
    """One decision of a machine. Its replies and effects are released when its records are committed, or at once if
    it has none.

    Attributes:
        records: appended as one batch with acks=-1.
        producer_id: the batch is part of this producer's transaction.
        verification_token: proof that the transaction was verified (TXN-27).
        deferred_replies: `(ticket, reply)` of calls that were waiting.
        timers: `(key, deadline in monotonic ms)`; a deadline of None cancels the timer.
        effects: work outside the machine, such as sending markers; passed to the runtime's `perform_effect`.
        on_refused: `on_refused(code)` makes the decision that replaces this one when the append is refused and nothing
            was replayed.
        make_timeout_reply: `make_timeout_reply(code)` makes the reply when the commit takes too long; the records stay
            in the log and take effect.
        depends_on_offset: offset of the last record that the reply depends on; the reply is released when that one is
            committed.
        is_read: the reply reports recorded state, so it is released only after a check that this broker was still
            the coordinator when it was made (decision 76).
    """

    __slots__ = (
        "deferred_replies",
        "depends_on_offset",
        "effects",
        "is_read",
        "make_timeout_reply",
        "on_refused",
        "producer_epoch",
        "producer_id",
        "records",
        "reply",
        "timers",
        "verification_token",
    )

    def __init__(
        self,
        reply: Any = None,
        records: list[StateRecord] | None = None,
        *,
        deferred_replies: list[tuple[object, Any]] | None = None,
        timers: list[tuple[Hashable, int | None]] | None = None,
        effects: list[object] | None = None,
        on_refused: Callable[[int], CoordinatorResult] | None = None,
        make_timeout_reply: Callable[[int], Any] | None = None,
        depends_on_offset: int = NO_RECORD,
        is_read: bool = False,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = -1,
        verification_token: int = NO_VERIFICATION_TOKEN,
    ) -> None:
        self.reply = reply
        self.records = records or []
        self.deferred_replies = deferred_replies or []
        self.timers = timers or []
        self.effects = effects or []
        self.on_refused = on_refused or _raise_unexpected_refusal
        self.make_timeout_reply = make_timeout_reply
        self.depends_on_offset = depends_on_offset
        self.is_read = is_read
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.verification_token = verification_token

    def __repr__(self) -> str:
        records, deferred = len(self.records), self.deferred_replies
        return f"CoordinatorResult({self.reply!r}, records={records}, deferred_replies={deferred!r})"


class Ticket:
    """Handle of one pending call of a client, which is answered at most once.

    `error_reply(code)` makes the reply of this call for an error code. `on_reply` gets a reply that comes after
    `Runtime.perform` has returned.
    """

    __slots__ = ("_error_reply", "done", "on_reply")

    def __init__(self, error_reply: Callable[[int], Any], on_reply: Callable[[Any], object]) -> None:
        self._error_reply = error_reply
        self.on_reply = on_reply
        self.done = False

    def error_reply(self, code: int) -> Any:
        """Returns the reply of this call for an error code."""
        return self._error_reply(code)

    def deliver(self, reply: Any) -> None:
        """Passes the reply to `on_reply`; does nothing if the call was answered or abandoned before."""
        if not self.done:
            self.done = True
            self.on_reply(reply)

    def fail(self, code: int) -> None:
        """Answers the call with an error code, unless it was answered or abandoned before."""
        if not self.done:
            self.deliver(self._error_reply(code))

    def abandon(self) -> None:
        """Drops the reply because the client has disconnected. The decision itself stands."""
        self.done = True
