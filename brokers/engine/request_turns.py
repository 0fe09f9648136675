"""Turns of tenants' long requests on the event loop: one part of one request in each iteration of the loop.

Tenants take turns, then the instances of a tenant, whatever the number of their requests; all short requests are served
between two parts. An instance that exceeded its share of the broker's time pauses until it is paid.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from brokers.engine.scheduling.accounts import InstanceAccounts, Ownership
from brokers.engine.scheduling.fair_queue import FairQueue, InstanceQueue

# Received bytes of an instance's requests that are decoded at the same time.
DECODED_BYTES_PER_INSTANCE_MAX: Final = 256 * 1024
# Cost of a part, and the grant of one tenant, and of one of its instances, in each round.
PIECE: Final = 1.0


def _owes_nothing(instance_id: str) -> int:
    return 0


class RequestTurns:
    """Queue of all long requests: `await turns.take(instance_id)` before each part.

    `debt_ms` returns the time before which no more work is done for an instance.
    """

    __slots__ = ("_accounts", "_debt_ms", "_is_due", "_loop", "_queue")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        debt_ms: Callable[[str], int] = _owes_nothing,
        ownership: Ownership | None = None,
    ) -> None:
        self._loop = loop
        self._debt_ms = debt_ms
        self._queue: FairQueue[asyncio.Future[None]] = FairQueue(PIECE)
        self._accounts: InstanceAccounts[asyncio.Future[None]] = InstanceAccounts(PIECE, ownership or Ownership())
        self._is_due = False

    def take(self, instance_id: str) -> asyncio.Future[None]:
        turn: asyncio.Future[None] = self._loop.create_future()
        self._queue.enqueue(self._accounts.to_enqueue(instance_id), turn)
        self._schedule()
        return turn

    def _schedule(self) -> None:
        if not self._is_due and len(self._queue):
            self._is_due = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._is_due = False
        queue = self._queue
        while (instance := queue.next_instance()) is not None:
            debt_ms = self._debt_ms(instance.key)
            if debt_ms:
                queue.suspend(instance)
                self._loop.call_later(debt_ms / 1000, self._resume, instance)
                continue
            turn = queue.pop(instance)
            is_cancelled = turn.done()
            if not is_cancelled:
                queue.charge(instance, PIECE)
                turn.set_result(None)
            if not is_cancelled:
                break
        self._accounts.forget_idle(queue)
        self._schedule()

    def _resume(self, instance: InstanceQueue[asyncio.Future[None]]) -> None:
        self._accounts.renew(instance)
        self._queue.resume(instance)
        self._schedule()


class Place:
    """Place of one request among the decoded ones of its instance; `leave` may be repeated."""

    __slots__ = ("_count_bytes", "_instance_id", "_places")

    def __init__(self, places: DecodedPlaces, instance_id: str, count_bytes: int) -> None:
        self._places = places
        self._instance_id = instance_id
        self._count_bytes = count_bytes

    def leave(self) -> None:
        count_bytes, self._count_bytes = self._count_bytes, 0
        if count_bytes:
            self._places.free(self._instance_id, count_bytes)


class DecodedPlaces:
    """Limits the memory of each instance's decoded requests, which take twelve to thirty times their bytes. One request
    of any length is admitted; others wait for room, first come, first served.
    """

    __slots__ = ("_bytes_max", "_loop", "_taken_bytes", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop, bytes_max: int = DECODED_BYTES_PER_INSTANCE_MAX) -> None:
        self._loop = loop
        self._bytes_max = bytes_max
        self._taken_bytes: dict[str, int] = {}
        self._waiting: dict[str, deque[tuple[int, asyncio.Future[None]]]] = {}

    async def enter(self, instance_id: str, count_bytes: int) -> Place:
        taken_bytes = self._taken_bytes.get(instance_id, 0)
        if instance_id not in self._waiting and self._has_room(taken_bytes, count_bytes):
            self._taken_bytes[instance_id] = taken_bytes + count_bytes
        else:
            admitted: asyncio.Future[None] = self._loop.create_future()
            self._waiting.setdefault(instance_id, deque()).append((count_bytes, admitted))
            try:
                await admitted
            except asyncio.CancelledError:
                if admitted.done() and not admitted.cancelled():
                    self.free(instance_id, count_bytes)
                raise
        return Place(self, instance_id, count_bytes)

    def free(self, instance_id: str, count_bytes: int) -> None:
        taken_bytes = self._taken_bytes[instance_id] - count_bytes
        waiting = self._waiting.get(instance_id)
        while waiting and (waiting[0][1].done() or self._has_room(taken_bytes, waiting[0][0])):
            wanted_bytes, admitted = waiting.popleft()
            if not admitted.done():  # else the waiting task was cancelled
                taken_bytes += wanted_bytes
                admitted.set_result(None)
        if waiting is not None and not waiting:
            del self._waiting[instance_id]
        if taken_bytes:
            self._taken_bytes[instance_id] = taken_bytes
        else:
            del self._taken_bytes[instance_id]

    def _has_room(self, taken_bytes: int, count_bytes: int) -> bool:
        return not taken_bytes or taken_bytes + count_bytes <= self._bytes_max
