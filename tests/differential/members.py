"""Members of consumer groups for the scripts: each a client with a connection of its own.

A label of None asks without writing the answer down.
"""

from __future__ import annotations

import time
from struct import pack
from typing import Any

from brokers.engine.protocol.apis import ApiKey
from brokers.engine.protocol.messages.groups import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from brokers.engine.protocol.messages.producers import DescribeTransactionsRequest
from brokers.engine.protocol.messages.transactions import InitProducerIdRequest
from tests.differential.names import Names
from tests.differential.play import LEADER_S, Asked, Player

MEMBER_ID_REQUIRED = 79
# Loading, not available, not the coordinator.
COORDINATOR_ERRORS = {14, 15, 16}
NAMES_FOR_ALL_PARTITIONS = 400
GROUP, TRANSACTION = 0, 1
# Long enough that nobody's session ends while a script goes on.
SESSION_MS = 30_000
REBALANCE_MS = 60_000


def begin_script(player: Player, prefix: str) -> None:
    """Answers are written with names for ids; returns when both kinds of coordinator answer."""
    player.normalise = Names(prefix, player.address.prefix)
    for kind in (GROUP, TRANSACTION):
        find_coordinator(player, f"{prefix}.first", kind)
    player.until(lambda: _is_loaded(player), "both state topics are loaded")
    player.until_ready(ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None))


def _is_loaded(player: Player) -> bool:
    """Names enough for every partition of the state topics to have one."""
    names = [f"loaded {number}" for number in range(NAMES_FOR_ALL_PARTITIONS)]
    groups = player.call(ApiKey.DESCRIBE_GROUPS, 0, DescribeGroupsRequest(groups=names)).groups
    wanted = DescribeTransactionsRequest(transactional_ids=names)
    transactions = player.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, wanted).transaction_states
    return not COORDINATOR_ERRORS & {result.error_code for result in (*groups, *transactions)}


def find_coordinator(player: Player, key: str, kind: int) -> None:
    """Waits until there is one (the first to ask has the topic made)."""
    deadline = time.monotonic() + LEADER_S
    while True:
        result = player.call(ApiKey.FIND_COORDINATOR, 1, FindCoordinatorRequest(key=key, key_type=kind))
        if result.error_code == 0:
            return
        assert time.monotonic() < deadline, f"no coordinator: {result}"


def subscription(*topics: str, version: int = 0, data: bytes | None = None) -> bytes:
    """Returns a consumer's subscription with the data of its assignor."""
    names = [topic.encode() for topic in topics]
    body = pack(">hi", version, len(names)) + b"".join(pack(">h", len(name)) + name for name in names)
    return body + (pack(">i", -1) if data is None else pack(">i", len(data)) + data)


def says(text: str) -> bytes:
    """Returns the metadata of a member, which differs for each."""
    return subscription("diff.read", data=text.encode())


class Member:
    """A member with the id and generation of its last answers. `version` is JoinGroup's; the other APIs use the version
    that belongs to it.
    """

    def __init__(self, player: Player, group: str, name: str, version: int = 9, instance: str | None = None) -> None:
        self.at = player.another(client_id=name)
        self.name, self.group, self.version, self.instance = name, group, version, instance
        self.protocols: dict[str, bytes] = {"range": says(name)}
        self.protocol_type = "consumer"
        self.id = ""
        self.generation = -1
        # What every join of this member says.
        self.always: dict[str, Any] = {}

    def request(self, **changes: Any) -> JoinGroupRequest:
        protocols = changes.pop("protocols", self.protocols)
        wanted = {
            "group_id": self.group,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocols": [JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols.items()],
            **self.always,
            **changes,
        }
        return JoinGroupRequest(**wanted)

    def begin_join(self, label: str | None, **changes: Any) -> Asked:
        return self.at.begin(label, ApiKey.JOIN_GROUP, self.version, self.request(**changes))

    def join(self, label: str | None, **changes: Any) -> Any:
        return self.take(self.begin_join(label, **changes).answer())

    def take(self, answer: Any) -> Any:
        """Stores the id and generation of an answer to a join."""
        if answer is not None and answer.error_code in (0, MEMBER_ID_REQUIRED):
            self.id = answer.member_id
            if answer.error_code == 0:
                self.generation = answer.generation_id
        return answer

    def enter(self, label: str | None = None, **changes: Any) -> Any:
        """Joins, the second time with the id that the first answer gave; only the last answer is written down."""
        if self.version >= 4 and not self.id and self.instance is None:
            self.join(None, **changes)
        return self.join(label, **changes)

    def begin_enter(self, label: str | None, **changes: Any) -> Asked:
        """Begins `enter` for a join that waits for others."""
        if self.version >= 4 and not self.id and self.instance is None:
            self.join(None, **changes)
        return self.begin_join(label, **changes)

    def begin_sync(self, label: str | None, assigned: dict[str, bytes] | None = None, **changes: Any) -> Asked:
        wanted = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocol_name": next(iter(self.protocols)),
            "assignments": [
                SyncGroupRequestAssignment(member_id=id, assignment=data) for id, data in (assigned or {}).items()
            ],
            **changes,
        }
        return self.at.begin(label, ApiKey.SYNC_GROUP, self.sync_version, SyncGroupRequest(**wanted))

    def sync(self, label: str | None, assigned: dict[str, bytes] | None = None, **changes: Any) -> Any:
        return self.begin_sync(label, assigned, **changes).answer()

    def beat(self, label: str | None, **changes: Any) -> Any:
        wanted = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
            **changes,
        }
        version = min(self.version, 4)
        return self.at.begin(label, ApiKey.HEARTBEAT, version, HeartbeatRequest(**wanted)).answer()

    def leave(self, label: str | None, **changes: Any) -> Any:
        version = min(self.version, 5)
        identity = MemberIdentity(member_id=self.id, group_instance_id=self.instance)
        request = LeaveGroupRequest(**{"group_id": self.group, "member_id": self.id, "members": [identity], **changes})
        return self.at.begin(label, ApiKey.LEAVE_GROUP, version, request).answer()

    @property
    def sync_version(self) -> int:
        return min(self.version, 5)


def complete(*members: Member) -> None:
    """Brings members into a stable group; the first one leads."""
    first, *others = members
    waiting = []
    first.enter()
    for other in others:
        waiting.append(other.begin_enter(None))
        until_joining(other, len(waiting) + 1)
    if others:
        first.join(None)
        for other, asked in zip(others, waiting, strict=True):
            other.take(asked.answer())
    assigned = {member.id: f"for {member.name}".encode() for member in members}
    syncs = [other.begin_sync(None) for other in others]
    first.sync(None, assigned)
    for asked in syncs:
        asked.answer()


def until_joining(member: Member, count: int) -> None:
    """Waits until the coordinator has a number of members, on another connection, because the member's own blocks."""
    until_state(member, lambda group: len(group.members) == count)


def until_state(member: Member, holds: Any) -> Any:
    deadline = time.monotonic() + LEADER_S
    beside = member.at.another()
    while True:
        (group,) = beside.call(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=[member.group])).groups
        if holds(group):
            beside.close()
            return group
        assert time.monotonic() < deadline, f"the group stays: {group}"


def describe(player: Player, label: str, group: str, version: int = 5) -> Any:
    return player.ask(label, ApiKey.DESCRIBE_GROUPS, version, DescribeGroupsRequest(groups=[group]))
