"""A consumer group in memory: its members, its generation and its state (GRP-5).

Recorded state is applied by `restore`. Pending joins, waiting calls and assigned member ids are in no record and change
directly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from brokers.engine.coordinators.groups.formats import NO_TIMESTAMP, GroupRecord
from brokers.engine.coordinators.groups.member import Member, metadata_bytes
from brokers.engine.coordinators.limits import MEMBER_BYTES
from brokers.engine.coordinators.result import NO_RECORD

CONSUMER: Final = "consumer"


class GroupState(Enum):
    """State of a group; the values are those of the Kafka protocol."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_PREDECESSORS: Final = {
    GroupState.EMPTY: (GroupState.PREPARING,),
    GroupState.PREPARING: (GroupState.STABLE, GroupState.COMPLETING, GroupState.EMPTY),
    GroupState.COMPLETING: (GroupState.PREPARING,),
    GroupState.STABLE: (GroupState.COMPLETING,),
    GroupState.DEAD: tuple(GroupState),
}


class Group:
    """A consumer group. A group of generation 0 never had members and has no record.

    Attributes:
        id: internal group id.
        members: members by member id.
        static_members: member ids of static members by group instance id.
        pending: member ids that were assigned and not used to join yet.
        pending_sync_member_ids: members of this generation that have not sent SyncGroup.
        in_initial_delay: True during the initial rebalance delay of an empty group (GRP-9).
        has_new_member: True if a member joined during the current delay, so that it is extended.
        delay_ms: length of the current delay.
        delay_remaining_ms: time by which the delay may still be extended.
        awaiting_join_count: number of members whose JoinGroup is not answered.
        counted_usage: the number of members and the bytes that the registry has counted for this group.
        supported_protocols: number of members that offer a protocol, by its name.
        subscriptions: metadata of this generation's members for its protocol; None if the topics that they read are
            unknown.
        metadata_bytes: size of the members' metadata.
        assignment_bytes: size of the assignments in the last record.
        last_record_offset: log offset of the last record of the group; replies about members depend on it.
        last_commit_offset: log offset of the last change of its offsets; replies about offsets depend on it.
    """

    __slots__ = (
        "assignment_bytes",
        "awaiting_join_count",
        "counted_usage",
        "delay_ms",
        "delay_remaining_ms",
        "generation",
        "has_new_member",
        "id",
        "in_initial_delay",
        "last_commit_offset",
        "last_record_offset",
        "leader",
        "members",
        "metadata_bytes",
        "pending",
        "pending_sync_member_ids",
        "protocol",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscriptions",
        "supported_protocols",
    )

    def __init__(self, id: str, now_ms: int = NO_TIMESTAMP, last_drop_offset: int = NO_RECORD) -> None:
        """Makes an empty group. `last_drop_offset` is the log offset of the last record that may have ended an earlier
        group of this id.
        """
        self.id = id
        self.counted_usage = (0, 0)
        self.last_record_offset = self.last_commit_offset = last_drop_offset
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending: set[str] = set()
        self.pending_sync_member_ids: set[str] = set()
        self.subscriptions: list[bytes] | None = None
        self.supported_protocols: Counter[str] = Counter()
        self.awaiting_join_count = 0
        self.metadata_bytes = 0
        self.assignment_bytes = 0
        self.in_initial_delay = False
        self.has_new_member = False
        self.delay_ms = 0
        self.delay_remaining_ms = 0

    # -- queries -------------------------------------------------------------------------------------------------------

    @property
    def is_consumer(self) -> bool:
        return self.protocol_type == CONSUMER

    @property
    def has_record(self) -> bool:
        """True if the log may hold a record of this group, which must be deleted with it (GRP-26)."""
        return self.generation > 0

    @property
    def has_all_members_joined(self) -> bool:
        """True if all members wait with a JoinGroup, and no assigned member id is unused."""
        return self.awaiting_join_count == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """Largest rebalance timeout of the members, 0 without members."""
        return max(0, *(member.rebalance_timeout_ms for member in self.members.values()), 0)

    @property
    def size_bytes(self) -> int:
        """Memory that the members take."""
        return self.metadata_bytes + self.assignment_bytes + MEMBER_BYTES * (len(self.members) + len(self.pending))

    def supports_protocols(self, protocol_type: str, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """True if one of the offered protocols is supported by all members (GRP-7)."""
        names = [name for name, _ in protocols]
        if self.state is GroupState.EMPTY:
            return bool(protocol_type and names)
        return self.protocol_type == protocol_type and any(
            self.supported_protocols[name] == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """Returns the protocol with the most votes among those that every member offers (GRP-10).

        A tie is broken by the vote of the member that joined earlier.
        """
        member_count = len(self.members)
        candidates = {name for name, count in self.supported_protocols.items() if count == member_count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    # -- members -------------------------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Adds a member; the first one becomes the leader."""
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members, "a static member has this id already"
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending.discard(member.member_id)
        self._count_protocols(member.protocols, 1)
        if member.join_ticket is not None:
            self.awaiting_join_count += 1

    def remove(self, member_id: str) -> Member | None:
        """Removes a member or a pending member id. The caller answers the member's waiting calls."""
        self.pending.discard(member_id)
        self.pending_sync_member_ids.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count_protocols(member.protocols, -1)
        if member.join_ticket is not None:
            self.awaiting_join_count -= 1
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """Changes the member id of a static member that has rejoined (GRP-18). It keeps its position and leadership."""
        assert member.group_instance_id is not None, "only a static member is known by more than its id"
        previous_id = member.member_id
        self.members = {member_id if id == previous_id else id: peer for id, peer in self.members.items()}
        self.static_members[member.group_instance_id] = member_id
        if self.leader == previous_id:
            self.leader = member_id
        if previous_id in self.pending_sync_member_ids:
            self.pending_sync_member_ids.remove(previous_id)
            self.pending_sync_member_ids.add(member_id)
        member.member_id = member_id

    def update_protocols(
        self,
        member: Member,
        protocols: Sequence[tuple[str, bytes]],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Replaces the protocols and time-outs of a member that joins again."""
        self._count_protocols(member.protocols, -1)
        member.protocols = tuple(protocols)
        member.metadata_bytes = metadata_bytes(protocols)
        self._count_protocols(member.protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def set_join_ticket(self, member: Member, ticket: object | None) -> object | None:
        """Sets the JoinGroup call that the member waits with, None if it was answered. Returns the previous one."""
        previous_ticket = member.join_ticket
        self.awaiting_join_count += (ticket is not None) - (previous_ticket is not None)
        member.join_ticket = ticket
        return previous_ticket

    def _count_protocols(self, protocols: Sequence[tuple[str, bytes]], sign: int) -> None:
        for name, metadata in protocols:
            self.supported_protocols[name] += sign
            self.metadata_bytes += sign * (len(name) + len(metadata))
            if not self.supported_protocols[name]:
                del self.supported_protocols[name]

    def update_subscriptions(self) -> None:
        """Sets the subscriptions of a new generation: its members' metadata for the chosen protocol (GRP-28)."""
        if self.is_consumer and self.protocol is not None:
            self.subscriptions = [member.metadata(self.protocol) for member in self.members.values()]
        else:
            self.subscriptions = [] if self.is_consumer and not self.members else None

    # -- states --------------------------------------------------------------------------------------------------------

    def enter(self, state: GroupState, now_ms: int) -> None:
        """Changes the state; `now_ms` is the wall time of the change."""
        assert self.state in _PREDECESSORS[state], f"{self.state} does not lead to {state}"
        self.state = state
        self.state_timestamp_ms = now_ms

    def to_record(self, state_timestamp_ms: int, assignments: dict[str, bytes]) -> GroupRecord:
        """Returns the record of this generation with the leader's assignments, b"" for members without one."""
        protocol = self.protocol
        if protocol is None:
            assert not self.members, "a group with members has chosen a protocol"
            return GroupRecord(self.protocol_type or "", self.generation, None, None, state_timestamp_ms, ())
        members = tuple(
            member.to_record(protocol, assignments.get(member.member_id, b"")) for member in self.members.values()
        )
        return GroupRecord(
            self.protocol_type or "", self.generation, protocol, self.leader, state_timestamp_ms, members
        )

    def restore(self, record: GroupRecord) -> None:
        """Applies a record. The members' other protocols and their waiting calls stay."""
        previous = self.members
        self.members, self.static_members, self.leader = {}, {}, record.leader
        self.supported_protocols.clear()
        self.metadata_bytes = self.awaiting_join_count = 0
        for stored in record.members:
            assert record.protocol is not None, "a group with members has chosen a protocol"
            member = previous.get(stored.member_id)
            if member is None:
                member = Member.restored(stored, record.protocol)
            else:
                member.restore(stored, record.protocol)
            self.add(member)
        self.assignment_bytes = sum(len(stored.assignment) for stored in record.members)
        self.generation = record.generation
        self.protocol_type = record.protocol_type or None
        self.protocol = record.protocol
        self.state = GroupState.STABLE if record.members else GroupState.EMPTY
        self.state_timestamp_ms = record.state_timestamp_ms
        self.update_subscriptions()
