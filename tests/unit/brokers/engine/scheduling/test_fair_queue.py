"""The fair queue serves tenants, and the instances of a tenant, in proportion to their weights."""

from __future__ import annotations

import importlib.util
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.engine.scheduling import fair_queue
from brokers.native.modules import source_of

QUANTUM: Final = 1.0
COST_MAX: Final = 3.0
SERVED: Final = 2_500.0
costs = st.floats(0.3, COST_MAX)
weights = st.integers(1, 4)
# A tenant: its weight, and for each instance its weight and the cost of its items.
tenants = st.tuples(weights, st.lists(st.tuples(weights, costs), min_size=1, max_size=8))
Mix = list[tuple[int, list[tuple[int, float]]]]


class World:
    """A queue, and the service of each instance."""

    def __init__(self, module: Any, mix: Mix) -> None:
        self.queue = module.FairQueue(QUANTUM)
        self.tenants = [module.TenantAccount(QUANTUM, str(number), weight) for number, (weight, _) in enumerate(mix)]
        self.instances: list[list[Any]] = []
        self.cost: dict[str, float] = {}
        self.served: dict[str, float] = {}
        for tenant, (_, members) in zip(self.tenants, mix, strict=True):
            self.instances.append([])
            for number, (weight, cost) in enumerate(members):
                instance = module.InstanceQueue(tenant, f"{tenant.key}.{number}", weight)
                self.instances[-1].append(instance)
                self.cost[instance.key], self.served[instance.key] = cost, 0.0

    def fill(self, instance: Any, items: int = 2) -> None:
        """Keeps items of the instance queued."""
        while len(instance) < items:
            self.queue.enqueue(instance, object())

    def serve(self) -> Any:
        instance = self.queue.next_instance()
        self.queue.pop(instance)
        self.queue.charge(instance, self.cost[instance.key])
        self.served[instance.key] += self.cost[instance.key]
        return instance

    def of_tenant(self, number: int) -> float:
        return sum(self.served[instance.key] for instance in self.instances[number])


def shares_follow_weights(module: Any, mix: Mix) -> None:
    world, total = World(module, mix), 0.0
    for instance in chain(*world.instances):
        world.fill(instance)
    while total < SERVED:
        served = world.serve()
        total += world.cost[served.key]
        world.fill(served)
    for number, (weight, _) in enumerate(mix):
        due = SERVED * weight / sum(each for each, _ in mix)
        assert abs(world.of_tenant(number) - due) <= 0.05 * due + QUANTUM * weight
        by_weight = [world.served[instance.key] / instance.weight for instance in world.instances[number]]
        assert max(by_weight) - min(by_weight) <= 2 * (QUANTUM + COST_MAX), "instances share their tenant's part"


def idle_time_gives_no_credit(module: Any, mix: Mix) -> None:
    """The first tenant was idle while the others were served, after it was served itself."""
    world = World(module, mix)
    back = world.instances[0]
    for instance in chain(*world.instances):
        world.fill(instance, 1)
    for _ in range(500):
        served = world.serve()
        if served not in back:
            world.fill(served)
    for instance in chain(*world.instances):
        world.served[instance.key] = 0.0
        world.fill(instance)
    while sum(world.served.values()) < 200:
        world.fill(world.serve())
    due = 200 * mix[0][0] / sum(weight for weight, _ in mix)
    assert world.of_tenant(0) <= due + QUANTUM * mix[0][0] + 2 * COST_MAX


def coming_and_going_gains_nothing(module: Any, cost: float, cancels: bool) -> None:
    """One tenant queues single items, also cancelled and queued again, beside one that always has some queued."""
    world = World(module, [(1, [(1, cost)]), (1, [(1, 0.3)])])
    (guest,), (host,) = world.instances
    while sum(world.served.values()) < 500:
        world.fill(host)
        if not len(guest):
            item = object()
            world.queue.enqueue(guest, item)
        if cancels and world.queue.cancel(guest, item):
            world.queue.enqueue(guest, item)
        world.serve()
    assert world.of_tenant(0) <= 250 * 1.05 + 2 * cost


def use_beside_the_queue_is_paid_for(module: Any, weight: int, cost: float, others: int) -> None:
    """One tenant is served without queueing while it has little debt; others always have items queued."""
    world = World(module, [(weight, [(1, cost)]), *[(1, [(1, 0.4)])] * others])
    direct = world.instances[0][0]
    for instance in chain(*world.instances[1:]):
        world.fill(instance)
    while sum(world.served.values()) < SERVED:
        for _ in range(4):
            if not world.queue.is_in_debt(direct.tenant, QUANTUM):
                world.queue.charge(direct, cost)
                world.served[direct.key] += cost
        served = world.serve()
        if served is not direct:
            world.fill(served)
    due = SERVED * weight / (weight + others)
    assert world.of_tenant(0) <= 1.05 * due + QUANTUM * (1 + weight) + 2 * cost, "it has no more than its part"


