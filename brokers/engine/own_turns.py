"""Turns of the broker's own work on the event loop: one part in each iteration of the loop, however many tasks have
work, so that all clients that sent something are served between two parts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from time import perf_counter
from typing import Final, TypeVar

T = TypeVar("T")

# Work that can stop anywhere stops after this time and waits for its next turn.
PIECE_MS_MAX: Final = 5


class OwnTurns:
    """Queue of the broker's own work: `await turns.take()` before each part. First come, first served."""

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
        """Runs `steps` to their end, as many in each turn as its time allows. Returns their result."""
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
            if not turn.done():  # else the waiting task was cancelled
                turn.set_result(None)
                break
        self._is_due = bool(self._waiting)
        if self._is_due:
            self._loop.call_soon(self._next)


def run_to_end(steps: Generator[None, None, T]) -> T:
    """Runs `steps` to their end at once, and returns their result. For a process that stops and serves no client."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
