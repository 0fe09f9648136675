"""Requests to a group and the replies to them (GRP-12, GRP-22). Handlers translate both for each version of the
protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from brokers.engine.protocol.errors import ErrorCode

# Member id of a client that has none yet.
NO_MEMBER = ""
# Generation of a reply without one.
NO_GENERATION = -1
# Error codes for clients, by the error code of the failed append of a group's record.
_CLIENT_ERRORS: Final[Mapping[int, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class JoinRequest(NamedTuple):
    """A JoinGroup request.

    `protocols` are `(name, metadata)` in the order of the member's preference. With `needs_member_id` a member without
    an id gets one and must join again (GRP-6). `can_skip_assignment` is True if the version of the request supports
    `skip_assignment`, with which a leader keeps the assignment (GRP-19).
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]
    needs_member_id: bool = False
    can_skip_assignment: bool = False


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinReply(NamedTuple):
    """Reply to JoinGroup; only the leader gets `members`."""

    error: int
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class SyncRequest(NamedTuple):
    """A SyncGroup request; `protocol_type` and `protocol` are None in versions without these fields."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol: str | None
    assignments: Sequence[tuple[str, bytes]]


class SyncReply(NamedTuple):
    error: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Leaver(NamedTuple):
    """A member to be removed; without `member_id` it is the static member with `group_instance_id` (GRP-15)."""

    member_id: str
    group_instance_id: str | None = None


class LeftMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error: int


class LeaveReply(NamedTuple):
    error: int
    members: Sequence[LeftMember] = ()


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribeReply(NamedTuple):
    """Description of a group; `state` is "" with an error. Only a stable group has metadata and assignments."""

    error: int
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[DescribedMember] = ()


class GroupEntry(NamedTuple):
    group_id: str
    protocol_type: str
    state: str


def join_refusal(member_id: str, code: ErrorCode | int) -> JoinReply:
    """Returns the JoinGroup reply with an error code."""
    return JoinReply(int(code), member_id)


def sync_refusal(code: ErrorCode | int) -> SyncReply:
    """Returns the SyncGroup reply with an error code."""
    return SyncReply(int(code))


def client_error(code: int) -> int:
    """Returns the error code for the client whose call failed because the append of its record failed with `code`."""
    return int(_CLIENT_ERRORS.get(code, code))