def a_debt_is_paid_by_the_rounds_after_it(module: Any) -> None:
    """One tenant uses ten quanta outside the queue, long after it was served, then queues."""
    world = World(module, [(1, [(1, 0.5)]), (1, [(1, 0.5)])])
    (guest,), (host,) = world.instances
    world.fill(guest, 1)
    assert world.serve() is guest
    world.fill(host)
    for _ in range(200):
        world.fill(world.serve())
    world.queue.charge(guest, 10 * QUANTUM)
    world.served[host.key] = 0.0
    world.fill(guest, 1)
    while (served := world.serve()) is not guest:
        world.fill(served)
    assert abs(world.served[host.key] - 10 * QUANTUM) <= 2 * QUANTUM


def a_light_tenant_is_served_next(module: Any) -> None:
    """Eight tenants always have items queued; a ninth queues one every two rounds, of half a quantum."""
    world = World(module, [(1, [(1, 0.5)])] * 9)
    (guest,) = world.instances[0]
    world.fill(guest, 1)
    assert world.serve() is guest
    for instance in chain(*world.instances[1:]):
        world.fill(instance)
    for _ in range(50):
        for _ in range(2 * 8 * 2):
            world.fill(world.serve())
        world.fill(guest, 1)
        assert world.serve() is guest, "it waits for no round of the others"


def test_a_tenant_that_uses_less_than_its_part_is_served_next() -> None:
    a_light_tenant_is_served_next(fair_queue)


def test_a_debt_made_beside_the_queue_is_paid_by_the_rounds_after_it() -> None:
    a_debt_is_paid_by_the_rounds_after_it(fair_queue)


@settings(max_examples=25, deadline=None)
@given(weights, costs, st.integers(1, 5))
def test_use_beside_the_queue_counts_for_the_share_of_its_tenant(weight: int, cost: float, others: int) -> None:
    use_beside_the_queue_is_paid_for(fair_queue, weight, cost, others)


@settings(max_examples=15, deadline=None)
@given(st.lists(tenants, min_size=1, max_size=4))
def test_time_is_served_within_five_percent_of_the_weights(mix: Mix) -> None:
    shares_follow_weights(fair_queue, mix)


@settings(max_examples=25, deadline=None)
@given(st.lists(tenants, min_size=2, max_size=4))
def test_an_idle_tenant_gathers_no_credit(mix: Mix) -> None:
    idle_time_gives_no_credit(fair_queue, mix)


@settings(max_examples=25, deadline=None)
@given(costs, st.booleans())
def test_leaving_and_coming_back_gains_nothing(cost: float, cancels: bool) -> None:
    coming_and_going_gains_nothing(fair_queue, cost, cancels)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from(["add", "cancel", "serve"]))))
def test_each_item_is_served_once_in_the_order_of_its_instance_or_cancelled(steps: list[tuple[int, int, str]]) -> None:
    world = World(fair_queue, [(weight, [(weight, 40.0), (1, 0.01), (3, 1.0)]) for weight in (1, 2, 4)])
    expected: dict[str, list[int]] = {key: [] for key in world.cost}
    for number, (tenant, member, step) in enumerate(steps):
        instance = world.instances[tenant][member]
        waiting = expected[instance.key]
        if step == "add":
            world.queue.enqueue(instance, number)
            world.queue.enqueue(instance, number)
            waiting.append(number)
        elif step == "cancel":
            assert world.queue.cancel(instance, waiting[-1] if waiting else -1) is bool(waiting)
            del waiting[-1:]
        else:
            serve_in_order(world, expected)
        assert len(world.queue) == sum(any(expected[each.key] for each in members) for members in world.instances)
    for _ in range(sum(map(len, expected.values()))):
        serve_in_order(world, expected)
    assert world.queue.next_instance() is None and not len(world.queue)


def serve_in_order(world: World, expected: dict[str, list[int]]) -> None:
    instance = world.queue.next_instance()
    if instance is None:
        assert not any(expected.values())
        return
    assert world.queue.pop(instance) == expected[instance.key].pop(0)
    world.queue.charge(instance, world.cost[instance.key])


def test_nobody_waits_longer_than_one_item_and_one_quantum_of_each_other_tenant() -> None:
    world = World(fair_queue, [(1, [(1, 0.5)] * 8), (1, [(1, 3.0)]), (1, [(1, 0.3)])])
    for instance in world.instances[0] + world.instances[1]:
        world.fill(instance)
    for _ in range(1_000):
        world.fill(world.serve())
    (late,) = world.instances[2]
    world.fill(late, 1)
    waited = 0.0
    while (served := world.serve()) is not late:
        waited += world.cost[served.key]
        world.fill(served)
    assert waited <= 2 * (QUANTUM + 0.5) + QUANTUM + 3.0


