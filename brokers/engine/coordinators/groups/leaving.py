"""LeaveGroup, for one or several members; an administrator may remove static members (GRP-15, GRP-20)."""

from __future__ import annotations

from collections.abc import Sequence

from brokers.engine.coordinators.groups.checking import check_member
from brokers.engine.coordinators.groups.group import Group
from brokers.engine.coordinators.groups.rebalancing import remove_and_rebalance, try_to_complete
from brokers.engine.coordinators.groups.replies import NO_MEMBER, Leaver, LeaveReply, LeftMember
from brokers.engine.coordinators.groups.result_builder import ResultBuilder
from brokers.engine.coordinators.result import CoordinatorResult
from brokers.engine.coordinators.settings import GroupSettings
from brokers.engine.protocol.errors import ErrorCode


def leave(
    settings: GroupSettings, builder: ResultBuilder, group: Group | None, leavers: Sequence[Leaver]
) -> CoordinatorResult:
    """Removes members. The reply is a `LeaveReply` with an error code for each of `leavers`."""
    if group is None:
        unknown = int(ErrorCode.UNKNOWN_MEMBER_ID)
        return builder.result(LeaveReply(0, [LeftMember(*leaver, unknown) for leaver in leavers]))
    left = [LeftMember(*leaver, _leave(settings, builder, group, leaver)) for leaver in leavers]
    try_to_complete(builder, group)
    return builder.result(LeaveReply(0, left))


def _leave(settings: GroupSettings, builder: ResultBuilder, group: Group, leaver: Leaver) -> int:
    member_id, group_instance_id = leaver
    if member_id == NO_MEMBER:
        # An administrator removes the static member with this group instance id.
        current = None if group_instance_id is None else group.static_members.get(group_instance_id)
        if current is None:
            return int(ErrorCode.UNKNOWN_MEMBER_ID)
        member_id = current
    elif member_id in group.pending:
        group.pending.discard(member_id)
        builder.cancel_pending_timer(group, member_id)
        return 0
    else:
        code = check_member(group, member_id, group_instance_id)
        if code:
            return code
    remove_and_rebalance(builder, settings, group, group.members[member_id])
    return 0
