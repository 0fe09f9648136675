"""Calls of the classic consumer group protocol: join, sync, heartbeat, leave, describe, list, delete; and
FindCoordinator, which returns the broker that coordinates a group or a transactional id.
"""

from __future__ import annotations

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.fields import (
    Names,
    array,
    blob,
    boolean,
    element,
    int8,
    int16,
    int32,
    request,
    response,
    struct,
    text,
)

# Value of authorized operations that were not requested.
OPERATIONS_NOT_ASKED = -(1 << 31)


@struct
class JoinGroupRequestProtocol:
    name: str = text(names=Names.NONE)
    metadata: bytes = blob(names=Names.NONE)


# 1  a separate time-out for rebalances
# 4  a member without an id gets one and must join again (MEMBER_ID_REQUIRED)
# 5  static members
# 6  flexible
# 8  the reason for joining
# 9  the response may make the leader skip the assignment
@request(ApiKey.JOIN_GROUP)
class JoinGroupRequest:
    group_id: str = text(names=Names.GROUP)
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(since=1, default=-1)
    member_id: str = text(names=Names.NONE)
    group_instance_id: str | None = text(since=5, null_since=5, default=None, names=Names.NONE)
    protocol_type: str = text(names=Names.NONE)
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = text(since=8, null_since=8, default=None, names=Names.NONE)


@struct
class JoinGroupResponseMember:
    member_id: str = text(names=Names.NONE)
    group_instance_id: str | None = text(since=5, null_since=5, default=None, names=Names.NONE)
    metadata: bytes = blob(names=Names.NONE)


# 2  throttle time
# 5  static members
# 6  flexible
# 7  protocol type, and a protocol name that may be null
# 9  whether the leader skips the assignment
@response(ApiKey.JOIN_GROUP)
class JoinGroupResponse:
    throttle_time_ms: int = int32(since=2)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = text(since=7, null_since=7, default=None, names=Names.NONE)
    protocol_name: str | None = text(null_since=7, names=Names.NONE)
    leader: str = text(names=Names.NONE)
    skip_assignment: bool = boolean(since=9)
    member_id: str = text(names=Names.NONE)
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


# 3  static members
# 4  flexible
@request(ApiKey.HEARTBEAT)
class HeartbeatRequest:
    group_id: str = text(names=Names.GROUP)
    generation_id: int = int32()
    member_id: str = text(names=Names.NONE)
    group_instance_id: str | None = text(since=3, null_since=3, default=None, names=Names.NONE)


# 1  throttle time
# 4  flexible
@response(ApiKey.HEARTBEAT)
class HeartbeatResponse:
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()


@struct
class MemberIdentity:
    member_id: str = text(since=3, names=Names.NONE)
    group_instance_id: str | None = text(since=3, null_since=3, default=None, names=Names.NONE)
    reason: str | None = text(since=5, null_since=5, default=None, names=Names.NONE)


# 3  several members at once, static ones too
# 4  flexible
# 5  the reason for leaving
@request(ApiKey.LEAVE_GROUP)
class LeaveGroupRequest:
    group_id: str = text(names=Names.GROUP)
    member_id: str = text(until=2, names=Names.NONE)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


@struct
class MemberResponse:
    member_id: str = text(since=3, names=Names.NONE)
    group_instance_id: str | None = text(since=3, null_since=3, names=Names.NONE)
    error_code: int = int16(since=3)


# 1  throttle time
# 3  a result per member
# 4  flexible
@response(ApiKey.LEAVE_GROUP)
class LeaveGroupResponse:
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)


@struct
class SyncGroupRequestAssignment:
    member_id: str = text(names=Names.NONE)
    assignment: bytes = blob(names=Names.NONE)


# 3  static members
# 4  flexible
# 5  protocol type and name, to be compared with the group's
@request(ApiKey.SYNC_GROUP)
class SyncGroupRequest:
    group_id: str = text(names=Names.GROUP)
    generation_id: int = int32()
    member_id: str = text(names=Names.NONE)
    group_instance_id: str | None = text(since=3, null_since=3, default=None, names=Names.NONE)
    protocol_type: str | None = text(since=5, null_since=5, default=None, names=Names.NONE)
    protocol_name: str | None = text(since=5, null_since=5, default=None, names=Names.NONE)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


