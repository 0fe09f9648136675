"""Random tenants at one event loop, and properties that hold for each of them independently of the others."""

from __future__ import annotations

import random
from pathlib import Path

from brokers.engine.scheduling.fair_turns import SLICE_S, TURN_S, InstanceTurns, TenantTurns
from tests.simulation.scheduling.loop import SimulatedLoop, Socket

TENANTS_MAX, INSTANCES_MAX, SOCKETS = 5, 8, 4
COSTS_S = (0.000_03, 0.000_2, 0.001, 0.004)
PROBE_COST_S, PROBE_PAUSE_S = 0.000_05, 0.02
WARM_UP_S, MEASURED_S = 0.5, 1.5
SHARE_TOLERANCE = 0.05


class Instance:
    """An instance with its sockets; it floods if they send without a pause."""

    def __init__(self, run: SchedulingRun, tenant: Tenant, weight: float, name: str) -> None:
        self.tenant = tenant
        self.weight = weight
        self.turns = InstanceTurns(run.loop.fair_turns, tenant.turns, name)
        self.sockets: list[Socket] = []

    @property
    def is_flooding(self) -> bool:
        return len(self.sockets) >= SOCKETS and all(socket.pause_s == 0.0 for socket in self.sockets)


class Tenant:
    """A tenant with at least one instance."""

    def __init__(self, run: SchedulingRun, number: int) -> None:
        self.name = f"tenant {number}"
        self.turns: TenantTurns = run.loop.fair_turns.register_instance(self.name)
        self.instances: list[Instance] = []

    @property
    def weight(self) -> float:
        return min(
            sum(instance.weight for instance in self.instances), 2 * max(instance.weight for instance in self.instances)
        )

    @property
    def used_s(self) -> float:
        return sum(instance.turns.loop_queue.used_s for instance in self.instances)


