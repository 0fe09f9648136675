"""Brokers append no more than the instance bought, even if reports are late, lost or restarted (CKA-26)."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.engine.capacity.credits import StorageCredits
from brokers.engine.capacity.ledger import (
    DEAD_BROKER_MS,
    REPORT_AGE_MS_MAX,
    Bought,
    ReportedUse,
    StorageGrant,
    StorageLedger,
)
from brokers.engine.capacity.room import FULL, OK, RETRY_LATER, StorageRoom

NAME = "ins-aaaaaaaa"
BOUGHT = 1_000_000
BROKERS = (1, 2, 3)


@dataclass
class Node:
    """A broker, reduced to the bytes that it stores for the instance."""

    id: int
    epoch: int = 1
    used_bytes: int = 0
    is_complete: bool = False
    credits: StorageCredits = field(default_factory=StorageCredits)
    room: StorageRoom = field(default_factory=StorageRoom)

    def start(self) -> None:
        self.credits = StorageCredits()
        self.room = self.credits.rooms[NAME] = StorageRoom()
        self.credits.initialize(self.room, BOUGHT, self.used_bytes)
        self.is_complete = False

    def append(self, size_bytes: int) -> int:
        code = self.room.spend(size_bytes)
        if code == OK:
            self.used_bytes += size_bytes
        return code


class World:
    def __init__(self) -> None:
        self.now_ms = 0
        self.term = 0
        self.restarts = 0
        # Brokers that have not reported since partitions moved; until they do, leaders do not move again.
        self.unaware: set[int] = set()
        self.ledger = StorageLedger(0)
        self.nodes = {id: Node(id) for id in BROKERS}
        for node in self.nodes.values():
            node.start()
        self.elect()
        self.now_ms += DEAD_BROKER_MS

    def elect(self) -> None:
        """Elect another controller, whose ledger is empty."""
        self.term += 1
        self.ledger = StorageLedger(self.now_ms)
        self.ledger.set_live_brokers(BROKERS, self.now_ms)

    def exchange(self, id: int, *, request_lost: bool = False, answer_lost: bool = False) -> None:
        node = self.nodes[id]
        node.credits.on_controller_epoch(self.term)
        uses = node.credits.reports({NAME: node.used_bytes})
        if request_lost:
            node.credits.on_unanswered(uses)
            return
        changes = self.answer(node, uses)
        self.unaware.discard(id)
        if answer_lost:
            node.credits.on_unanswered(uses)
        else:
            node.credits.apply(self.term, uses, changes)

    def answer(self, node: Node, uses: list[ReportedUse]) -> list[StorageGrant]:
        self.ledger.begin_report(node.id, node.epoch, True, self.now_ms)
        changes = [self.ledger.handle_report(node.id, use, Bought(BOUGHT, len(BROKERS)), self.now_ms) for use in uses]
        names = [] if uses else self.ledger.instances_to_review(node.id)
        reviewed = (self.ledger.review(node.id, name, Bought(BOUGHT, len(BROKERS)), self.now_ms) for name in names)
        return [*changes, *(change for change in reviewed if change is not None)]

    def restart(self, id: int) -> None:
        self.restarts += 1
        self.nodes[id].epoch += 1
        self.nodes[id].start()

    def move(self, source: int, target: int, size_bytes: int) -> None:
        if self.unaware:
            return
        self.unaware = set(BROKERS)
        moved = min(size_bytes, self.nodes[source].used_bytes)
        self.nodes[source].used_bytes -= moved
        self.nodes[target].used_bytes += moved

    def used_bytes(self) -> int:
        return sum(node.used_bytes for node in self.nodes.values())


ids = st.sampled_from(BROKERS)
steps = st.one_of(
    st.tuples(st.just("append"), ids, st.integers(1, 30_000)),
    st.tuples(st.just("flood"), ids, st.integers(1_000, 20_000)),
    st.tuples(st.just("exchange"), ids),
    st.tuples(st.just("request_lost"), ids),
    st.tuples(st.just("answer_lost"), ids),
    st.tuples(st.just("wait"), st.integers(1, 3_000)),
    st.tuples(st.just("elect")),
    st.tuples(st.just("restart"), ids),
    st.tuples(st.just("free"), ids, st.integers(1, 300_000)),
    st.tuples(st.just("move"), ids, ids, st.integers(1, 400_000)),
)


def perform(world: World, step: tuple) -> None:  # type: ignore[type-arg]
    match step:
        case ("append", id, size):
            world.nodes[id].append(size)
        case ("flood", id, size):
            while world.nodes[id].append(size) == OK:
                pass
        case ("exchange", id):
            world.exchange(id)
        case ("request_lost", id):
            world.exchange(id, request_lost=True)
        case ("answer_lost", id):
            world.exchange(id, answer_lost=True)
        case ("wait", ms):
            world.now_ms += ms
        case ("elect",):
            world.elect()
        case ("restart", id) if world.restarts < 5:
            world.restart(id)
        case ("free", id, size):
            world.nodes[id].used_bytes -= min(size, world.nodes[id].used_bytes)
        case ("move", source, target, size) if source != target:
            world.move(source, target, size)


@settings(deadline=None)
@given(st.lists(steps, max_size=120))
def test_appended_bytes_never_exceed_the_bought_storage_by_more_than_two_percent(drawn: list) -> None:  # type: ignore[type-arg]
    world = World()
    for step in drawn:
        perform(world, step)
        assert world.used_bytes() <= BOUGHT * 1.02


@settings(deadline=None)
@given(st.lists(steps, max_size=60), ids)
def test_one_broker_can_fill_the_remaining_storage_once_reports_come_again(drawn: list, writer: int) -> None:  # type: ignore[type-arg]
    world = World()
    for step in drawn:
        perform(world, step)
    code = OK
    for _round in range(200):
        world.now_ms += 1_000
        for id in BROKERS:
            world.exchange(id)
        while (code := world.nodes[writer].append(1_000)) == OK:
            pass
        if code == FULL:
            break
    assert code == FULL
    assert BOUGHT * 0.98 <= world.used_bytes() <= BOUGHT * 1.02


def test_an_append_that_did_not_fit_is_reported_again_after_a_lost_report() -> None:
    node = Node(1)
    node.start()
    large_bytes = BOUGHT // 2
    assert [node.append(1), node.append(large_bytes)] == [OK, RETRY_LATER]
    node.credits.on_unanswered(node.credits.reports({NAME: node.used_bytes}))
    (again,) = node.credits.reports({NAME: node.used_bytes})
    assert (again.wanted_bytes, again.is_busy) == (large_bytes, True)


def test_full_instance_takes_records_again_when_less_than_98_percent_is_used() -> None:
    world = World()
    while world.nodes[1].append(1_000) != FULL:
        world.now_ms += 100
        for id in BROKERS:
            world.exchange(id)
    world.nodes[1].used_bytes = int(BOUGHT * 0.985)
    for _second in range(5):
        world.now_ms += 1_000
        for id in BROKERS:
            world.exchange(id)
    assert world.nodes[1].append(1_000) == FULL
    world.nodes[1].used_bytes = int(BOUGHT * 0.97)
    for _second in range(4):
        world.now_ms += 1_000
        for id in BROKERS:
            world.exchange(id)
    assert world.nodes[1].append(1_000) == OK
    assert world.nodes[2].append(100) == OK, "those that reported nothing are told as well"


def test_broker_whose_reports_are_lost_spends_what_it_has_and_no_more() -> None:
    world = World()
    for id in BROKERS * 2:
        world.exchange(id)
    while world.nodes[1].append(1_000) == OK:
        pass
    appended = world.nodes[1].used_bytes
    for _second in range(20):
        world.now_ms += 1_000
        world.exchange(1, answer_lost=True)
        assert world.nodes[1].append(1_000) == RETRY_LATER
    assert appended <= BOUGHT / 2


def test_answer_that_was_lost_leaves_nothing_set_aside() -> None:
    world = World()
    for id in BROKERS:
        world.exchange(id)
    world.exchange(1, answer_lost=True)
    for _second in range(60):
        world.now_ms += 1_000
        for id in BROKERS:
            world.exchange(id)
        while (code := world.nodes[2].append(1_000)) == OK:
            pass
    assert code == FULL


def test_broker_that_starts_full_refuses_at_once() -> None:
    node = Node(1, used_bytes=BOUGHT)
    node.start()
    assert node.append(1) == FULL


def test_storage_of_a_broker_that_is_gone_is_counted_until_others_lead_its_partitions() -> None:
    world = World()
    for id in BROKERS * 2:
        world.exchange(id)
    world.nodes[3].used_bytes = 900_000
    world.exchange(3)
    world.ledger.set_live_brokers((1, 2), world.now_ms)
    assert _answered(world).used_bytes >= 900_000
    world.now_ms += DEAD_BROKER_MS
    world.ledger.set_live_brokers((1, 2), world.now_ms)
    assert _answered(world).used_bytes < 900_000


def _answered(world: World) -> StorageGrant:
    world.nodes[1].room.refused_append_bytes = 1
    world.exchange(1)
    return world.nodes[1].credits.grants_by_instance[NAME]


def test_answer_says_how_much_of_the_figure_is_the_brokers_own() -> None:
    world = World()
    world.nodes[1].used_bytes, world.nodes[2].used_bytes = 300_000, 200_000
    for id in BROKERS * 2:
        world.now_ms += 1_000
        world.exchange(id)
    total = _answered(world)
    assert (total.used_bytes, total.reported_bytes, total.counted_bytes) == (500_000, 500_000, 300_000)
    world.nodes[1].used_bytes = 100_000
    total = _answered(world)
    assert total.used_bytes == 500_000, "less is believed when all others reported"
    assert (total.reported_bytes, total.counted_bytes) == (300_000, 100_000)
    world.now_ms += REPORT_AGE_MS_MAX + 1
    total = _answered(world)
    assert (total.reported_bytes, total.counted_bytes) == (100_000, 100_000), "who is not heard may lead nothing"


def test_a_reclaimed_grant_is_counted_once_among_any_other_reports() -> None:
    """After a smaller purchase, the broker reports other instances before its remaining grant for this one."""
    ledger = StorageLedger(0)
    ledger.set_live_brokers(BROKERS, DEAD_BROKER_MS)
    left = dict.fromkeys(BROKERS, 1_000 * BOUGHT)
    for id in BROKERS:
        ledger.begin_report(id, 1, True, DEAD_BROKER_MS)
        change = ledger.handle_report(
            id, ReportedUse(NAME, 0, left[id], 0, 0, False), Bought(BOUGHT, 3), DEAD_BROKER_MS
        )
        left[id] += change.delta_bytes
    assert left[1] < BOUGHT

    ledger.begin_report(1, 1, True, DEAD_BROKER_MS)
    assert NAME in ledger.instances_to_review(1)
    assert ledger.review(1, NAME, Bought(BOUGHT, 3), DEAD_BROKER_MS) is None

    ledger.begin_report(1, 1, True, DEAD_BROKER_MS)
    change = ledger.handle_report(1, ReportedUse(NAME, 0, left[1], 1, 1, True), Bought(BOUGHT, 3), DEAD_BROKER_MS)
    assert (change.used_bytes, change.is_full) == (0, False)
