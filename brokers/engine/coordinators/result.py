"""What a coordinator's decision is made of: records to append, and what leaves when they are committed.

A machine (the state of one led partition of a state topic) changes what is in records only in `replay`, live right
after the append and again at load, so that both come to the same. What is not in records (who joins, who waits, timers)
its methods change directly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final, NamedTuple


class Now(NamedTuple):
    """`wall_ms` goes into records, `monotonic_ms` is for deadlines."""

    wall_ms: int
    monotonic_ms: int


class StateRecord(NamedTuple):
    """`value` None deletes."""

    key: bytes
    value: bytes | None


class _ReplyPending:
    def __repr__(self) -> str:
        return "PARKED"


# The reply to a call that is answered later, by its ticket.
REPLY_PENDING: Final = _ReplyPending()
NO_PRODUCER: Final = -1
# The reply tells of nothing that is in records.
NO_RECORD: Final = -1
# Nobody has verified the transaction, and nobody has to.
NO_VERIFICATION_TOKEN: Final = -1


def _not_expected(code: int) -> CoordinatorResult:
    raise AssertionError(f"an append was refused with {code}, and nobody said what happens then")


class CoordinatorResult:
    """One decision. Without records everything leaves at once.

    `records` are appended as one batch, with acks=-1; with `producer_id` it is part of that producer's transaction, of
    which `verification_token` says that it was verified (TXN-27).
    `answers` are `(ticket, reply)` of delayed calls, `timers` are `(key, monotonic deadline in ms, None to cancel)`,
    `effects` are for the runtime's `carry_out`. `refused(code)` is decided instead when the append is refused: nothing
    was replayed then. `late(code)` makes the reply when the commit takes too long; the records stay in the log and
    count. `reads` is the offset of the last record that the reply tells of: it leaves when that one is committed. With
    `is_read` the reply tells what is in records, and leaves when it is known as well that nobody else coordinated when
    it was made (decision 76).
    """

    __slots__ = (
        "answers",
        "effects",
        "is_read",
        "late",
        "producer_epoch",
        "producer_id",
        "reads",
        "records",
        "refused",
        "reply",
        "timers",
        "verification_token",
    )

    def __init__(
        self,
        reply: Any = None,
        records: list[StateRecord] | None = None,
        *,
        answers: list[tuple[object, Any]] | None = None,
        timers: list[tuple[Hashable, int | None]] | None = None,
        effects: list[object] | None = None,
        refused: Callable[[int], CoordinatorResult] | None = None,
        late: Callable[[int], Any] | None = None,
        reads: int = NO_RECORD,
        is_read: bool = False,
        producer_id: int = NO_PRODUCER,
        producer_epoch: int = -1,
        verification_token: int = NO_VERIFICATION_TOKEN,
    ) -> None:
        self.reply = reply
        self.records = records or []
        self.answers = answers or []
        self.timers = timers or []
        self.effects = effects or []
        self.refused = refused or _not_expected
        self.late = late
        self.reads = reads
        self.is_read = is_read
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.verification_token = verification_token

    def __repr__(self) -> str:
        return f"Outcome({self.reply!r}, records={len(self.records)}, answers={self.answers!r})"
