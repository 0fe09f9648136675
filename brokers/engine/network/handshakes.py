"""Threads for the arithmetic of TLS handshakes: few, and one at a time for each instance (CKA-4).

A step is tried when the peer has sent something, so that a thread never waits for a peer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from brokers.contract.connections import HANDSHAKES_PER_INSTANCE_MAX

HANDSHAKE_THREADS: Final = 2

Step = Callable[[], object]
OnStep = Callable[[BaseException | None], object]


class Handshakes:
    """`submit` runs a step in a thread and calls back in the loop, with the error if there was one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = HANDSHAKE_THREADS) -> None:
        self._loop = loop
        self._threads = threads
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False
        # By instance, in the order in which they are served; an instance is here while it has none in a thread.
        self._waiting: dict[object, deque[tuple[Step, OnStep]]] = {}
        # Of instances with a step in a thread: who waits for its end.
        self._running: dict[object, OnStep] = {}
        # Who has begun, by instance, in the order of beginning: how each is dropped.
        self._begun: dict[object, dict[object, Callable[[], object]]] = {}

    def begin(self, group: object, who: object, drop: Callable[[], object]) -> None:
        """`who` will submit steps until `end`; `drop` ends it."""
        of_group = self._begun.setdefault(group, {})
        if len(of_group) >= HANDSHAKES_PER_INSTANCE_MAX:
            next(iter(of_group.values()))()
        self._begun.setdefault(group, {})[who] = drop

    def end(self, group: object, who: object) -> None:
        of_group = self._begun.get(group)
        if of_group is not None and of_group.pop(who, None) is not None and not of_group:
            del self._begun[group]

    def submit(self, group: object, step: Step, on_step: OnStep) -> None:
        self._waiting.setdefault(group, deque()).append((step, on_step))
        self._serve()

    def _serve(self) -> None:
        while len(self._running) < self._threads and not self._closed:
            group = next((group for group in self._waiting if group not in self._running), None)
            if group is None:
                return
            steps = self._waiting.pop(group)
            step, on_step = steps.popleft()
            if steps:
                self._waiting[group] = steps  # behind the others
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
        ended = [*self._running.values(), *(on_step for steps in self._waiting.values() for _, on_step in steps)]
        self._running, self._waiting = {}, {}
        for on_step in ended:
            on_step(ConnectionAbortedError(0, "the broker stops"))
