"""Members that act at random under coordinators that move (GRP-5…20).

Invariants: a generation has one leader and one protocol, which every member received; assignments arrive as the leader
sent them; no member has two pending requests, or one for ever; a load restores the state.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from brokers.engine.coordinators.groups.group import Group, GroupState
from brokers.engine.coordinators.groups.joining import NEW_MEMBER_JOIN_TIMEOUT_MS
from brokers.engine.coordinators.groups.replies import JoinReply, Leaver, SyncReply
from tests.testkit import depth
from tests.unit.brokers.engine.coordinators.fakes import Call
from tests.unit.brokers.engine.coordinators.groups.members import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Member,
    Shard,
    leave,
)

PROTOCOLS = (
    (("range", b"r"),),
    (("range", b"changed"),),
    (("sticky", b"s"), ("range", b"r")),
    (("range", b"r"), ("sticky", b"s")),
)
EXAMPLES = depth.number_from("PENSTOCK_GROUP_EXAMPLES", short=20, long=60)
# The first members are static.
STATICS = 2
SLOTS = 5
slots = st.integers(0, SLOTS - 1)


class GroupRegistry(RuleBasedStateMachine):
    @initialize(at_once=st.booleans(), delay_ms=st.sampled_from([0, 3_000]), members_max=st.sampled_from([3, 1_000]))
    def begin(self, at_once: bool, delay_ms: int, members_max: int) -> None:
        self.shard = Shard(at_once=at_once, initial_rebalance_delay_ms=delay_ms, members_max=members_max)
        self.members = [
            Member(self.shard, instance=f"pod-{slot}" if slot < STATICS else None, client=f"c{slot}")
            for slot in range(SLOTS)
        ]
        self.joins: list[tuple[Member, str, Call]] = []
        self.syncs: list[tuple[Member, int, str, Call]] = []
        # Leader and protocol by generation, under the present coordinator.
        self.generations: dict[int, tuple[str, str | None]] = {}
        self.given: dict[tuple[int, str], bytes] = {}
        self.offers = 0
        self.newest = 0
        self.all_written = True

    # -- what members do -----------------------------------------------------------------------------------------------

    @rule(
        slot=slots,
        protocols=st.sampled_from(PROTOCOLS),
        needs_member_id=st.booleans(),
        can_skip_assignment=st.booleans(),
    )
    def join(
        self, slot: int, protocols: tuple[tuple[str, bytes], ...], needs_member_id: bool, can_skip_assignment: bool
    ) -> None:
        member = self.members[slot]
        member.protocols = protocols
        asked_as = member.id
        static = member.instance is not None
        call = member.join(
            needs_member_id=needs_member_id and not static, can_skip_assignment=can_skip_assignment and static
        )
        self.joins.append((member, asked_as, call))
        self.read_answers()

    @rule(slot=slots)
    def restart(self, slot: int) -> None:
        """Restart a member: it forgets its id and its pending requests."""
        member = self.members[slot]
        member.id, member.generation, member.leads = "", -1, False

    @rule(slot=slots, forgotten=st.integers(0, SLOTS), behind=st.booleans())
    def sync(self, slot: int, forgotten: int, behind: bool) -> None:
        member = self.members[slot]
        generation = member.generation - behind
        group = self.shard.machine.groups.get(GROUP)
        assignments: dict[str, bytes] = {}
        if group is not None and member.leads:
            self.offers += 1
            for at, id in enumerate(group.members):
                if at != forgotten:
                    assignments[id] = f"{self.offers}:{id}".encode()
        decides = (
            group is not None
            and group.state is GroupState.COMPLETING
            and group.leader == member.id
            and group.generation == generation
        )
        written = len(self.shard.log.batches)
        call = member.sync(assignments, generation=generation)
        self.syncs.append((member, generation, member.id, call))
        if decides and group is not None and len(self.shard.log.batches) > written:
            for id in group.members:
                self.given[generation, id] = assignments.get(id, b"")
        self.read_answers()

    @rule(slot=slots, behind=st.booleans())
    def heartbeat(self, slot: int, behind: bool) -> None:
        member = self.members[slot]
        code = member.heartbeat(member.generation - behind)
        if code == 25:
            member.id, member.generation, member.leads = "", -1, False

    @rule(slot=slots, by_name=st.booleans())
    def leave(self, slot: int, by_name: bool) -> None:
        member = self.members[slot]
        leave(self.shard, Leaver("" if by_name else member.id, member.instance))
        self.note_empty()
        self.read_answers()

    @rule(some=st.sets(slots))
    def leave_together(self, some: set[int]) -> None:
        leave(self.shard, *(Leaver(self.members[slot].id) for slot in sorted(some)))
        self.note_empty()
        self.read_answers()

    @rule(some=st.sets(slots, min_size=2), syncing=st.booleans())
    def follow(self, some: set[int], syncing: bool) -> None:
        """Join as well-behaved clients do: with an id, all together, the leader's assignment last."""
        for _ in range(2):
            for slot in sorted(some):
                if not any(member is self.members[slot] for member, _, _ in self.joins):
                    self.join(slot, PROTOCOLS[0], needs_member_id=True, can_skip_assignment=True)
        for slot in sorted(some, key=lambda slot: self.members[slot].leads):
            if syncing or not self.members[slot].leads:
                self.sync(slot, SLOTS, behind=False)

    # -- what happens to them ------------------------------------------------------------------------------------------

    @rule(by_ms=st.sampled_from([500, 3_000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def time_passes(self, by_ms: int) -> None:
        self.shard.advance(by_ms)
        self.note_empty()
        self.read_answers()

    @rule()
    def followers_catch_up(self) -> None:
        self.shard.log.replicate()
        self.read_answers()

    @rule(code=st.sampled_from([0, 0, 19]))
    def log_refuses(self, code: int) -> None:
        self.shard.log.refuses = code

    @rule()
    def coordinator_moves(self) -> None:
        group = self.shard.machine.groups.get(GROUP)
        completed = group is not None and group.state in (GroupState.STABLE, GroupState.EMPTY) and group.has_record
        before = None if group is None else (group.generation, group.leader, self.shard.machine.describe(GROUP).reply)
        self.shard.reload()
        self.read_answers()
        after = self.shard.machine.groups.get(GROUP)
        if completed and self.all_written and before is not None:
            assert after is not None
            limited = after.state is GroupState.PREPARING
            if not limited:
                assert (after.generation, after.leader, self.shard.machine.describe(GROUP).reply) == before
        self.generations = {}
        self.newest = 0 if after is None else after.generation
        self.all_written = True

    def note_empty(self) -> None:
        if self.shard.log.refuses:
            self.all_written = False

    # -- answers -------------------------------------------------------------------------------------------------------

    def read_answers(self) -> None:
        for entry in [entry for entry in self.joins if entry[2].replies]:
            self.joins.remove(entry)
            self.read_join(*entry)
        for waiting in [waiting for waiting in self.syncs if waiting[3].replies]:
            self.syncs.remove(waiting)
            self.read_sync(*waiting)

    def read_join(self, member: Member, asked_as: str, call: Call) -> None:
        (reply,) = call.replies
        if isinstance(reply, tuple) and reply[0] == "failed":
            return
        assert isinstance(reply, JoinReply)
        if reply.error == 79:
            member.id = reply.member_id
        elif reply.error in (25, 81, 82):
            member.id, member.generation, member.leads = "", -1, False
        if reply.error:
            assert reply.error in (15, 16, 23, 25, 27, 79, 81, 82), reply
            return
        assert asked_as in ("", reply.member_id)
        leader = reply.leader
        group = self.shard.machine.groups.get(GROUP)
        sent = {result.member_id for result in reply.members}
        if sent:
            assert leader == reply.member_id, "only the leader is told who is in"
            assert reply.member_id in sent
        replaced = (
            asked_as == "" and member.instance is not None and (reply.generation, reply.member_id) not in self.given
        )
        if replaced and group is not None and group.state is GroupState.STABLE and group.generation == reply.generation:
            result = group.members.get(reply.member_id)
            if result is not None:
                self.given[reply.generation, reply.member_id] = result.assignment
        else:
            known = self.generations.setdefault(reply.generation, (leader, reply.protocol))
            assert known[1] == reply.protocol, "a generation has one protocol"
        assert reply.generation >= self.newest
        self.newest = max(self.newest, reply.generation)
        member.id, member.generation = reply.member_id, reply.generation
        member.leads = leader == reply.member_id

    def read_sync(self, member: Member, generation: int, id: str, call: Call) -> None:
        (reply,) = call.replies
        if isinstance(reply, tuple) and reply[0] == "failed":
            return
        assert isinstance(reply, SyncReply)
        if reply.error:
            assert reply.error in (15, 16, 22, 23, 25, 27, 82), reply
            assert reply.assignment == b""
            return
        assert reply.assignment == self.given.get((generation, id), b""), "exactly what the leader gave"

    # -- what always holds ---------------------------------------------------------------------------------------------

    @precondition(lambda self: hasattr(self, "shard"))
    @invariant()
    def the_sums_agree(self) -> None:
        group = self.shard.machine.groups.get(GROUP)
        if group is None:
            return
        members = list(group.members.values())
        assert {member.member_id for member in members} == set(group.members)
        assert group.awaiting_join_count == sum(member.join_ticket is not None for member in members)
        assert not any(member.join_ticket and member.sync_ticket for member in members), "nobody waits for two things"
        assert group.supported_protocols == Counter(name for member in members for name, _ in member.protocols)
        assert group.metadata_bytes == sum(member.metadata_bytes for member in members)
        assert group.static_members == {
            member.group_instance_id: member.member_id for member in members if member.group_instance_id is not None
        }
        assert not group.pending & set(group.members)
        assert group.pending_sync_member_ids <= set(group.members)
        assert group.leader in group.members if members else group.leader is None
        self.check_state(group)

    def check_state(self, group: Group) -> None:
        members = list(group.members.values())
        if group.state is GroupState.EMPTY:
            assert not members
        elif group.state in (GroupState.COMPLETING, GroupState.STABLE):
            assert members
            assert all(member.join_ticket is None for member in members)
            assert group.protocol is not None
            assert all(any(name == group.protocol for name, _ in member.protocols) for member in members)
        if group.state is not GroupState.COMPLETING:
            assert all(member.sync_ticket is None for member in members)

    def teardown(self) -> None:
        """Check that no request waits for ever."""
        if not hasattr(self, "shard"):
            return
        self.shard.log.refuses = 0
        for _ in range(4):
            self.shard.log.replicate()
            self.shard.advance(NEW_MEMBER_JOIN_TIMEOUT_MS + REBALANCE_MS)
        self.shard.log.replicate()
        self.read_answers()
        assert not self.joins
        assert not self.syncs
        group = self.shard.machine.groups.get(GROUP)
        assert group is None or (group.state is GroupState.EMPTY and not group.pending)


TestGroups = GroupRegistry.TestCase
TestGroups.settings = settings(max_examples=EXAMPLES, stateful_step_count=40)
