"""Leadership checks by requests of followers (decision 76)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.engine.partitions.delayed_operations import LeadershipCheck
from brokers.engine.partitions.follower_session import FollowerSession
from brokers.engine.partitions.leadership_check import LeadershipChecks, is_sole_in_sync_replica, unconfirmed_followers
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.progress import out_of_sync_replicas
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from tests.unit.brokers.engine.partitions.transactional import NOW_MS, TOPIC_ID

EPOCH = 3
KEY = (TOPIC_ID, 0)
# Maximum number of requests of a follower in flight (`replication.fetcher`).
UNDER_WAY_MAX = 2


def lead(table: PartitionTable, *isr: int, leader_epoch: int = EPOCH) -> Partition:
    return table.become_leader(
        "ins-a.orders", 0, TOPIC_ID, leader_epoch, {}, now_ms=NOW_MS, role=PartitionRole((1, 2, 3), isr)
    )


class Follower:
    """A follower whose requests arrive at once."""

    def __init__(self, leadership_checks: LeadershipChecks, partition: Partition, replica: int) -> None:
        self.session = FollowerSession(1, replica, replica)
        self.woken = 0
        self._confirmations = leadership_checks
        self._partition = partition

    def asks(self, *, names: bool, leader_epoch: int = EPOCH) -> None:
        self.session.on_request(not names)
        if names:
            self.session.update_position(KEY, (0, leader_epoch, 0, -1, 0, 1_000), self._partition, 0)
        self._confirmations.evaluate()

    def is_answered(self) -> None:
        self.session.on_response(self._confirmations.last_number)

    def waits(self) -> None:
        self.session.wait(self._wake)

    def _wake(self) -> None:
        self.woken += 1

    def goes_round(self) -> None:
        self.asks(names=False)
        self.is_answered()


class Stage:
    def __init__(self, table: PartitionTable, isr: tuple[int, ...] = (1, 2, 3)) -> None:
        self.table = table
        self.leadership_checks = LeadershipChecks()
        self.partition = lead(table, *isr)
        self.followers = {id: Follower(self.leadership_checks, self.partition, id) for id in (2, 3)}
        for follower in self.followers.values():
            follower.asks(names=True)
            follower.is_answered()
        self.woken = 0

    def ask(self) -> LeadershipCheck:
        return self.leadership_checks.start(self.partition, self._wake)

    def _wake(self) -> None:
        self.woken += 1


def test_every_in_sync_follower_must_answer(table: PartitionTable) -> None:
    stage = Stage(table)
    question = stage.ask()
    for follower in stage.followers.values():
        # This request may have been in flight when the check began.
        follower.goes_round()
    assert not question.done

    stage.followers[2].goes_round()
    assert not question.done
    stage.followers[3].goes_round()

    assert question.is_confirmed
    assert stage.woken == 1
    assert not stage.leadership_checks.is_waiting


def test_a_request_that_waits_is_answered_at_once_and_the_next_one_counts(table: PartitionTable) -> None:
    stage = Stage(table)
    for follower in stage.followers.values():
        follower.asks(names=False)
        follower.waits()

    question = stage.ask()

    for follower in stage.followers.values():
        assert follower.woken == 1
        assert follower.session.has_pending_check
        follower.is_answered()
        follower.goes_round()
        assert not follower.session.has_pending_check, "it may wait again"
    assert question.is_confirmed


def test_a_request_that_may_have_overtaken_another_does_not_count(table: PartitionTable) -> None:
    stage = Stage(table, isr=(1, 2))
    follower = stage.followers[2]
    follower.asks(names=False)
    question = stage.ask()
    follower.is_answered()

    follower.asks(names=True)
    assert not question.done
    assert follower.session.has_pending_check, "it is answered at once all the same"
    follower.is_answered()
    follower.asks(names=True)

    assert question.is_confirmed


def test_one_round_confirms_all_earlier_checks(table: PartitionTable) -> None:
    stage = Stage(table, isr=(1, 2))
    follower = stage.followers[2]
    follower.asks(names=False)
    questions = [stage.ask() for _ in range(5)]
    follower.is_answered()
    later = stage.ask()
    follower.asks(names=False)

    assert all(question.is_confirmed for question in questions)
    assert not later.done


def test_a_single_in_sync_replica_is_confirmed_at_once(table: PartitionTable) -> None:
    stage = Stage(table, isr=(1,))

    assert is_sole_in_sync_replica(stage.partition)
    assert stage.ask().is_confirmed
    assert stage.followers[2].woken == 0


def test_a_follower_that_left_the_isr_is_not_waited_for(table: PartitionTable) -> None:
    stage = Stage(table)
    question = stage.ask()
    for _ in range(2):
        stage.followers[3].goes_round()
    assert not question.done

    lead(table, 1, 3)
    stage.leadership_checks.evaluate()

    assert question.is_confirmed


def test_a_follower_in_the_proposed_isr_is_waited_for(table: PartitionTable) -> None:
    """REP-24: it may be in sync according to the ISR being written, and lead by now."""
    stage = Stage(table, isr=(1,))
    stage.partition.propose_isr((1, 2))

    assert not is_sole_in_sync_replica(stage.partition)
    assert not stage.ask().done


def test_a_follower_in_another_epoch_confirms_nothing(table: PartitionTable) -> None:
    stage = Stage(table, isr=(1, 2))
    question = stage.ask()
    for _ in range(3):
        stage.followers[2].asks(names=True, leader_epoch=EPOCH + 1)
        stage.followers[2].is_answered()

    assert not question.done


def test_a_leadership_that_ends_ends_the_question(table: PartitionTable) -> None:
    stage = Stage(table)
    question = stage.ask()

    stage.partition.resign()

    assert question.done
    assert not question.is_confirmed
    assert stage.woken == 1


def test_a_cancelled_check_uses_no_memory(table: PartitionTable) -> None:
    stage = Stage(table)
    for _ in range(1_000):
        stage.ask().cancel()

    assert sum(map(len, stage.leadership_checks._waiting.values())) <= 1
    stage.leadership_checks.evaluate()
    assert not stage.leadership_checks.is_waiting
    assert stage.woken == 0


class Remote:
    """A follower behind a slow connection, which learns of another leader at some time."""

    def __init__(self, stage: Stage, replica: int) -> None:
        self.local = stage.followers[replica]
        self.follows = True
        self.sent: deque[str] = deque()
        self.answers = 0
        self.under_way = 0
        self._is_held = False
        self._tells_that_it_left = False

    def send(self) -> None:
        """Sends an empty request if nothing else is in flight, otherwise one that names a partition."""
        if self.under_way == UNDER_WAY_MAX:
            return
        if self._tells_that_it_left:
            kind, self._tells_that_it_left = "leaves", False
        else:
            kind = "empty" if self.under_way == 0 else "names"
        if kind == "names" and not self.follows:
            return
        self.sent.append(kind)
        self.under_way += 1

    def hear_of_another(self) -> None:
        if self.follows:
            self.follows = False
            self._tells_that_it_left = True

    def arrive(self) -> None:
        """Delivers the request to the leader, which answers the one that waited before it."""
        if not self.sent:
            return
        self.answer()
        kind = self.sent.popleft()
        if kind == "leaves":
            self.local.session.on_request(False)
            self.local.session.remove(KEY)
            self.local._confirmations.evaluate()
        else:
            self.local.asks(names=kind == "names")
        self._is_held = True

    def answer(self) -> None:
        if self._is_held:
            self._is_held = False
            self.local.is_answered()
            self.answers += 1

    def receive(self) -> None:
        if self.answers:
            self.answers -= 1
            self.under_way -= 1


@contextmanager
def some_table() -> Iterator[PartitionTable]:
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as directory:
        table = PartitionTable(StorageSettings(roots=(Path(directory),), broker_id=1, cluster_id="c"))
        table.recover(NOW_MS)
        try:
            yield table
        finally:
            table.close()


VERBS = ("send", "arrive", "answer", "receive", "hear_of_another", "ask")


@given(st.lists(st.sampled_from(VERBS), max_size=40))
@settings(max_examples=300)
def test_no_check_is_confirmed_after_a_follower_learned_of_another_leader(verbs: list[str]) -> None:
    """The network may be arbitrarily slow. A leader that is not deposed gets its confirmation eventually."""
    with some_table() as table:
        stage = Stage(table, isr=(1, 2))
        remote = Remote(stage, 2)
        checks: list[tuple[LeadershipCheck, bool]] = []
        for verb in verbs:
            if verb == "ask":
                checks.append((stage.ask(), remote.follows))
            else:
                getattr(remote, verb)()
        for _ in range(6):
            for act in (remote.send, remote.arrive, remote.answer, remote.receive):
                act()

        for question, was_led in checks:
            assert question.is_confirmed <= was_led
        if remote.follows:
            assert all(question.is_confirmed for question, _ in checks)


def test_a_silent_follower_leaves_the_isr_even_if_it_was_caught_up(table: PartitionTable) -> None:
    """REP-22: while nothing is written, nothing else would show that it is gone."""
    stage = Stage(table)
    gone, alive = stage.followers[2].session, stage.followers[3].session
    gone.fetched_ms = alive.fetched_ms = 1_000

    def laggards(now_ms: int) -> tuple[int, ...]:
        leadership, end_offset = stage.partition.leadership, stage.partition.log_end_offset
        assert leadership is not None
        return out_of_sync_replicas(
            (1, 2, 3), 1, leadership.followers, end_offset, now_ms, 500, unconfirmed_followers(stage.partition)
        )

    assert laggards(90_000) == (), "no check was sent"
    stage.ask()
    assert unconfirmed_followers(stage.partition) == {2, 3}
    for _ in range(2):
        stage.followers[3].goes_round()
    assert laggards(1_400) == ()

    assert laggards(1_600) == (2,)
    for _ in range(2):
        stage.followers[2].goes_round()
    assert laggards(90_000) == ()


def test_a_follower_that_never_fetched_in_this_epoch_leaves_the_isr_after_a_check(table: PartitionTable) -> None:
    """It has no session entry that could owe an answer, and there were no records that it could lack."""
    stage = Stage(table)
    stage.partition = lead(table, 1, 2, 3, leader_epoch=EPOCH + 1)
    stage.followers[2].asks(names=True, leader_epoch=EPOCH + 1)
    leadership = stage.partition.leadership
    assert leadership is not None
    assert unconfirmed_followers(stage.partition) == frozenset(), "no check was sent"

    question = stage.ask()
    for _ in range(3):
        stage.followers[2].goes_round()

    assert not question.done
    assert unconfirmed_followers(stage.partition) == {3}
    leadership.followers[3].end_offset = stage.partition.log_end_offset
    late_ms = NOW_MS + 1_000
    leadership.followers[2].record_caught_up(late_ms)
    assert out_of_sync_replicas(
        (1, 2, 3), 1, leadership.followers, 0, late_ms, 500, unconfirmed_followers(stage.partition)
    ) == (3,)
