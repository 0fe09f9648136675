"""A decision while it is being made: who is answered, which deadlines move, and whether a group came to be empty."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from brokers.engine.coordinators.groups.formats import GroupRecord, group_key, group_value
from brokers.engine.coordinators.groups.group import Group
from brokers.engine.coordinators.groups.member import Member
from brokers.engine.coordinators.result import NO_RECORD, REPLY_PENDING, CoordinatorResult, Now, StateRecord

# What a deadline is about; the group's id comes second in the key.
SESSION: Final = "session"
PENDING: Final = "pending"
JOIN: Final = "join"
SYNC: Final = "sync"


class ResultBuilder:
    """`ticket` is the call that is being decided, None for a deadline. Make one outcome of it, or one in its stead if
    the append of that is refused: members and timers know by then what was drafted.
    """

    __slots__ = ("_answers", "_emptied", "_timers", "now", "ticket")

    def __init__(self, now: Now, ticket: object | None = None) -> None:
        self.now = now
        self.ticket = ticket
        self._answers: list[tuple[object, Any]] = []
        self._timers: list[tuple[Hashable, int | None]] = []
        self._emptied: tuple[Group, GroupRecord] | None = None

    def answer(self, ticket: object | None, reply: Any) -> None:
        if ticket is not None:
            self._answers.append((ticket, reply))

    def arm(self, about: str, group: Group, delay_ms: int) -> None:
        self._timers.append(((about, group.id), self.now.monotonic_ms + max(0, delay_ms)))

    def disarm(self, about: str, group: Group) -> None:
        self._timers.append(((about, group.id), None))

    def await_pending(self, group: Group, member_id: str, timeout_ms: int) -> None:
        """An id was given out; whoever has it joins within its session (GRP-6)."""
        self._timers.append(((PENDING, group.id, member_id), self.now.monotonic_ms + timeout_ms))

    def forget_pending(self, group: Group, member_id: str) -> None:
        self._timers.append(((PENDING, group.id, member_id), None))

    def expect(self, group: Group, member: Member, timeout_ms: int) -> None:
        """The member is to be heard from within this time. The timer moves only when it would ring too late."""
        deadline_ms = member.deadline_ms = self.now.monotonic_ms + timeout_ms
        if member.armed_ms is None or deadline_ms < member.armed_ms:
            self.rearm(group, member)

    def rearm(self, group: Group, member: Member) -> None:
        member.armed_ms = member.deadline_ms
        self._timers.append(((SESSION, group.id, member.member_id), member.deadline_ms))

    def forget(self, group: Group, member_id: str) -> None:
        """Nothing is expected of this id any more."""
        self._timers.append(((SESSION, group.id, member_id), None))

    def empty(self, group: Group, record: GroupRecord) -> None:
        """The group has no members left, which is to be written down (GRP-11)."""
        assert self._emptied is None, "a decision is about one group, which empties once"
        self._emptied = (group, record)

    def answers(self) -> list[tuple[object, Any]]:
        return self._answers

    def timers(self) -> list[tuple[Hashable, int | None]]:
        return self._timers

    # -- the outcome ---------------------------------------------------------------------------------------------------

    def result(self, reply: Any = None, *, reads: int = NO_RECORD, is_read: bool = False) -> CoordinatorResult:
        """`reply` PARKED: the call waits, unless it is among those that are answered."""
        reply = self._own(reply)
        if self._emptied is None:
            return CoordinatorResult(reply, answers=self._answers, timers=self._timers, reads=reads, is_read=is_read)
        group, record = self._emptied

        def unrecorded(code: int) -> CoordinatorResult:
            # Without members it does not matter what the log says: if it should be loaded, nobody keeps it alive.
            group.restore(record)
            return CoordinatorResult(reply, answers=self._answers, timers=self._timers)

        return CoordinatorResult(
            reply,
            [StateRecord(group_key(group.id), group_value(record))],
            answers=self._answers,
            timers=self._timers,
            refused=unrecorded,
            # What was asked for is decided; that nobody is left need not be known everywhere before.
            late=lambda code: reply,
        )

    def _own(self, reply: Any) -> Any:
        if reply is not REPLY_PENDING:
            return reply
        for at, (ticket, answer) in enumerate(self._answers):
            if ticket is self.ticket:
                del self._answers[at]
                return answer
        return REPLY_PENDING