def test_eight_instances_of_one_tenant_get_as_much_as_one_of_another() -> None:
    shares_follow_weights(fair_queue, [(1, [(1, 0.5)] * 8), (1, [(1, 0.5)])])


def test_a_very_expensive_item_is_paid_for_in_one_step() -> None:
    world = World(fair_queue, [(1, [(1, 1e9)]), (1, [(1, 1e9)]), (1, [(1, 5e8)])])
    order = []
    for _ in range(60):
        for members in world.instances:
            world.fill(members[0])
        order.append(world.serve().key)
    assert (order.count("0.0"), order.count("1.0"), order.count("2.0")) == (15, 15, 30)


def test_a_full_instance_refuses_and_others_do_not() -> None:
    queue: fair_queue.FairQueue[int] = fair_queue.FairQueue(QUANTUM, 2)
    tenant = fair_queue.TenantAccount(QUANTUM)
    full, other = (fair_queue.InstanceQueue[int](tenant) for _ in range(2))
    queue.enqueue(full, 1)
    queue.enqueue(full, 2)
    with pytest.raises(fair_queue.QueueFull):
        queue.enqueue(full, 3)
    queue.enqueue(other, 3)
    assert queue.cancel(full, 1)
    queue.enqueue(full, 4)


def test_a_suspended_instance_keeps_its_items_and_one_that_moves_takes_them_along() -> None:
    queue: fair_queue.FairQueue[str] = fair_queue.FairQueue(QUANTUM)
    here, there = fair_queue.TenantAccount(QUANTUM), fair_queue.TenantAccount(QUANTUM)
    instance = fair_queue.InstanceQueue[str](here)
    queue.enqueue(instance, "first")
    queue.suspend(instance)
    queue.enqueue(instance, "second")
    assert queue.next_instance() is None
    queue.resume(instance)
    queue.move(instance, there)
    assert not here.is_queued and there.is_queued
    assert queue.next_instance() is instance
    assert [queue.pop(instance), queue.pop(instance)] == ["first", "second"]


EARNED_CREDIT: Final = "account.credit + passed_rounds * grant"
MIX: Final[Mix] = [(1, [(1, 0.3)] * 4), (4, [(1, 3.0), (2, 0.5)]), (2, [(1, 1.0)])]


@pytest.mark.parametrize(
    ("right", "wrong", "property_that_finds_it"),
    [
        ("        tenant.credit -= cost\n", "        pass\n", shares_follow_weights),
        ("account.credit += account.weight * self._quantum", "account.credit += self._quantum", shares_follow_weights),
        ("        accounts.rotate(-1)\n", "        pass\n", shares_follow_weights),
        (f"min(grant, {EARNED_CREDIT})", EARNED_CREDIT, idle_time_gives_no_credit),
        (f"min(grant, {EARNED_CREDIT})", "grant", "use beside the queue"),
        ("tenant.instances.catch_up(instance)", "return", "use beside the queue"),
        (
            "                self._tenants.catch_up(tenant)\n",
            "                pass\n",
            a_debt_is_paid_by_the_rounds_after_it,
        ),
        (EARNED_CREDIT, "account.credit + 2 * passed_rounds * grant", "use beside the queue"),
        ("return tenant.credit < -allowance", "return False", "use beside the queue"),
        ("if account.round <= self._round:", "if True:", "cancelling guest"),
        ("if account.round == self._round and account.credit > 0.0:", "if False:", a_light_tenant_is_served_next),
    ],
)
def test_a_planted_mistake_is_found(tmp_path: Path, right: str, wrong: str, property_that_finds_it: Any) -> None:
    module = planted(tmp_path, right, wrong)
    with pytest.raises(AssertionError):
        if property_that_finds_it == "use beside the queue":
            use_beside_the_queue_is_paid_for(module, 1, 0.5, 4)
        elif isinstance(property_that_finds_it, str):
            coming_and_going_gains_nothing(module, COST_MAX, property_that_finds_it.startswith("cancelling"))
        elif property_that_finds_it in {a_debt_is_paid_by_the_rounds_after_it, a_light_tenant_is_served_next}:
            property_that_finds_it(module)
        else:
            property_that_finds_it(module, MIX)


def planted(directory: Path, right: str, wrong: str) -> ModuleType:
    """Returns the module with a mistake in it."""
    source = source_of(fair_queue.__name__).read_text()
    assert right in source
    path = directory / "planted_fair_queue.py"
    path.write_text(source.replace(right, wrong))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
