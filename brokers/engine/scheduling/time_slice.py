"""Cooperative yielding: the one place in the engine where a coroutine yields the event loop to others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

SLICE_S: Final = 0.001
# Number of objects freed at once; freeing a hundred thousand would take milliseconds.
FREED_AT_ONCE_MAX: Final = 100


async def yield_to_others() -> None:
    """Yields to others; a request that is charged by turns continues in its next turn (`loop_turns.timed`)."""
    await asyncio.sleep(0)


class TimeSlice:
    """A slice of `SLICE_S` seconds for work that can stop anywhere: `await time_slice.pause()` after each part."""

    __slots__ = ("_until_s",)

    def __init__(self) -> None:
        self._until_s = perf_counter() + SLICE_S

    async def pause(self) -> None:
        """Yields to others if the slice is used up, and begins the next one."""
        if perf_counter() >= self._until_s:
            await yield_to_others()
            self._until_s = perf_counter() + SLICE_S


async def free_incrementally(items: list[Any], inner_list_of: Callable[[Any], list[Any]]) -> None:
    """Empties a long list of lists in parts. `inner_list_of` returns the inner list of an item."""
    time_slice = TimeSlice()
    for item in items:
        inner_list = inner_list_of(item)
        while len(inner_list) > FREED_AT_ONCE_MAX:
            del inner_list[-FREED_AT_ONCE_MAX:]
            await time_slice.pause()
    while items:
        del items[-FREED_AT_ONCE_MAX:]
        await time_slice.pause()


async def free_set_incrementally(items: set[Any]) -> None:
    """Empties a large set in parts."""
    time_slice = TimeSlice()
    while items:
        for _ in range(min(len(items), FREED_AT_ONCE_MAX)):
            items.pop()
        await time_slice.pause()
