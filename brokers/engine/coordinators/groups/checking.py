"""Checks of the member id, instance id and generation that a call names (GRP-12, GRP-13, GRP-18, GRP-21)."""

from __future__ import annotations

from typing import Final

from brokers.engine.coordinators.groups.group import Group, GroupState
from brokers.engine.coordinators.groups.replies import NO_MEMBER
from brokers.engine.protocol.errors import ErrorCode

_NONE: Final = int(ErrorCode.NONE)
_UNKNOWN: Final = int(ErrorCode.UNKNOWN_MEMBER_ID)
_FENCED: Final = int(ErrorCode.FENCED_INSTANCE_ID)
_ILLEGAL_GENERATION: Final = int(ErrorCode.ILLEGAL_GENERATION)
# Errors that make a client give up. A deposed coordinator may not know the current members, so replies with these are
# released only after a check that this broker was still the coordinator (decision 76).
FATAL_ERRORS: Final = frozenset(
    {_FENCED, int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL), int(ErrorCode.GROUP_MAX_SIZE_REACHED)}
)


def check_member(group: Group, member_id: str, group_instance_id: str | None) -> int:
    """Returns 0 for a member, FENCED_INSTANCE_ID if another member id has taken over the group instance id, or
    UNKNOWN_MEMBER_ID.
    """
    if group_instance_id is not None:
        current = group.static_members.get(group_instance_id)
        if current is None:
            return _UNKNOWN
        if current != member_id:
            return _FENCED
    return _NONE if member_id in group.members else _UNKNOWN


def check_generation(group: Group, generation: int, member_id: str, group_instance_id: str | None) -> int:
    """Returns 0 for a member of the current generation, ILLEGAL_GENERATION, or the error code of `check_member`."""
    code = check_member(group, member_id, group_instance_id)
    if not code and generation != group.generation:
        return _ILLEGAL_GENERATION
    return code


def check_commit(
    group: Group, generation: int, member_id: str, group_instance_id: str | None, *, transactional: bool
) -> int:
    """Returns 0 if the caller may commit offsets, else an error code (GRP-21, TXN-9).

    Members of the current generation may commit, and any client while the group has no members. In a transaction, an
    old client that names neither a generation nor a member may commit as well.
    """
    if generation < 0 and group.state is GroupState.EMPTY:
        return _NONE
    if generation >= 0 or member_id != NO_MEMBER or group_instance_id is not None:
        code = check_generation(group, generation, member_id, group_instance_id)
    else:
        code = _NONE if transactional or group.state is GroupState.EMPTY else _UNKNOWN
    if not code and not transactional and group.state is GroupState.COMPLETING:
        return int(ErrorCode.REBALANCE_IN_PROGRESS)
    return code
