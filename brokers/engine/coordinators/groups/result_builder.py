"""Builder of a decision about a group: collects answers, deadlines, and the record of a group that became empty."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final

from brokers.engine.coordinators.groups.formats import GroupRecord, encode_group_key, encode_group_value
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

    __slots__ = ("_deferred_replies", "_empty_group_record", "_timers", "now", "ticket")

    def __init__(self, now: Now, ticket: object | None = None) -> None:
        self.now = now
        self.ticket = ticket
        self._deferred_replies: list[tuple[object, Any]] = []
        self._timers: list[tuple[Hashable, int | None]] = []
        self._empty_group_record: tuple[Group, GroupRecord] | None = None

    def add_reply(self, ticket: object | None, reply: Any) -> None:
        """Adds the reply to a waiting call; does nothing for None."""
        if ticket is not None:
            self._deferred_replies.append((ticket, reply))

    def arm_group_timer(self, kind: str, group: Group, delay_ms: int) -> None:
        """Sets the group's timer of the kind `kind`, JOIN or SYNC."""
        self._timers.append(((kind, group.id), self.now.monotonic_ms + max(0, delay_ms)))

    def cancel_group_timer(self, kind: str, group: Group) -> None:
        """Cancels the group's timer of the kind `kind`, JOIN or SYNC."""
        self._timers.append(((kind, group.id), None))

    def arm_pending_timer(self, group: Group, member_id: str, timeout_ms: int) -> None:
        """Sets the time in which a client must join with the member id that it was assigned (GRP-6)."""
        self._timers.append(((PENDING, group.id, member_id), self.now.monotonic_ms + timeout_ms))

    def cancel_pending_timer(self, group: Group, member_id: str) -> None:
        """Cancels the timer of a member id that was assigned and not used yet."""
        self._timers.append(((PENDING, group.id, member_id), None))

    def set_session_deadline(self, group: Group, member: Member, timeout_ms: int) -> None:
        """Sets the member's session deadline. The timer is moved only if it would fire too late."""
        deadline_ms = member.deadline_ms = self.now.monotonic_ms + timeout_ms
        if member.timer_fires_ms is None or deadline_ms < member.timer_fires_ms:
            self.arm_session_timer(group, member)

    def arm_session_timer(self, group: Group, member: Member) -> None:
        """Sets the session timer to the member's deadline."""
        member.timer_fires_ms = member.deadline_ms
        self._timers.append(((SESSION, group.id, member.member_id), member.deadline_ms))

    def cancel_session_timer(self, group: Group, member_id: str) -> None:
        """Cancels the session timer of a member id."""
        self._timers.append(((SESSION, group.id, member_id), None))

    def add_empty_group_record(self, group: Group, record: GroupRecord) -> None:
        """Adds the record of a group that has no members left (GRP-11)."""
        assert self._empty_group_record is None, "a decision is about one group, which empties once"
        self._empty_group_record = (group, record)

    def deferred_replies(self) -> list[tuple[object, Any]]:
        return self._deferred_replies

    def timers(self) -> list[tuple[Hashable, int | None]]:
        return self._timers

    # -- result --------------------------------------------------------------------------------------------------------

    def result(
        self, reply: Any = None, *, depends_on_offset: int = NO_RECORD, is_read: bool = False
    ) -> CoordinatorResult:
        """Makes the decision. With `reply` REPLY_PENDING the call waits, unless an answer for it was collected."""
        reply = self._pop_own_reply(reply)
        if self._empty_group_record is None:
            return CoordinatorResult(
                reply,
                deferred_replies=self._deferred_replies,
                timers=self._timers,
                depends_on_offset=depends_on_offset,
                is_read=is_read,
            )
        group, record = self._empty_group_record

        def on_refused(code: int) -> CoordinatorResult:
            # A missing record does no harm: if an older one is loaded, its members' sessions expire.
            group.restore(record)
            return CoordinatorResult(reply, deferred_replies=self._deferred_replies, timers=self._timers)

        return CoordinatorResult(
            reply,
            [StateRecord(encode_group_key(group.id), encode_group_value(record))],
            deferred_replies=self._deferred_replies,
            timers=self._timers,
            on_refused=on_refused,
            # The reply does not depend on the record of the empty group being committed.
            make_timeout_reply=lambda code: reply,
        )

    def _pop_own_reply(self, reply: Any) -> Any:
        if reply is not REPLY_PENDING:
            return reply
        for index, (ticket, answer) in enumerate(self._deferred_replies):
            if ticket is self.ticket:
                del self._deferred_replies[index]
                return answer
        return REPLY_PENDING
