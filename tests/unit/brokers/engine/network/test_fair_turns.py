"""Instances take turns on the event loop: a queued one leaves time to others, however many sockets it has (CKA-4)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.contract.loop_weights import TENANT_WEIGHT_MAX
from brokers.engine.scheduling.fair_turns import SHARED_S, SHARED_TURN_S, SLICE_S, TURN_S, FairTurns, InstanceTurns
from brokers.engine.scheduling.weights import INSTANCE_WEIGHT_MAX, INSTANCE_WEIGHT_MIN

# Time without use after which used time has decayed.
WINDOW_S = 2 * TURN_S
INSTANCES = ("a", "b", "c")


class Loop:
    """An event loop: clock, scheduled callbacks, and the work served in each turn."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.soon: list[Callable[[], None]] = []
        self.served: list[str] = []
        self.fair_turns = FairTurns(self.soon.append, lambda: self.now_s)

    def turn(self) -> list[str]:
        """Runs one iteration; returns the work that was served."""
        self.served.clear()
        soon, self.soon[:] = list(self.soon), []
        for callback in soon:
            callback()
        return list(self.served)

    def spend(self, turns: InstanceTurns, spent_s: float) -> None:
        began_s, self.now_s = self.now_s, self.now_s + spent_s
        turns.charge(began_s, self.now_s)


class Socket:
    def __init__(self, loop: Loop, name: str, cost_s: float) -> None:
        self.loop, self.name, self.cost_s = loop, name, cost_s

    def on_turn(self) -> None:
        self.loop.now_s += self.cost_s
        self.loop.served.append(self.name)


def spent(loop: Loop) -> InstanceTurns:
    turns = InstanceTurns(loop.fair_turns)
    loop.spend(turns, TURN_S + SLICE_S)
    assert turns.must_queue(loop.now_s)
    return turns


def test_an_instance_that_uses_less_than_its_turn_never_queues() -> None:
    loop = Loop()
    turns = InstanceTurns(loop.fair_turns)
    for _ in range(1_000):
        loop.spend(turns, TURN_S * 0.9)
        loop.now_s += WINDOW_S
        assert not turns.may_have_to_queue
    assert not loop.soon


def test_many_short_uses_in_one_window_count_together() -> None:
    loop = Loop()
    turns = InstanceTurns(loop.fair_turns)
    uses = 0
    while not turns.may_have_to_queue:
        loop.spend(turns, TURN_S / 40)
        uses += 1
    assert 40 <= uses <= 41


def test_a_socket_after_a_pause_of_a_window_is_served_at_once_again() -> None:
    loop = Loop()
    turns = spent(loop)
    loop.now_s += WINDOW_S + 0.001
    assert not turns.must_queue(loop.now_s)
    assert not turns.may_have_to_queue


def test_a_socket_queues_behind_others_of_its_instance() -> None:
    loop = Loop()
    turns = spent(loop)
    turns.enqueue(Socket(loop, "first", 0.0))
    loop.now_s += 10 * WINDOW_S
    assert turns.must_queue(loop.now_s)


def test_one_turn_of_the_loop_serves_a_long_line_for_one_turn() -> None:
    loop = Loop()
    turns = spent(loop)
    cost_s = TURN_S / 20
    for at in range(1_000):
        turns.enqueue(Socket(loop, str(at), cost_s))
    orders = []
    while loop.soon:
        served = loop.turn()
        assert len(served) <= 22
        orders += served
    assert orders == [str(at) for at in range(1_000)]
    assert not turns.may_have_to_queue


def test_a_short_line_waits_for_no_long_one() -> None:
    loop = Loop()
    many, few = spent(loop), spent(loop)
    for _ in range(1_000):
        many.enqueue(Socket(loop, "many", 0.0001))
    few.enqueue(Socket(loop, "few", 0.0001))
    assert "few" in loop.turn()


def test_heavy_and_light_requests_are_served_for_equal_times() -> None:
    loop = Loop()
    heavy, light = spent(loop), spent(loop)
    for _ in range(50):
        heavy.enqueue(Socket(loop, "heavy", 0.008))
    for _ in range(20_000):
        light.enqueue(Socket(loop, "light", 0.00005))
    times = {"heavy": 0.0, "light": 0.0}
    for _ in range(60):
        for name in loop.turn():
            times[name] += 0.008 if name == "heavy" else 0.00005
    assert abs(times["heavy"] - times["light"]) <= 0.008 + 2 * SLICE_S


