"""The broker's own work on the event loop, in turns: in each round of the loop one piece of it, however many tasks have
some, so that between two pieces every client that sent something is served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from time import perf_counter
from typing import Final, TypeVar

T = TypeVar("T")

# Work that can stop anywhere stops after so long and waits for its next turn.
PIECE_MS_MAX: Final = 5


class OwnTurns:
    """`await turns.take()` before each piece. First come, first served."""

    __slots__ = ("_is_due", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_due = False

    async def take(self) -> None:
        turn = self._loop.create_future()
        self._waiting.append(turn)
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._next)
        await turn

    async def all_of(self, steps: Generator[None, None, T]) -> T:
        """Runs `steps` to their end, as many in each turn as there is time for; what they answer."""
        while True:
            await self.take()
            ends_s = perf_counter() + PIECE_MS_MAX / 1000
            while perf_counter() < ends_s:
                try:
                    next(steps)
                except StopIteration as end:
                    return end.value

    def _next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # who was cancelled gave its turn up
                turn.set_result(None)
                break
        self._is_due = bool(self._waiting)
        if self._is_due:
            self._loop.call_soon(self._next)


def run_to_end(steps: Generator[None, None, T]) -> T:
    """Runs `steps` to their end at once; returns their result. For a process that stops, which serves nobody."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
