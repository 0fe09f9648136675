"""Threads for the computations of TLS handshakes, shared by tenant, then by instance (CKA-4).

An instance has one step in a thread at a time, and the addresses of its clients take turns. Tenants are charged with
the CPU time of the threads. A step is tried when the peer has sent something, so that a thread never waits for a peer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import thread_time
from typing import Final, Protocol

from brokers.contract.connections import HANDSHAKES_PER_ADDRESS_MAX, HANDSHAKES_PER_INSTANCE_MAX
from brokers.engine.network.entry_queue import network_of
from brokers.engine.scheduling.fair_queue import FairQueue, InstanceQueue, TenantAccount
from brokers.engine.scheduling.fair_turns import InstanceTurns

HANDSHAKE_THREADS: Final = 2
# Seconds of a thread granted to one tenant, and to one of its instances, in each round, and the minimum cost of a step.
QUANTUM_S: Final = 0.0005

# One computation of a handshake, run in a thread; then the callback on the event loop, with the error or None.
Step = Callable[[], object]
OnStep = Callable[[BaseException | None], object]


class OngoingHandshakes:
    """Handshakes of one instance in progress, by client address."""

    __slots__ = ("_drops_by_network", "count")

    def __init__(self) -> None:
        # Callbacks that drop a handshake, by network and by handshake; the oldest of each network first.
        self._drops_by_network: dict[str, dict[object, Callable[[], object]]] = {}
        self.count = 0

    def add(self, network: str, handshake: object, drop: Callable[[], object]) -> None:
        self._drops_by_network.setdefault(network, {})[handshake] = drop
        self.count += 1

    def remove(self, network: str, handshake: object) -> None:
        drop_by_handshake = self._drops_by_network.get(network)
        if drop_by_handshake is not None and drop_by_handshake.pop(handshake, None) is not None:
            self.count -= 1
            if not drop_by_handshake:
                del self._drops_by_network[network]

    def drop_excess(self, network: str) -> None:
        """Drops the oldest handshake of this address, or of the one with most, if there are too many."""
        if len(self._drops_by_network.get(network, ())) < HANDSHAKES_PER_ADDRESS_MAX:
            if self.count < HANDSHAKES_PER_INSTANCE_MAX:
                return
            network = max(self._drops_by_network, key=lambda address: len(self._drops_by_network[address]))
        next(iter(self._drops_by_network[network].values()))()


class HandshakeGroup(Protocol):
    """Listeners whose handshakes share one queue; implemented by `listener_group.ListenerGroup`."""

    @property
    def turns(self) -> InstanceTurns: ...


class GroupSteps:
    """Steps of one group that wait for a thread, by client address, in the order of service.

    The only item in the queue of its `account` is the group itself, while steps wait and none is in a thread.
    """

    __slots__ = ("account", "running", "steps_by_network")

    def __init__(self, tenant: TenantAccount) -> None:
        self.account: InstanceQueue[GroupSteps] = InstanceQueue(tenant)
        self.steps_by_network: dict[str, deque[tuple[Step, OnStep]]] = {}
        # Callback of the step that is in a thread, None if there is none.
        self.running: OnStep | None = None

    def add(self, network: str, step: Step, on_step: OnStep) -> None:
        self.steps_by_network.setdefault(network, deque()).append((step, on_step))

    def pop(self) -> tuple[Step, OnStep]:
        """Removes and returns the next step. There must be one."""
        network = next(iter(self.steps_by_network))
        steps = self.steps_by_network.pop(network)
        step = steps.popleft()
        if steps:
            self.steps_by_network[network] = steps  # after the other addresses
        return step


class Handshakes:
    """Runs steps in threads. `submit` calls back on the event loop, with the error if there was one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = HANDSHAKE_THREADS) -> None:
        self._loop = loop
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None
        self._is_closed = False
        self._queue: FairQueue[GroupSteps] = FairQueue(QUANTUM_S)
        # Retained while any step waits or runs, since the debts of groups count until then.
        self._steps_by_group: dict[HandshakeGroup, GroupSteps] = {}
        self._account_by_tenant: dict[object, TenantAccount] = {}
        self._running_count = 0
        # Handshakes in progress, by instance.
        self._ongoing_by_group: dict[object, OngoingHandshakes] = {}

    def begin(self, group: HandshakeGroup, address: str, handshake: object, drop: Callable[[], object]) -> None:
        """Registers a handshake that will submit steps until `end`; `drop` closes it."""
        network = network_of(address)
        ongoing = self._ongoing_by_group.get(group)
        if ongoing is not None:
            ongoing.drop_excess(network)
        self._ongoing_by_group.setdefault(group, OngoingHandshakes()).add(network, handshake, drop)

    def end(self, group: HandshakeGroup, address: str, handshake: object) -> None:
        ongoing = self._ongoing_by_group.get(group)
        if ongoing is not None:
            ongoing.remove(network_of(address), handshake)
            if not ongoing.count:
                del self._ongoing_by_group[group]

    def submit(self, group: HandshakeGroup, address: str, step: Step, on_step: OnStep) -> None:
        steps = self._steps_by_group.get(group)
        if steps is None:
            steps = self._steps_by_group[group] = GroupSteps(self._account_of(group))
        steps.add(network_of(address), step, on_step)
        if steps.running is None:
            self._queue.enqueue(steps.account, steps)
        self._start_steps()

    def _account_of(self, group: HandshakeGroup) -> TenantAccount:
        tenant = self._account_by_tenant.get(group.turns.tenant)
        if tenant is None:
            tenant = self._account_by_tenant[group.turns.tenant] = TenantAccount(QUANTUM_S)
        return tenant

    def _start_steps(self) -> None:
        while self._running_count < self._threads and not self._is_closed:
            account = self._queue.next_instance()
            if account is None:
                return
            steps = self._queue.pop(account)
            step, steps.running = steps.pop()
            self._running_count += 1
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._threads, "tls-handshake")
            self._executor.submit(self._run, steps, step)

    def _run(self, steps: GroupSteps, step: Step) -> None:
        error: BaseException | None = None
        began_s = thread_time()
        try:
            step()
        except Exception as failure:  # handled on the event loop
            error = failure
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_step_done, steps, thread_time() - began_s, error)

    def _on_step_done(self, steps: GroupSteps, cpu_s: float, error: BaseException | None) -> None:
        on_step, steps.running = steps.running, None
        if on_step is None:
            return  # the broker has stopped meanwhile
        self._running_count -= 1
        self._queue.charge(steps.account, max(cpu_s, QUANTUM_S))
        if steps.steps_by_network:
            self._queue.enqueue(steps.account, steps)
        on_step(error)
        self._start_steps()
        if not self._running_count and not len(self._queue):
            self._steps_by_group.clear()
            self._account_by_tenant.clear()

    def close(self) -> None:
        """Stops the service when the broker has closed its connections: all waiting steps fail. Steps in a thread
        finish first, since they use their sockets; they wait for no peer.
        """
        self._is_closed = True
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
        groups = list(self._steps_by_group.values())
        callbacks = [steps.running for steps in groups if steps.running is not None]
        callbacks += [on_step for steps in groups for queue in steps.steps_by_network.values() for _, on_step in queue]
        for steps in groups:
            steps.running = None
        self._steps_by_group.clear()
        for on_step in callbacks:
            on_step(ConnectionAbortedError(0, "the broker stops"))