class SchedulingRun:
    """One broker's loop: each step changes one thing and lets it run, `check` measures the part of each tenant."""

    def __init__(self, seed: int, _home: Path | None = None) -> None:
        self.random = random.Random(seed)
        self.history: list[str] = []
        self.loop = SimulatedLoop()
        self.tenants: list[Tenant] = []
        self._numbers = 0
        self._removed_s = 0.0
        # A neighbour that uses a fraction of a percent of the loop.
        self.probe = self._make_instance(self._make_tenant(), 1.0)
        self._add_sockets(self.probe, 1, PROBE_COST_S, PROBE_PAUSE_S)

    def step(self) -> None:
        change = self.random.choice(
            (
                self.add_tenant, self.add_instance, self.flood, self.flood, self.flood, self.calm, self.leave,
                self.remove, self.move, self.reweigh,
            )
        )  # fmt: skip
        self.history.append(change.__name__)
        change()
        self._run_for(self.random.choice((0.005, 0.02, 0.05)))

    def check(self) -> None:
        """Checks that each tenant and instance that always has work gets its part of the loop within 5 %."""
        self._run_for(WARM_UP_S)
        self.probe.sockets[0].longest_wait_s = 0.0
        before = {
            instance: instance.turns.loop_queue.used_s for tenant in self.tenants for instance in tenant.instances
        }
        self._run_for(MEASURED_S)
        flooding = [
            (tenant, [instance for instance in tenant.instances if instance.is_flooding]) for tenant in self.tenants
        ]
        used_s = {instance: instance.turns.loop_queue.used_s - before[instance] for instance in before}
        parts = {
            tenant: sum(used_s[instance] for instance in tenant.instances) for tenant, busy in flooding if busy
        }  # fmt: skip
        if len(parts) > 1:
            self._compare({tenant.name: (parts[tenant], tenant.weight) for tenant in parts})
        for _, busy in flooding:
            if len(busy) > 1 and len(parts) > 1:
                self._compare({instance.turns.loop_queue.key: (used_s[instance], instance.weight) for instance in busy})
        self._check_waits(len(parts))

    def _compare(self, parts: dict[str, tuple[float, float]]) -> None:
        used, weights = (sum(part[number] for part in parts.values()) for number in (0, 1))
        for name, (part, weight) in parts.items():
            due = used * weight / weights
            slack_s = 2 * max(COSTS_S) + SLICE_S
            assert abs(part - due) <= SHARE_TOLERANCE * due + slack_s, (
                f"{name} had {part:.3f} s of {used:.3f} s, due {due:.3f} s: {parts}"
            )

    def _check_waits(self, flooding: int) -> None:
        """Checks that the light neighbour waits at most for one round of the loop."""
        bound_s = (flooding + 2) * (TURN_S + max(COSTS_S))
        longest_s = self.probe.sockets[0].longest_wait_s
        assert longest_s <= bound_s, f"the light neighbour waited {longest_s * 1000:.1f} of {bound_s * 1000:.1f} ms"

    def finish(self) -> None:
        """Checks that nothing is left of removed tenants, and that every moment of the loop was charged once."""
        for tenant in self.tenants:
            for instance in tenant.instances:
                self._close_sockets(instance)
        self._run_for(0.05)
        assert len(self.loop.fair_turns) == 0, "nobody queues"
        assert self.loop.is_idle, "nothing is scheduled"
        charged_s = sum(tenant.used_s for tenant in self.tenants) + self._removed_s
        assert abs(charged_s - self.loop.busy_s) < 1e-6, f"charged {charged_s}, worked {self.loop.busy_s}"
        for tenant in list(self.tenants):
            self._remove(tenant)
        assert not self.loop.fair_turns._tenants, "no account is left"

    def close(self) -> None:
        """Does nothing: the run has no resources."""

    # -- changes ------------------------------------------------------------------------------------------------------

    def add_tenant(self) -> None:
        if len(self.tenants) < TENANTS_MAX:
            tenant = self._make_tenant()
            self._make_instance(tenant, self._weight())

    def add_instance(self) -> None:
        tenant = self.random.choice(self.tenants)
        if tenant is not self.probe.tenant and len(tenant.instances) < INSTANCES_MAX:
            self._make_instance(tenant, self._weight())

    def flood(self) -> None:
        """Lets all sockets of an instance send without a pause."""
        instance = self._some_instance()
        if instance is not None:
            self._close_sockets(instance)
            self._add_sockets(instance, self.random.randint(SOCKETS, 3 * SOCKETS), self.random.choice(COSTS_S), 0.0)

    def calm(self) -> None:
        """Gives an instance a few serial clients."""
        instance = self._some_instance()
        if instance is not None:
            self._close_sockets(instance)
            pause_s = self.random.choice((0.001, 0.01))
            self._add_sockets(instance, self.random.randint(1, 2), self.random.choice(COSTS_S[:2]), pause_s)

    def leave(self) -> None:
        """Closes an instance's connections, queued or not."""
        instance = self._some_instance()
        if instance is not None:
            self._close_sockets(instance)

    def remove(self) -> None:
        """Removes a tenant."""
        others = [tenant for tenant in self.tenants if tenant is not self.probe.tenant]
        if len(others) > 1:
            self._remove(self.random.choice(others))

    def move(self) -> None:
        """Moves an instance to another tenant."""
        instance = self._some_instance()
        others = [tenant for tenant in self.tenants if tenant is not self.probe.tenant]
        if instance is None or len(instance.tenant.instances) == 1 or len(others) < 2:
            return
        target = self.random.choice(others)
        if target is instance.tenant:
            return
        before = instance.tenant
        before.instances.remove(instance)
        instance.turns.move_to(self.loop.fair_turns.register_instance(target.name))
        self.loop.fair_turns.exit(before.turns)
        instance.tenant = target
        target.instances.append(instance)
        self._set_weights(before)
        self._set_weights(target)

    def reweigh(self) -> None:
        """Gives an instance another weight, as after a purchase of bandwidth."""
        instance = self._some_instance()
        if instance is not None:
            instance.weight = self._weight()
            self._set_weights(instance.tenant)

    # -- helpers ------------------------------------------------------------------------------------------------------

    def _run_for(self, seconds: float) -> None:
        end_s = self.loop.now_s + seconds
        while self.loop.now_s < end_s:
            self.loop.run_callbacks()
            sockets = [
                socket for tenant in self.tenants for instance in tenant.instances for socket in instance.sockets
            ]  # fmt: skip
            ready = [socket for socket in sockets if socket.ready_s is not None and socket.ready_s <= self.loop.now_s]
            for socket in ready:
                socket.on_ready()
            if not ready and self.loop.is_idle:
                ready_times_s = [socket.ready_s for socket in sockets if socket.ready_s is not None]
                self.loop.now_s = max(self.loop.now_s, min([end_s, *ready_times_s]))
        queued = [
            socket
            for tenant in self.tenants
            for each in tenant.instances
            for socket in each.sockets
            if socket.is_queued
        ]
        assert not queued or not self.loop.is_idle, "a queued socket has a scheduled turn"

    def _weight(self) -> float:
        return self.random.choice((1 / 32, 0.1, 0.25, 0.5, 1.0))

    def _some_instance(self) -> Instance | None:
        instances = [
            instance for tenant in self.tenants if tenant is not self.probe.tenant for instance in tenant.instances
        ]
        return self.random.choice(instances) if instances else None

    def _make_tenant(self) -> Tenant:
        self._numbers += 1
        tenant = Tenant(self, self._numbers)
        self.tenants.append(tenant)
        return tenant

    def _make_instance(self, tenant: Tenant, weight: float) -> Instance:
        if tenant.instances:
            self.loop.fair_turns.register_instance(tenant.name)
        self._numbers += 1
        instance = Instance(self, tenant, weight, f"instance {self._numbers}")
        tenant.instances.append(instance)
        self._set_weights(tenant)
        return instance

    def _set_weights(self, tenant: Tenant) -> None:
        for instance in tenant.instances:
            self.loop.fair_turns.set_weights(instance.turns.loop_queue, instance.weight, tenant.weight)

    def _add_sockets(self, instance: Instance, count: int, cost_s: float, pause_s: float) -> None:
        instance.sockets += [Socket(self.loop, instance.turns, cost_s, pause_s) for _ in range(count)]

    def _close_sockets(self, instance: Instance) -> None:
        for socket in instance.sockets:
            socket.close()
        instance.sockets.clear()

    def _remove(self, tenant: Tenant) -> None:
        self.tenants.remove(tenant)
        self._removed_s += tenant.used_s
        for instance in tenant.instances:
            self._close_sockets(instance)
            self.loop.fair_turns.exit(tenant.turns)