def test_the_clusters_own_connections_never_queue() -> None:
    loop = Loop()
    turns = InstanceTurns(None)
    loop.spend(turns, 1.0)
    assert not turns.must_queue(loop.now_s)


@given(st.lists(st.tuples(st.sampled_from(INSTANCES), st.floats(0.0, 0.01)), max_size=60))
def test_everybody_in_line_is_served_once_and_in_the_order_of_its_instance(
    joining: list[tuple[str, float]],
) -> None:
    loop = Loop()
    lines = {name: spent(loop) for name in INSTANCES}
    for at, (name, cost_s) in enumerate(joining):
        lines[name].enqueue(Socket(loop, f"{name}{at}", cost_s))
    served = []
    while loop.soon:
        began_s = loop.now_s
        now = loop.turn()
        served += now
        assert loop.now_s - began_s <= TURN_S + 0.01 + 1e-9, "at most one request more than a turn"
    for name in INSTANCES:
        assert [who for who in served if who[0] == name] == [
            f"{name}{at}" for at, (joined, _) in enumerate(joining) if joined == name
        ]
    assert len(loop.fair_turns) == 0


def test_work_of_an_instance_that_need_not_queue_is_done_in_the_next_round() -> None:
    loop = Loop()
    turns, done = InstanceTurns(loop.fair_turns), []
    turns.schedule(loop.soon.append, lambda: done.append("soon"))
    assert not done, "never inside the event that woke it"
    loop.turn()
    turns.run_or_enqueue(lambda: done.append("now"))
    assert done == ["soon", "now"]


def test_a_thousand_pieces_of_work_that_one_event_woke_are_done_in_many_rounds() -> None:
    loop = Loop()
    turns, done = InstanceTurns(loop.fair_turns), 0

    def work() -> None:
        nonlocal done
        done += 1
        loop.spend(turns, TURN_S / 10)

    for _ in range(1_000):
        turns.schedule(loop.soon.append, work)
    rounds = 0
    while loop.soon:
        before = done
        loop.turn()
        rounds += 1
        assert done - before <= 25
    assert done == 1_000
    assert rounds >= 40


def test_work_that_is_cancelled_in_the_line_is_not_done() -> None:
    loop = Loop()
    turns, done = spent(loop), []
    cancelled = turns.run_or_enqueue(lambda: done.append("cancelled"))
    kept = turns.run_or_enqueue(lambda: done.append("kept"))
    assert not done
    cancelled.cancel()
    while loop.soon:
        loop.turn()
    assert done == ["kept"]
    assert kept.is_over


def test_a_fault_with_one_request_does_not_end_the_service_of_the_others() -> None:
    loop = Loop()
    turns, other = spent(loop), spent(loop)

    class Failing(Socket):
        def on_turn(self) -> None:
            raise ValueError("a mistake")

    turns.enqueue(Failing(loop, "failing", 0.0))
    turns.enqueue(Socket(loop, "behind", 0.0))
    other.enqueue(Socket(loop, "other", 0.0))
    served = []
    while loop.soon:
        with contextlib.suppress(ValueError):
            loop.turn()
        served += loop.served
        loop.served.clear()
    assert sorted(served) == ["behind", "other"]
    assert len(loop.fair_turns) == 0


