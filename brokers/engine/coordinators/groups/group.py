"""A consumer group in memory: its members, its generation and its state (GRP-5).

What a record says of it comes in by `restore`; who joins, waits or was given an id is in
no record and changes directly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from brokers.engine.coordinators.groups.formats import NO_TIMESTAMP, GroupRecord
from brokers.engine.coordinators.groups.limits import MEMBER_BYTES
from brokers.engine.coordinators.groups.member import Member, metadata_bytes
from brokers.engine.coordinators.result import NO_RECORD

CONSUMER: Final = "consumer"


class State(Enum):
    """The values are what clients are told."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_BEFORE: Final = {
    State.EMPTY: (State.PREPARING,),
    State.PREPARING: (State.STABLE, State.COMPLETING, State.EMPTY),
    State.COMPLETING: (State.PREPARING,),
    State.STABLE: (State.COMPLETING,),
    State.DEAD: tuple(State),
}


class Group:
    """`id` is the internal one. Generation 0 has never had members, and there is no record of it.

    `members` and `statics` (member ids by instance id) hold whoever is in; `pending` are ids that were given out and
    not used yet. `unsynced` are members of this generation that have not asked for their assignment. `assembling`:
    the first members of an empty group are awaited, whoever is there; `remaining_ms` is how much longer that may be put
    off when `newcomer` says that somebody came (GRP-9). `recorded_at` is the log offset of its last record,
    `committed_at` of the last one that changed its offsets: who is told of them waits for no others.
    """

    __slots__ = (
        "assembling",
        "assignment_bytes",
        "awaiting",
        "committed_at",
        "counted",
        "delay_ms",
        "generation",
        "id",
        "leader",
        "members",
        "metadata_bytes",
        "newcomer",
        "offered",
        "pending",
        "protocol",
        "protocol_type",
        "recorded_at",
        "remaining_ms",
        "state",
        "state_timestamp_ms",
        "statics",
        "subscriptions",
        "unsynced",
    )

    def __init__(self, id: str, now_ms: int = NO_TIMESTAMP, after: int = NO_RECORD) -> None:
        """`after` is the log offset of what may have ended a group of this id before."""
        self.id = id
        # What the registry has counted of it: members, and the bytes they take.
        self.counted = (0, 0)
        self.recorded_at = self.committed_at = after
        self.state = State.EMPTY
        self.state_timestamp_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.statics: dict[str, str] = {}
        self.pending: set[str] = set()
        self.unsynced: set[str] = set()
        # What the members of this generation said when it began; None: nobody knows what the group reads.
        self.subscriptions: list[bytes] | None = None
        # How many members offer a protocol, by its name.
        self.offered: Counter[str] = Counter()
        # Members whose join is not answered.
        self.awaiting = 0
        self.metadata_bytes = 0
        # What the last record gave to all members together.
        self.assignment_bytes = 0
        self.assembling = False
        self.newcomer = False
        self.delay_ms = 0
        self.remaining_ms = 0

    # -- what is asked -------------------------------------------------------------------------------------------------

    @property
    def is_consumer(self) -> bool:
        return self.protocol_type == CONSUMER

    @property
    def has_record(self) -> bool:
        """Whether the log may hold a record of it, which must be deleted with it (GRP-26)."""
        return self.generation > 0

    @property
    def everybody_joined(self) -> bool:
        return self.awaiting == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        return max(0, *(member.rebalance_timeout_ms for member in self.members.values()), 0)

    @property
    def size_bytes(self) -> int:
        """What its members take in memory."""
        return self.metadata_bytes + self.assignment_bytes + MEMBER_BYTES * (len(self.members) + len(self.pending))

    def supports(self, protocol_type: str, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """Whether somebody who offers this has anything in common with all members (GRP-7)."""
        names = [name for name, _ in protocols]
        if self.state is State.EMPTY:
            return bool(protocol_type and names)
        return self.protocol_type == protocol_type and any(self.offered[name] == len(self.members) for name in names)

    def choice(self) -> str:
        """The protocol that every member offers and most like best; the earlier member's wish breaks a tie (GRP-10)."""
        everybody = len(self.members)
        candidates = {name for name, count in self.offered.items() if count == everybody}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    # -- members -------------------------------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.statics, "a static member is in already"
            self.statics[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.pending.discard(member.member_id)
        self._count(member.protocols, 1)
        if member.join_ticket is not None:
            self.awaiting += 1

    def remove(self, member_id: str) -> Member | None:
        """Takes out a member, or an id that was given out. The caller answers what the member waits for."""
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count(member.protocols, -1)
        if member.join_ticket is not None:
            self.awaiting -= 1
        if member.group_instance_id is not None:
            del self.statics[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """A static member comes back under another id (GRP-18). It keeps its place, and with it the leadership."""
        assert member.group_instance_id is not None, "only a static member is known by more than its id"
        before = member.member_id
        self.members = {member_id if id == before else id: result for id, result in self.members.items()}
        self.statics[member.group_instance_id] = member_id
        if self.leader == before:
            self.leader = member_id
        if before in self.unsynced:
            self.unsynced.remove(before)
            self.unsynced.add(member_id)
        member.member_id = member_id

    def offers(
        self,
        member: Member,
        protocols: Sequence[tuple[str, bytes]],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """What a member says when it joins again."""
        self._count(member.protocols, -1)
        member.protocols = tuple(protocols)
        member.metadata_bytes = metadata_bytes(protocols)
        self._count(member.protocols, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def awaits_join(self, member: Member, ticket: object | None) -> object | None:
        """From now on this call of the member is the one to be answered, None when it is; the one before."""
        before = member.join_ticket
        self.awaiting += (ticket is not None) - (before is not None)
        member.join_ticket = ticket
        return before

    def _count(self, protocols: Sequence[tuple[str, bytes]], sign: int) -> None:
        for name, metadata in protocols:
            self.offered[name] += sign
            self.metadata_bytes += sign * (len(name) + len(metadata))
            if not self.offered[name]:
                del self.offered[name]

    def begin_reading(self) -> None:
        """A generation begins: what its members say for the protocol in use is what they read (GRP-28)."""
        if self.is_consumer and self.protocol is not None:
            self.subscriptions = [member.metadata(self.protocol) for member in self.members.values()]
        else:
            self.subscriptions = [] if self.is_consumer and not self.members else None

    # -- states --------------------------------------------------------------------------------------------------------

    def enter(self, state: State, now_ms: int) -> None:
        assert self.state in _BEFORE[state], f"{self.state} does not lead to {state}"
        self.state = state
        self.state_timestamp_ms = now_ms

    def recorded(self, state_timestamp_ms: int, assignments: dict[str, bytes]) -> GroupRecord:
        """The record of this generation, with what the leader gave to whom; who was given nothing has b""."""
        protocol = self.protocol
        if protocol is None:
            assert not self.members, "a group with members has chosen a protocol"
            return GroupRecord(self.protocol_type or "", self.generation, None, None, state_timestamp_ms, ())
        members = tuple(
            member.recorded(protocol, assignments.get(member.member_id, b"")) for member in self.members.values()
        )
        return GroupRecord(
            self.protocol_type or "", self.generation, protocol, self.leader, state_timestamp_ms, members
        )

    def restore(self, record: GroupRecord) -> None:
        """Becomes what the record says. What a member told besides, and what it waits for, stays."""
        known = self.members
        self.members, self.statics, self.leader = {}, {}, record.leader
        self.offered.clear()
        self.metadata_bytes = self.awaiting = 0
        for stored in record.members:
            assert record.protocol is not None, "a group with members has chosen a protocol"
            member = known.get(stored.member_id)
            if member is None:
                member = Member.restored(stored, record.protocol)
            else:
                member.restore(stored, record.protocol)
            self.add(member)
        self.assignment_bytes = sum(len(stored.assignment) for stored in record.members)
        self.generation = record.generation
        self.protocol_type = record.protocol_type or None
        self.protocol = record.protocol
        self.state = State.STABLE if record.members else State.EMPTY
        self.state_timestamp_ms = record.state_timestamp_ms
        self.begin_reading()
