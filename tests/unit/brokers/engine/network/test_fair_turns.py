"""Instances take turns at the loop: one that queues leaves others a place, however many sockets it has (CKA-4)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from brokers.engine.network.fair_turns import RESUMED_S, SLICE_S, TURN_S, WINDOW_S, FairTurns, InstanceTurns

INSTANCES = ("a", "b", "c")


class Loop:
    """The clock, what is called soon, and what was served in which turn."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.soon: list[Callable[[], None]] = []
        self.served: list[str] = []
        self.fair_turns = FairTurns(self.soon.append, lambda: self.now_s)

    def turn(self) -> list[str]:
        """What is served in one turn of the loop."""
        self.served.clear()
        soon, self.soon[:] = list(self.soon), []
        for callback in soon:
            callback()
        return list(self.served)

    def spend(self, turns: InstanceTurns, spent_s: float) -> None:
        began_s, self.now_s = self.now_s, self.now_s + spent_s
        turns.used(began_s, self.now_s)


class Socket:
    def __init__(self, loop: Loop, name: str, cost_s: float) -> None:
        self.loop, self.name, self.cost_s = loop, name, cost_s

    def on_turn(self) -> None:
        self.loop.now_s += self.cost_s
        self.loop.served.append(self.name)


def spent(loop: Loop) -> InstanceTurns:
    turns = InstanceTurns(loop.fair_turns)
    loop.spend(turns, TURN_S + SLICE_S)
    assert turns.must_wait(loop.now_s)
    return turns


def test_an_instance_that_uses_less_than_its_turn_never_queues() -> None:
    loop = Loop()
    turns = InstanceTurns(loop.fair_turns)
    for _ in range(1_000):
        loop.spend(turns, TURN_S * 0.9)
        loop.now_s += WINDOW_S
        assert not turns.is_spent
    assert not loop.soon


def test_many_short_uses_in_one_window_count_together() -> None:
    loop = Loop()
    turns = InstanceTurns(loop.fair_turns)
    uses = 0
    while not turns.is_spent:
        loop.spend(turns, TURN_S / 40)
        uses += 1
    assert 40 <= uses <= 41


def test_who_pauses_for_a_window_with_nobody_in_line_is_served_at_once_again() -> None:
    loop = Loop()
    turns = spent(loop)
    loop.now_s += WINDOW_S + 0.001
    assert not turns.must_wait(loop.now_s)
    assert not turns.is_spent


def test_who_comes_while_others_of_its_instance_are_in_line_queues_behind_them() -> None:
    loop = Loop()
    turns = spent(loop)
    turns.join(Socket(loop, "first", 0.0))
    loop.now_s += 10 * WINDOW_S
    assert turns.must_wait(loop.now_s)


def test_one_turn_of_the_loop_serves_a_long_line_for_one_turn() -> None:
    loop = Loop()
    turns = spent(loop)
    cost_s = TURN_S / 20
    for at in range(1_000):
        turns.join(Socket(loop, str(at), cost_s))
    orders = []
    while loop.soon:
        served = loop.turn()
        assert len(served) <= 22
        orders += served
    assert orders == [str(at) for at in range(1_000)]
    assert not turns.is_spent


def test_a_short_line_waits_for_no_long_one() -> None:
    loop = Loop()
    many, few = spent(loop), spent(loop)
    for _ in range(1_000):
        many.join(Socket(loop, "many", 0.0001))
    few.join(Socket(loop, "few", 0.0001))
    assert "few" in loop.turn()


def test_who_has_heavy_requests_is_served_as_long_as_who_has_light_ones() -> None:
    loop = Loop()
    heavy, light = spent(loop), spent(loop)
    for _ in range(50):
        heavy.join(Socket(loop, "heavy", 0.008))
    for _ in range(20_000):
        light.join(Socket(loop, "light", 0.00005))
    times = {"heavy": 0.0, "light": 0.0}
    for _ in range(60):
        for name in loop.turn():
            times[name] += 0.008 if name == "heavy" else 0.00005
    assert abs(times["heavy"] - times["light"]) <= 0.008 + 2 * SLICE_S


def test_the_clusters_own_connections_never_queue() -> None:
    loop = Loop()
    turns = InstanceTurns(None)
    loop.spend(turns, 1.0)
    assert not turns.must_wait(loop.now_s)