async def test_tasks_that_one_event_woke_run_one_after_the_other_and_their_time_is_charged() -> None:
    loop, cost_s = Loop(), SHARED_TURN_S / 4
    idle = InstanceTurns(loop.fair_turns)
    running = asyncio.get_running_loop()
    assert idle.turn_to_resume(running) is None, "it need not queue"
    turns, resumed = spent(loop), 0
    before_s = turns.loop_queue.used_s

    async def task() -> None:
        nonlocal resumed
        turn = turns.turn_to_resume(running)
        assert turn is not None
        await turn
        resumed += 1
        loop.spend(turns, cost_s)

    tasks = [asyncio.create_task(task()) for _ in range(100)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.sleep(0)
    rounds = 0
    while loop.soon:
        before = resumed
        running.call_soon(loop.turn)
        await asyncio.sleep(0)
        rounds += 1
        assert resumed - before <= TURN_S / cost_s + 1, "each step runs within its turn"
    await asyncio.wait(tasks)
    assert tasks[0].cancelled() and resumed == 99
    assert rounds >= 99 * cost_s / TURN_S - 1
    assert abs(turns.loop_queue.used_s - before_s - 99 * cost_s) < 1e-9


def tenant_of(loop: Loop, instances: int, tenant_id: str = "ten-many") -> list[InstanceTurns]:
    """Returns the instances of one tenant, which used up its share."""
    members = [InstanceTurns(loop.fair_turns, loop.fair_turns.register_instance(tenant_id)) for _ in range(instances)]
    loop.spend(members[0], TURN_S + SLICE_S)
    return members


def test_eight_instances_that_each_stay_below_the_bound_queue_as_one() -> None:
    loop = Loop()
    members = [InstanceTurns(loop.fair_turns, loop.fair_turns.register_instance("ten-many")) for _ in range(8)]
    other = InstanceTurns(loop.fair_turns, loop.fair_turns.register_instance("ten-other"))
    for turns in members:
        assert not turns.may_have_to_queue
        loop.spend(turns, TURN_S / 7.5)
    assert all(turns.must_queue(loop.now_s) for turns in members)
    assert not other.must_queue(loop.now_s)


def test_eight_instances_of_a_tenant_are_served_as_long_as_one_of_another() -> None:
    loop = Loop()
    members, victim = tenant_of(loop, 8), spent(loop)
    for turns in [*members, victim]:
        for _ in range(2_000):
            turns.enqueue(Socket(loop, "victim" if turns is victim else str(members.index(turns)), 0.0001))
    served = []
    for _ in range(100):
        served += loop.turn()
    assert abs(served.count("victim") - len(served) / 2) <= 2 * SLICE_S / 0.0001
    by_instance = [served.count(str(number)) for number in range(8)]
    assert max(by_instance) - min(by_instance) <= 2 * SLICE_S / 0.0001


@given(st.integers(1, 16))
def test_a_victim_waits_beside_many_instances_of_a_tenant_as_long_as_beside_one(instances: int) -> None:
    loop = Loop()
    members, victim = tenant_of(loop, instances), spent(loop)
    for turns in members:
        for _ in range(500):
            turns.enqueue(Socket(loop, "attacker", 0.0001))
    for _ in range(20):
        loop.turn()
        victim.enqueue(Socket(loop, "victim", 0.0001))
        began_s = loop.now_s
        while "victim" not in loop.served:
            loop.turn()
        assert loop.now_s - began_s <= TURN_S + 0.0002


def test_an_instance_that_moves_to_another_tenant_takes_its_line_along() -> None:
    loop = Loop()
    first, second = tenant_of(loop, 2)
    second.enqueue(Socket(loop, "moved", 0.0))
    before = second.tenant
    second.move_to(loop.fair_turns.register_instance("ten-other"))
    loop.fair_turns.exit(before)
    assert (before.is_queued, before.instance_count) == (False, 1)
    assert loop.turn() == ["moved"]
    assert first.tenant is before and not second.may_have_to_queue


def test_a_tenant_is_forgotten_with_its_last_instance() -> None:
    loop = Loop()
    tenant = loop.fair_turns.register_instance("ten-a")
    assert loop.fair_turns.register_instance("ten-a") is tenant
    loop.fair_turns.exit(tenant)
    loop.fair_turns.exit(tenant)
    assert loop.fair_turns.register_instance("ten-a") is not tenant


def test_time_that_is_reported_twice_is_charged_once() -> None:
    loop = Loop()
    turns = InstanceTurns(loop.fair_turns)
    outer_s = loop.now_s
    loop.spend(turns, 0.0003)
    loop.now_s += 0.0001
    turns.charge(outer_s, loop.now_s)
    assert abs(turns.loop_queue.used_s - 0.0004) < 1e-9


def test_one_long_step_makes_all_sockets_behind_it_queue() -> None:
    loop = Loop()
    turns = InstanceTurns(loop.fair_turns)
    loop.spend(turns, 10 * TURN_S)
    assert turns.must_queue(loop.now_s), "however long ago it began"


def test_a_turn_is_shorter_while_another_tenant_uses_the_loop() -> None:
    loop = Loop()
    hostile, victim = spent(loop), InstanceTurns(loop.fair_turns)
    for _ in range(1_000):
        hostile.enqueue(Socket(loop, "hostile", TURN_S / 20))
    assert 20 <= len(loop.turn()) <= 21
    loop.spend(victim, 0.0001)
    assert 10 <= len(loop.turn()) <= 11
    loop.now_s += SHARED_S
    assert 20 <= len(loop.turn()) <= 21


def test_time_used_without_queueing_is_waited_for_when_others_queue() -> None:
    loop = Loop()
    hostile, victim = spent(loop), spent(loop)
    for _ in range(1_000):
        victim.enqueue(Socket(loop, "victim", 0.0001))
    for _ in range(20):  # like resumed tasks
        loop.spend(hostile, 0.0005)
    assert hostile.must_queue(loop.now_s)
    hostile.enqueue(Socket(loop, "hostile", 0.0001))
    before = hostile.loop_queue.tenant.credit
    served: list[str] = []
    while "hostile" not in served:
        served += loop.turn()
    assert before < -0.009
    assert abs(served.count("victim") * 0.0001 - 0.01) <= 4 * SLICE_S, "as long as it had used"


def test_a_tenant_alone_owes_nothing_whatever_it_used() -> None:
    loop = Loop()
    busy, other = InstanceTurns(loop.fair_turns), InstanceTurns(loop.fair_turns)
    for _ in range(1_000):
        loop.spend(busy, 0.01)
    loop.now_s += 100.0
    other.enqueue(Socket(loop, "other", 0.0001))
    assert not busy.must_queue(loop.now_s)


WEIGHTS = st.sampled_from([1 / 32, 0.05, 0.2, 1.0])
COSTS = st.sampled_from([0.00003, 0.0001, 0.0004])


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(WEIGHTS, COSTS, st.booleans()), min_size=2, max_size=5))
def test_the_loop_is_shared_by_weight_whether_or_not_work_queues(mix: list[tuple[float, float, bool]]) -> None:
    """Work without a queue, such as that of tasks, counts; a tenant in debt queues before more of it begins."""
    loop, served_s, until_s = Loop(), [0.0] * len(mix), 4.0
    members = [
        InstanceTurns(loop.fair_turns, loop.fair_turns.register_instance(str(number))) for number in range(len(mix))
    ]
    for turns, (weight, _, _) in zip(members, mix, strict=True):
        loop.fair_turns.set_weights(turns.loop_queue, weight, weight)

    class Work(Socket):
        def __init__(self, number: int) -> None:
            super().__init__(loop, str(number), mix[number][1])
            self.number = number

        def on_turn(self) -> None:
            super().on_turn()
            served_s[self.number] += self.cost_s
            if mix[self.number][2]:  # more of it comes in the next iteration, without queueing
                resumed.append(self.number)
            members[self.number].enqueue(Work(self.number))

    resumed: list[int] = []
    for number in range(len(mix)):
        for _ in range(40):
            members[number].enqueue(Work(number))
    began_s = loop.now_s
    while loop.now_s - began_s < until_s:
        loop.turn()
        for number in resumed:
            loop.spend(members[number], 0.0001)
            served_s[number] += 0.0001
        resumed.clear()
    total_s = loop.now_s - began_s
    for number, (weight, _, _) in enumerate(mix):
        due_s = total_s * weight / sum(each for each, _, _ in mix)
        assert abs(served_s[number] - due_s) <= 0.05 * due_s + 0.02, "within five percent and a round"


