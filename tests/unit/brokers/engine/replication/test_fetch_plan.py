"""Fetch plans after random histories: no followed partition is forgotten, and the leader's session is always right."""

from __future__ import annotations

from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.topic_config import parse
from brokers.engine.replication.fetch_plan import FetchPlan, Round, next_epoch, retry_delay_ms
from brokers.engine.storage.files import OpenFiles
from brokers.engine.storage.recovery import create_log

TOPIC_ID = b"t" * 16
INDEXES = st.integers(0, 5)


def replica(index: int) -> Partition:
    """Returns a partition without files, because a plan only uses its offsets."""
    files = OpenFiles(1, lambda failure: None)
    config = parse({}, {})
    log = create_log("", Path(), "t", index, files, config.log, now_ms=0)
    partition = Partition(log, TOPIC_ID, config, lambda failure: None)
    partition.leader_epoch = 3
    return partition


class PlanAndLeader(RuleBasedStateMachine):
    """A plan and a leader that may keep a session according to WIRE-30."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = FetchPlan()
        self.now_ms = 0
        self.replicas: dict[int, Partition] = {}
        self.sent: Round | None = None
        self.session: dict[int, int] = {}
        self.session_epoch = 0

    @rule(index=INDEXES)
    def follow(self, index: int) -> None:
        self.replicas.setdefault(index, replica(index))
        self.plan.follow(self.replicas[index])

    @rule(index=INDEXES)
    def follow_in_the_next_leader_epoch(self, index: int) -> None:
        self.replicas.setdefault(index, replica(index)).leader_epoch += 1
        self.plan.follow(self.replicas[index])

    @rule(index=INDEXES)
    def unfollow(self, index: int) -> None:
        self.plan.unfollow((TOPIC_ID, index))
        self.replicas.pop(index, None)

    @rule(passed_ms=st.integers(0, 1_500))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @precondition(lambda self: self.sent is None)
    @rule()
    def ask(self) -> None:
        self.sent = wanted = self.plan.next_round(self.now_ms)
        if wanted is None:
            due_ms = self.plan.due_ms()
            assert due_ms is None or due_ms > self.now_ms
            return
        if wanted.session_id == 0:
            self.session = {}
        else:
            assert wanted.session_epoch == self.session_epoch, "the leader would refuse this epoch"
        self.session_epoch = next_epoch(wanted.session_epoch)
        for topic_id, index, _, offset, _, _, _ in wanted.partitions:
            assert (topic_id, index) not in wanted.forgotten_partitions
            self.session[index] = offset
        for _, index in wanted.forgotten_partitions:
            assert index in self.session, "what it never held cannot be forgotten"
            del self.session[index]

    @precondition(lambda self: self.sent is not None)
    @rule(gives_session=st.booleans(), moved=st.sets(INDEXES), failed=st.sets(INDEXES))
    def answer(self, gives_session: bool, moved: set[int], failed: set[int]) -> None:
        assert self.sent is not None
        if self.sent.session_id == 0:
            self.plan.on_session_opened(7 if gives_session else 0)
        self.sent = None
        for index in sorted(self.session):
            followed = self.plan.find(TOPIC_ID, index, self.plan.rounds)
            if followed is None:
                continue
            if index in failed:
                self.plan.mark_failed(followed, "broken", self.now_ms)
            elif index in moved:
                self.replicas[index].log.log_end_offset += 1
                self.plan.mark_advanced(followed)

    @rule()
    def connection_lost(self) -> None:
        self.sent = None
        self.plan.on_session_lost()

    @invariant()
    def whatever_is_followed_is_asked_for_now_or_at_a_known_time(self) -> None:
        assert {index for _, index in self.plan.state_by_key} == set(self.replicas)
        if self.sent is not None or not self.replicas:
            return
        held_back = [followed for followed in self.plan.state_by_key.values() if followed.retry_ms > self.now_ms]
        if len(held_back) == len(self.replicas):
            assert self.plan.due_ms() is not None

    @precondition(lambda self: self.sent is None)
    @rule()
    def the_leader_knows_every_position_after_a_request(self) -> None:
        self.ask()
        if self.sent is None:
            return
        for index, held in self.replicas.items():
            followed = self.plan.state_by_key[TOPIC_ID, index]
            if followed.retry_ms <= self.now_ms:
                assert self.session.get(index) == held.log.log_end_offset
                assert followed.was_requested_in_this_epoch()
            else:
                assert index not in self.session


TestPlanAndLeader = PlanAndLeader.TestCase
TestPlanAndLeader.settings = settings(max_examples=60, stateful_step_count=40)


def test_full_requests_begin_with_partitions_that_were_not_served_last() -> None:
    plan = FetchPlan()
    for index in range(3):
        plan.follow(replica(index))
    wanted = plan.next_round(0)
    assert wanted is not None
    served = plan.find(TOPIC_ID, 0, plan.rounds)
    assert served is not None
    plan.mark_advanced(served)
    wanted = plan.next_round(0)
    assert wanted is not None
    assert [line[1] for line in wanted.partitions] == [1, 2, 0]


def test_session_epochs_wrap_to_one() -> None:
    """WIRE-30."""
    assert next_epoch(2**31 - 2) == 2**31 - 1
    assert next_epoch(2**31 - 1) == 1


def test_the_first_retry_is_early_and_none_is_later_than_the_back_off() -> None:
    """REP-6."""
    assert [retry_delay_ms(failures) for failures in (1, 2, 6, 7, 100, 10_000)] == [25, 50, 800, 1_000, 1_000, 1_000]
