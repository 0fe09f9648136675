"""Heartbeats, and the expiry of sessions without them (GRP-13, GRP-14).

Heartbeat is the most frequent call, so the usual replies are shared objects. A heartbeat only moves the member's
deadline; the timer fires at the earlier one and is then set for the later one.
"""

from __future__ import annotations

from typing import Final

from brokers.engine.coordinators.groups.checking import FATAL_ERRORS, check_generation
from brokers.engine.coordinators.groups.group import Group, GroupState
from brokers.engine.coordinators.groups.member import Member
from brokers.engine.coordinators.groups.rebalancing import remove_member_and_rebalance, try_to_complete_join
from brokers.engine.coordinators.groups.result_builder import ResultBuilder
from brokers.engine.coordinators.result import CoordinatorResult, Now
from brokers.engine.coordinators.settings import GroupSettings
from brokers.engine.protocol.errors import ErrorCode

_UNKNOWN: Final = int(ErrorCode.UNKNOWN_MEMBER_ID)
# Shared by all calls: a result without records and answers is never modified.
_MEMBER_ALIVE: Final = CoordinatorResult(0)
_REJOIN: Final = CoordinatorResult(int(ErrorCode.REBALANCE_IN_PROGRESS))
_UNKNOWN_MEMBER: Final = CoordinatorResult(_UNKNOWN)


def heartbeat(
    group: Group | None, now: Now, generation: int, member_id: str, group_instance_id: str | None
) -> CoordinatorResult:
    """Extends the session of a member; the reply is an error code."""
    if group is None:
        return _UNKNOWN_MEMBER
    member = group.members.get(member_id)
    if member is None or group_instance_id is not None or generation != group.generation:
        code = check_generation(group, generation, member_id, group_instance_id)
        if code:
            return CoordinatorResult(code, is_read=code in FATAL_ERRORS)
        member = group.members[member_id]
    reply = _REJOIN if group.state is GroupState.PREPARING else _MEMBER_ALIVE
    deadline_ms = now.monotonic_ms + member.session_timeout_ms
    if member.timer_fires_ms is None or deadline_ms < member.timer_fires_ms:
        builder = ResultBuilder(now)
        builder.set_session_deadline(group, member, member.session_timeout_ms)
        return builder.result(reply.reply)
    member.deadline_ms = deadline_ms
    return reply


def on_session_deadline(builder: ResultBuilder, settings: GroupSettings, group: Group, member: Member) -> None:
    """Removes a member whose session timer fired, unless a heartbeat has moved its deadline.

    A member that waits for a reply other than its first one stays, too.
    """
    member.timer_fires_ms = None
    if member.deadline_ms > builder.now.monotonic_ms:
        builder.arm_session_timer(group, member)
    elif member.is_new or not member.is_waiting:
        remove_member_and_rebalance(builder, settings, group, member)
        try_to_complete_join(builder, group)
    # Otherwise the member waits for a reply, and its session starts again with that reply.


def on_pending_deadline(builder: ResultBuilder, group: Group, member_id: str) -> None:
    """Forgets an assigned member id that was not used in time."""
    if member_id in group.pending:
        group.pending.discard(member_id)
        try_to_complete_join(builder, group)
