"""Whose password is hashed next: one at a time, instances in turn, so that nobody's wrong passwords keep others out."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

# Connections of one instance that wait to have a password looked at.
QUEUED_PER_INSTANCE_MAX: Final = 1_000


class TooManyWait(Exception):
    """Of the instance; nothing was looked at."""


class HashingTurns:
    """Of one broker."""

    __slots__ = ("_is_taken", "_queues")

    def __init__(self) -> None:
        self._is_taken = False
        # By instance, whose turn comes first; never empty ones.
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def waiting(self, instance_id: str) -> int:
        return len(self._queues.get(instance_id, ()))

    @asynccontextmanager
    async def turn(self, instance_id: str) -> AsyncIterator[None]:
        """
        Raises:
            TooManyWait: QUEUED_PER_INSTANCE_MAX of the instance do already.
        """
        if self._is_taken:
            await self._wait(instance_id)
        self._is_taken = True
        try:
            yield
        finally:
            self._next()

    async def _wait(self, instance_id: str) -> None:
        queue = self._queues.setdefault(instance_id, deque())
        if len(queue) >= QUEUED_PER_INSTANCE_MAX:
            raise TooManyWait
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._next()
            else:
                self._give_up(instance_id, turn)
            raise

    def _give_up(self, instance_id: str, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(instance_id)
        if queue is not None and turn in queue:
            queue.remove(turn)
            if not queue:
                del self._queues[instance_id]

    def _next(self) -> None:
        while self._queues:
            instance_id, queue = self._queues.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._queues[instance_id] = queue
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False
