"""What is asked of a group, and what it answers. Handlers know how that looks in each version of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from brokers.engine.protocol.errors import ErrorCode

# "No id yet", and "the first generation is still to come".
NO_MEMBER = ""
NO_GENERATION = -1


class JoinRequest(NamedTuple):
    """`protocols` are names and what the member says about itself for each, the ones it likes best first.

    `needs_id`: a member without an id is sent away with one (GRP-6). `may_skip`: its version knows the answer that lets
    a leader leave the assignment as it is (GRP-19).
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
    needs_id: bool = False
    may_skip: bool = False


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinReply(NamedTuple):
    """`members` is for the leader alone."""

    error: int
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[JoinedMember] = ()


class SyncRequest(NamedTuple):
    """`protocol_type` and `protocol` are None where the version does not say them."""

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
    """Without `member_id` whoever is in `group_instance_id`'s place is meant (GRP-15)."""

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
    """`state` is empty with an error. Metadata and assignments are told of a stable group alone."""

    error: int
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[DescribedMember] = ()


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str


def join_refused(member_id: str, code: ErrorCode | int) -> JoinReply:
    return JoinReply(int(code), member_id)


def sync_refused(code: ErrorCode | int) -> SyncReply:
    return SyncReply(int(code))
