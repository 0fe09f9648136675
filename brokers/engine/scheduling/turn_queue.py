"""Turns of tasks on the event loop: one task continues in each iteration of the loop.

All sockets that are ready are served between two turns. Tenants take turns, then the instances of a tenant, whatever
the number of their tasks. An instance that exceeded its share of the broker's time pauses until its debt is paid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from time import perf_counter
from typing import Final, TypeVar

from brokers.engine.scheduling.accounts import InstanceAccounts, Ownership
from brokers.engine.scheduling.fair_queue import FairQueue, InstanceQueue

T = TypeVar("T")

# Cost of a turn, and the grant of one tenant, and of one of its instances, in each round.
TURN_COST: Final = 1.0
# Work that can stop anywhere stops after this time and waits for its next turn.
TURN_MS_MAX: Final = 5
# Instance id under which the broker's own work is queued.
BROKER_WORK: Final = ""


class TurnQueue:
    """Queue of tasks that wait for a turn: `await queue.enqueue(instance_id)` before each part of the work.

    `debt_ms` returns the time in milliseconds for which an instance must wait, because it exceeded its share.
    """

    __slots__ = ("_accounts", "_debt_ms", "_is_scheduled", "_loop", "_queue")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        debt_ms: Callable[[str], int] = lambda _instance_id: 0,
        ownership: Ownership | None = None,
    ) -> None:
        self._loop = loop
        self._debt_ms = debt_ms
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(TURN_COST)
        self._accounts: InstanceAccounts[asyncio.Future[None]] = InstanceAccounts(TURN_COST, ownership or Ownership())
        self._is_scheduled = False

    def enqueue(self, instance_id: str = BROKER_WORK) -> asyncio.Future[None]:
        """Returns a future that is done when the turn of the task begins; it may be cancelled."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._queue.enqueue(self._accounts.account_to_enqueue(instance_id), turn)
        self._schedule()
        return turn

    async def run(self, steps: Generator[None, None, T]) -> T:
        """Runs steps of the broker's own work to their end, as many in each turn as its time allows.

        Returns their result.
        """
        while True:
            await self.enqueue()
            deadline_s = perf_counter() + TURN_MS_MAX / 1000
            while perf_counter() < deadline_s:
                try:
                    next(steps)
                except StopIteration as end:
                    return end.value

    def _schedule(self) -> None:
        if not self._is_scheduled and len(self._queue):
            self._is_scheduled = True
            self._loop.call_soon(self._grant_next)

    def _grant_next(self) -> None:
        self._is_scheduled = False
        queue = self._queue
        while (instance := queue.next_instance()) is not None:
            debt_ms = self._debt_ms(instance.key)
            if debt_ms:
                queue.suspend(instance)
                self._loop.call_later(debt_ms / 1000, self._resume, instance)
                continue
            turn = queue.pop(instance)
            if not turn.done():  # else the waiting task was cancelled
                queue.charge(instance, TURN_COST)
                turn.set_result(None)
                break
        self._accounts.forget_idle(queue)
        self._schedule()

    def _resume(self, instance: InstanceQueue[asyncio.Future[None]]) -> None:
        self._accounts.refresh(instance)
        self._queue.resume(instance)
        self._schedule()


def run_to_end(steps: Generator[None, None, T]) -> T:
    """Runs `steps` to their end at once, and returns their result. For a process that stops and serves no client."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
