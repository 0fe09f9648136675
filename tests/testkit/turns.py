"""Counter of the event loop's turns that others get."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


@asynccontextmanager
async def count_turns() -> AsyncIterator[Callable[[], int]]:
    """Starts a task that does nothing in each of its turns; the returned call answers their number."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    try:
        yield lambda: turns
    finally:
        task.cancel()
