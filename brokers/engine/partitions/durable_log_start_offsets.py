"""Log starts that were moved on request, on disk before the answer goes out: a crash must not bring records back.

One write at a time, off the loop; all who ask while one is under way share the next, so that a client which deletes
record by record costs one fsync after the other and never a queue of threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Final

from brokers.engine.partitions.table import PartitionTable

# Until a write that found no descriptor is tried again.
SHORTAGE_PAUSE_S: Final = 0.1


class DurableLogStartOffsets:
    """`spawn` starts a task that ends with the broker."""

    def __init__(self, table: PartitionTable, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        self._table = table
        self._spawn = spawn
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        self._roots: set[Path] = set()

    def keep(self, root: Path, then: Callable[[], object]) -> None:
        """As `kept`; calls back."""
        self._spawn(self._keep(root, then))

    async def _keep(self, root: Path, then: Callable[[], object]) -> None:
        await self.kept([root])
        then()

    async def kept(self, roots: Iterable[Path]) -> None:
        """Returns when the start offsets of the logs in `roots`, as they are at the call, are on disk or the root is
        given up.
        """
        self._roots.update(roots)
        if self._next is None:
            self._next = self._spawn(self._write(self._running))
        # Others wait for the same write: who goes away does not take it along.
        await asyncio.shield(self._next)

    async def _write(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        roots, self._roots = self._roots, set()
        while roots:
            batch = self._table.flusher.plan_start_offsets(roots)
            await asyncio.to_thread(batch.run)
            roots = set(batch.finish())
            if roots:
                await asyncio.sleep(SHORTAGE_PAUSE_S)
