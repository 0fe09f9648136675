"""Whether somebody is who it says it is, and up to date (GRP-12, GRP-13, GRP-18, GRP-21)."""

from __future__ import annotations

from typing import Final

from brokers.engine.coordinators.groups.group import Group, State
from brokers.engine.coordinators.groups.replies import NO_MEMBER
from brokers.engine.protocol.errors import ErrorCode

_NONE: Final = int(ErrorCode.NONE)
_UNKNOWN: Final = int(ErrorCode.UNKNOWN_MEMBER_ID)
_FENCED: Final = int(ErrorCode.FENCED_INSTANCE_ID)
_STALE: Final = int(ErrorCode.ILLEGAL_GENERATION)
# For these a client gives up for good. Who was deposed may not know of the members there are by now, so they leave when
# it is known that nobody else coordinated when they were decided (decision 76).
FOR_GOOD: Final = frozenset(
    {_FENCED, int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL), int(ErrorCode.GROUP_MAX_SIZE_REACHED)}
)


def check_member(group: Group, member_id: str, group_instance_id: str | None) -> int:
    """0, or why this is no member: the instance has another id by now (82), or nobody is known by that name (25)."""
    if group_instance_id is not None:
        current = group.statics.get(group_instance_id)
        if current is None:
            return _UNKNOWN
        if current != member_id:
            return _FENCED
    return _NONE if member_id in group.members else _UNKNOWN


def check_generation(group: Group, generation: int, member_id: str, group_instance_id: str | None) -> int:
    code = check_member(group, member_id, group_instance_id)
    if not code and generation != group.generation:
        return _STALE
    return code


def check_commit(
    group: Group, generation: int, member_id: str, group_instance_id: str | None, *, transactional: bool
) -> int:
    """Offsets are committed by members; by anybody if there are none, or in a transaction of an old client that says
    neither who it is (GRP-21, TXN-9).
    """
    if generation < 0 and group.state is State.EMPTY:
        return _NONE
    if generation >= 0 or member_id != NO_MEMBER or group_instance_id is not None:
        code = check_generation(group, generation, member_id, group_instance_id)
    else:
        code = _NONE if transactional or group.state is State.EMPTY else _UNKNOWN
    if not code and not transactional and group.state is State.COMPLETING:
        return int(ErrorCode.REBALANCE_IN_PROGRESS)
    return code
