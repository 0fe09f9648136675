"""Builder of a decision about a group: collects answers, deadlines, and the record of a group that became empty."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from brokers.engine.coordinators.groups.formats import GroupRecord, group_key, group_value
from brokers.engine.coordinators.groups.group import Group
from brokers.engine.coordinators.groups.member import Member
from brokers.engine.coordinators.result import NO_RECORD, REPLY_PENDING, CoordinatorResult, Now, StateRecord

# Kinds of deadlines, the first part of a timer's key; the second is the group id.
SESSION: Final = "session"
PENDING: Final = "pending"
JOIN: Final = "join"
SYNC: Final = "sync"


class ResultBuilder:
    """Builder of one decision about a group.

    `ticket` is the call that is being decided, None for a deadline. Call `result` once, or again if the append of the
    first result was refused: the members have changed already, so the answers and timers stay valid.
    """

    __slots__ = ("_answers", "_emptied", "_timers", "now", "ticket")

    def __init__(self, now: Now, ticket: object | None = None) -> None:
        self.now = now
        self.ticket = ticket
        self._answers: list[tuple[object, Any]] = []
        self._timers: list[tuple[Hashable, int | None]] = []
        self._emptied: tuple[Group, GroupRecord] | None = None

    def answer(self, ticket: object | None, reply: Any) -> None:
        """Adds the reply to a waiting call; does nothing for None."""
        if ticket is not None:
            self._answers.append((ticket, reply))

    def arm(self, about: str, group: Group, delay_ms: int) -> None:
        """Sets the group's timer of the kind `about`, JOIN or SYNC."""
        self._timers.append(((about, group.id), self.now.monotonic_ms + max(0, delay_ms)))

    def disarm(self, about: str, group: Group) -> None:
        self._timers.append(((about, group.id), None))

    def await_pending(self, group: Group, member_id: str, timeout_ms: int) -> None:
        """Sets the time in which a client must join with the member id that it was assigned (GRP-6)."""
        self._timers.append(((PENDING, group.id, member_id), self.now.monotonic_ms + timeout_ms))

    def forget_pending(self, group: Group, member_id: str) -> None:
        """Cancels the timer of a member id that was assigned and not used yet."""
        self._timers.append(((PENDING, group.id, member_id), None))

    def expect(self, group: Group, member: Member, timeout_ms: int) -> None:
        """Sets the member's session deadline. The timer is moved only if it would fire too late."""
        deadline_ms = member.deadline_ms = self.now.monotonic_ms + timeout_ms
        if member.armed_ms is None or deadline_ms < member.armed_ms:
            self.rearm(group, member)

    def rearm(self, group: Group, member: Member) -> None:
        """Sets the session timer to the member's deadline."""
        member.armed_ms = member.deadline_ms
        self._timers.append(((SESSION, group.id, member.member_id), member.deadline_ms))

    def forget(self, group: Group, member_id: str) -> None:
        """Cancels the session timer of a member id."""
        self._timers.append(((SESSION, group.id, member_id), None))

    def empty(self, group: Group, record: GroupRecord) -> None:
        """Adds the record of a group that has no members left (GRP-11)."""
        assert self._emptied is None, "a decision is about one group, which empties once"
        self._emptied = (group, record)

    def answers(self) -> list[tuple[object, Any]]:
        return self._answers

    def timers(self) -> list[tuple[Hashable, int | None]]:
        return self._timers

    # -- result --------------------------------------------------------------------------------------------------------

    def result(self, reply: Any = None, *, reads: int = NO_RECORD, is_read: bool = False) -> CoordinatorResult:
        """Makes the decision. With `reply` REPLY_PENDING the call waits, unless an answer for it was collected."""
        reply = self._own_answer(reply)
        if self._emptied is None:
            return CoordinatorResult(reply, answers=self._answers, timers=self._timers, reads=reads, is_read=is_read)
        group, record = self._emptied

        def unrecorded(code: int) -> CoordinatorResult:
            # A missing record does no harm: if an older one is loaded, its members' sessions expire.
            group.restore(record)
            return CoordinatorResult(reply, answers=self._answers, timers=self._timers)

        return CoordinatorResult(
            reply,
            [StateRecord(group_key(group.id), group_value(record))],
            answers=self._answers,
            timers=self._timers,
            refused=unrecorded,
            # The reply does not depend on the record of the empty group being committed.
            late=lambda code: reply,
        )

    def _own_answer(self, reply: Any) -> Any:
        if reply is not REPLY_PENDING:
            return reply
        for at, (ticket, answer) in enumerate(self._answers):
            if ticket is self.ticket:
                del self._answers[at]
                return answer
        return REPLY_PENDING
