"""Threads for the arithmetic of TLS handshakes: few, one at a time for each instance, and of an instance one address of
its clients after the other (CKA-4).

A step is tried when the peer has sent something, so that a thread never waits for a peer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from brokers.contract.connections import HANDSHAKES_PER_ADDRESS_MAX, HANDSHAKES_PER_INSTANCE_MAX
from brokers.engine.network.entry_queue import network_of

HANDSHAKE_THREADS: Final = 2

Step = Callable[[], object]
OnStep = Callable[[BaseException | None], object]


class Begun:
    """Handshakes of one instance that have begun and are not over, by the address of the client."""

    __slots__ = ("_by_network", "count")

    def __init__(self) -> None:
        # The oldest of each address first.
        self._by_network: dict[str, dict[object, Callable[[], object]]] = {}
        self.count = 0

    def add(self, network: str, who: object, drop: Callable[[], object]) -> None:
        self._by_network.setdefault(network, {})[who] = drop
        self.count += 1

    def remove(self, network: str, who: object) -> None:
        of_network = self._by_network.get(network)
        if of_network is not None and of_network.pop(who, None) is not None:
            self.count -= 1
            if not of_network:
                del self._by_network[network]

    def make_room(self, network: str) -> None:
        """Drops the oldest one, if there are too many: of this address, or of the one that has most."""
        if len(self._by_network.get(network, ())) < HANDSHAKES_PER_ADDRESS_MAX:
            if self.count < HANDSHAKES_PER_INSTANCE_MAX:
                return
            network = max(self._by_network, key=lambda each: len(self._by_network[each]))
        next(iter(self._by_network[network].values()))()


class Handshakes:
    """`submit` runs a step in a thread and calls back in the loop, with the error if there was one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = HANDSHAKE_THREADS) -> None:
        self._loop = loop
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False
        # By instance and address, in the order in which they are served.
        self._waiting: dict[object, dict[str, deque[tuple[Step, OnStep]]]] = {}
        # Of instances with a step in a thread: who waits for its end.
        self._running: dict[object, OnStep] = {}
        # Handshakes that have begun, by instance: how each is dropped.
        self._begun: dict[object, Begun] = {}

    def begin(self, group: object, address: str, who: object, drop: Callable[[], object]) -> None:
        """Registers a handshake that will submit steps until `end`; `drop` ends it."""
        network = network_of(address)
        begun = self._begun.get(group)
        if begun is not None:
            begun.make_room(network)
        self._begun.setdefault(group, Begun()).add(network, who, drop)

    def end(self, group: object, address: str, who: object) -> None:
        begun = self._begun.get(group)
        if begun is not None:
            begun.remove(network_of(address), who)
            if not begun.count:
                del self._begun[group]

    def submit(self, group: object, address: str, step: Step, on_step: OnStep) -> None:
        of_group = self._waiting.setdefault(group, {})
        of_group.setdefault(network_of(address), deque()).append((step, on_step))
        self._serve()

    def _serve(self) -> None:
        while len(self._running) < self._threads and not self._closed:
            group = next((group for group in self._waiting if group not in self._running), None)
            if group is None:
                return
            of_group = self._waiting.pop(group)
            network = next(iter(of_group))
            steps = of_group.pop(network)
            step, on_step = steps.popleft()
            if steps:
                of_group[network] = steps  # behind the other addresses
            if of_group:
                self._waiting[group] = of_group  # behind the other instances
            self._running[group] = on_step
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._threads, "tls-handshake")
            self._executor.submit(self._run, group, step)

    def _run(self, group: object, step: Step) -> None:
        error: BaseException | None = None
        try:
            step()
        except Exception as failure:  # the loop judges it
            error = failure
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._over, group, error)

    def _over(self, group: object, error: BaseException | None) -> None:
        on_step = self._running.pop(group, None)
        if on_step is not None:  # else the broker stopped meanwhile
            on_step(error)
            self._serve()

    def close(self) -> None:
        """The broker stops, and has closed its connections: nothing more begins, and who waits for a step is told.
        Steps that are in a thread end first, for they hold their sockets; they wait for no peer.
        """
        self._closed = True
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
        waiting = [steps for of_group in self._waiting.values() for steps in of_group.values()]
        ended = [*self._running.values(), *(on_step for steps in waiting for _, on_step in steps)]
        self._running, self._waiting = {}, {}
        for on_step in ended:
            on_step(ConnectionAbortedError(0, "the broker stops"))