@given(st.lists(st.tuples(st.sampled_from(INSTANCES), st.floats(0.0, 0.01)), max_size=60))
def test_everybody_in_line_is_served_once_and_in_the_order_of_its_instance(
    joining: list[tuple[str, float]],
) -> None:
    loop = Loop()
    lines = {name: spent(loop) for name in INSTANCES}
    for at, (name, cost_s) in enumerate(joining):
        lines[name].join(Socket(loop, f"{name}{at}", cost_s))
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
    turns.in_turn(loop.soon.append, lambda: done.append("soon"))
    assert not done, "never inside the event that woke it"
    loop.turn()
    turns.now_or_in_turn(lambda: done.append("now"))
    assert done == ["soon", "now"]


def test_a_thousand_pieces_of_work_that_one_event_woke_are_done_in_many_rounds() -> None:
    loop = Loop()
    turns, done = InstanceTurns(loop.fair_turns), 0

    def work() -> None:
        nonlocal done
        done += 1
        loop.spend(turns, TURN_S / 10)

    for _ in range(1_000):
        turns.in_turn(loop.soon.append, work)
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
    cancelled = turns.now_or_in_turn(lambda: done.append("cancelled"))
    kept = turns.now_or_in_turn(lambda: done.append("kept"))
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

    turns.join(Failing(loop, "failing", 0.0))
    turns.join(Socket(loop, "behind", 0.0))
    other.join(Socket(loop, "other", 0.0))
    served = []
    while loop.soon:
        with contextlib.suppress(ValueError):
            loop.turn()
        served += loop.served
        loop.served.clear()
    assert sorted(served) == ["behind", "other"]
    assert len(loop.fair_turns) == 0


async def test_tasks_that_one_event_woke_are_resumed_in_many_rounds() -> None:
    loop = Loop()
    turns = InstanceTurns(loop.fair_turns)
    future = asyncio.get_running_loop().create_future
    assert turns.turn_to_resume(future) is None, "it need not queue"
    turns = spent(loop)
    resumed = [turns.turn_to_resume(future) for _ in range(100)]
    assert all(each is not None for each in resumed)
    first = resumed[0]
    assert first is not None
    first.cancel()
    rounds = 0
    while loop.soon:
        before = sum(each.done() for each in resumed if each is not None)
        loop.turn()
        rounds += 1
        after = sum(each.done() for each in resumed if each is not None)
        assert after - before <= TURN_S / RESUMED_S + 1
    assert all(each is not None and each.done() for each in resumed)
    assert rounds >= 100 * RESUMED_S / TURN_S


def tenant_of(loop: Loop, instances: int, tenant_id: str = "ten-many") -> list[InstanceTurns]:
    """The instances of one tenant, which used up its turn."""
    members = [InstanceTurns(loop.fair_turns, loop.fair_turns.enter(tenant_id)) for _ in range(instances)]
    loop.spend(members[0], TURN_S + SLICE_S)
    return members


def test_eight_instances_that_each_stay_below_the_bound_queue_as_one() -> None:
    loop = Loop()
    members = [InstanceTurns(loop.fair_turns, loop.fair_turns.enter("ten-many")) for _ in range(8)]
    other = InstanceTurns(loop.fair_turns, loop.fair_turns.enter("ten-other"))
    for turns in members:
        assert not turns.is_spent
        loop.spend(turns, TURN_S / 7.5)
    assert all(turns.must_wait(loop.now_s) for turns in members)
    assert not other.must_wait(loop.now_s)


def test_eight_instances_of_a_tenant_are_served_as_long_as_one_of_another() -> None:
    loop = Loop()
    members, victim = tenant_of(loop, 8), spent(loop)
    for turns in [*members, victim]:
        for _ in range(2_000):
            turns.join(Socket(loop, "victim" if turns is victim else str(members.index(turns)), 0.0001))
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
            turns.join(Socket(loop, "attacker", 0.0001))
    for _ in range(20):
        loop.turn()
        victim.join(Socket(loop, "victim", 0.0001))
        began_s = loop.now_s
        while "victim" not in loop.served:
            loop.turn()
        assert loop.now_s - began_s <= TURN_S + 0.0002


def test_an_instance_that_moves_to_another_tenant_takes_its_line_along() -> None:
    loop = Loop()
    first, second = tenant_of(loop, 2)
    second.join(Socket(loop, "moved", 0.0))
    before = second.tenant
    second.move_to(loop.fair_turns.enter("ten-other"))
    loop.fair_turns.exit(before)
    assert (before.is_queued, before.instance_count) == (False, 1)
    assert loop.turn() == ["moved"]
    assert first.tenant is before and not second.is_spent


def test_a_tenant_is_forgotten_with_its_last_instance() -> None:
    loop = Loop()
    tenant = loop.fair_turns.enter("ten-a")
    assert loop.fair_turns.enter("ten-a") is tenant
    loop.fair_turns.exit(tenant)
    loop.fair_turns.exit(tenant)
    assert loop.fair_turns.enter("ten-a") is not tenant