# 1  throttle time
# 4  flexible
# 5  protocol type and name
@response(ApiKey.SYNC_GROUP)
class SyncGroupResponse:
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    protocol_type: str | None = text(since=5, null_since=5, default=None, names=Names.NONE)
    protocol_name: str | None = text(since=5, null_since=5, default=None, names=Names.NONE)
    assignment: bytes = blob(names=Names.NONE)


# 3  flag to include authorized operations
# 5  flexible
@request(ApiKey.DESCRIBE_GROUPS)
class DescribeGroupsRequest:
    groups: list[str] = array(element("text", Names.GROUP))
    include_authorized_operations: bool = boolean(since=3)


@struct
class DescribedGroupMember:
    member_id: str = text(names=Names.NONE)
    group_instance_id: str | None = text(since=4, null_since=4, default=None, names=Names.NONE)
    client_id: str = text(names=Names.NONE)
    client_host: str = text(names=Names.NONE)
    member_metadata: bytes = blob(names=Names.NONE)
    member_assignment: bytes = blob(names=Names.NONE)


@struct
class DescribedGroup:
    error_code: int = int16()
    group_id: str = text(names=Names.GROUP)
    group_state: str = text(names=Names.NONE)
    protocol_type: str = text(names=Names.NONE)
    protocol_data: str = text(names=Names.NONE)
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=OPERATIONS_NOT_ASKED)


# 1  throttle time
# 3  authorized operations
# 4  static members
# 5  flexible
@response(ApiKey.DESCRIBE_GROUPS)
class DescribeGroupsResponse:
    throttle_time_ms: int = int32(since=1)
    groups: list[DescribedGroup] = array(DescribedGroup)


# 3  flexible
# 4  only groups in these states
# 5  only groups of these types
@request(ApiKey.LIST_GROUPS)
class ListGroupsRequest:
    states_filter: list[str] = array(element("text", Names.NONE), since=4)
    types_filter: list[str] = array(element("text", Names.NONE), since=5)


@struct
class ListedGroup:
    group_id: str = text(names=Names.GROUP)
    protocol_type: str = text(names=Names.NONE)
    group_state: str = text(since=4, names=Names.NONE)
    group_type: str = text(since=5, names=Names.NONE)


# 1  throttle time
# 3  flexible
# 4  the group's state
# 5  the group's type
@response(ApiKey.LIST_GROUPS)
class ListGroupsResponse:
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


# 2  flexible
@request(ApiKey.DELETE_GROUPS)
class DeleteGroupsRequest:
    groups_names: list[str] = array(element("text", Names.GROUP))


@struct
class DeletableGroupResult:
    group_id: str = text(names=Names.GROUP)
    error_code: int = int16()


# 2  flexible
@response(ApiKey.DELETE_GROUPS)
class DeleteGroupsResponse:
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)


# 1  kind of key: 0 group, 1 transactional id
# 3  flexible
# 4  several keys at once
# 5  clients know the error TRANSACTION_ABORTABLE
# 6  kind of key 2: share group
@request(ApiKey.FIND_COORDINATOR)
class FindCoordinatorRequest:
    key: str = text(until=3, names=Names.COORDINATOR_KEY)
    key_type: int = int8(since=1)
    coordinator_keys: list[str] = array(element("text", Names.COORDINATOR_KEY), since=4)


@struct
class Coordinator:
    key: str = text(since=4, names=Names.COORDINATOR_KEY)
    node_id: int = int32(since=4, names=Names.NODE)
    host: str = text(since=4, names=Names.HOST)
    port: int = int32(since=4, names=Names.PORT)
    error_code: int = int16(since=4)
    error_message: str | None = text(since=4, null_since=4, names=Names.FREE_TEXT)


# 1  throttle time, error message
# 3  flexible
# 4  one coordinator per key
@response(ApiKey.FIND_COORDINATOR)
class FindCoordinatorResponse:
    throttle_time_ms: int = int32(since=1)
    error_code: int = int16(until=3)
    error_message: str | None = text(since=1, until=3, null_since=1, null_until=3, names=Names.FREE_TEXT)
    node_id: int = int32(until=3, names=Names.NODE)
    host: str = text(until=3, names=Names.HOST)
    port: int = int32(until=3, names=Names.PORT)
    coordinators: list[Coordinator] = array(Coordinator, since=4)