@settings(max_examples=20, deadline=None)
@given(st.floats(0.00001, 0.02), st.integers(1, 10))
def test_the_smallest_is_served_within_a_bounded_time_beside_the_largest(cost_s: float, others: int) -> None:
    loop = Loop()
    rounds = cost_s / (INSTANCE_WEIGHT_MIN * SLICE_S) + 1
    small = InstanceTurns(loop.fair_turns, loop.fair_turns.register_instance("small"))
    loop.fair_turns.set_weights(small.loop_queue, INSTANCE_WEIGHT_MIN, INSTANCE_WEIGHT_MIN)
    for number in range(others):
        large = InstanceTurns(loop.fair_turns, loop.fair_turns.register_instance(f"large-{number}"))
        loop.fair_turns.set_weights(large.loop_queue, INSTANCE_WEIGHT_MAX, TENANT_WEIGHT_MAX)
        for _ in range(int((rounds + 2) * (TENANT_WEIGHT_MAX + 1))):
            large.enqueue(Socket(loop, "large", 0.0005))
    loop.spend(small, cost_s)  # its last use
    small.enqueue(Socket(loop, "small", 0.0001))
    began_s = loop.now_s
    while "small" not in loop.turn():
        assert loop.soon
    waited_s = loop.now_s - began_s
    assert waited_s <= (rounds + 1) * others * (TENANT_WEIGHT_MAX * SLICE_S + 0.0005) + TURN_S
