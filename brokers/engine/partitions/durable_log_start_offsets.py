"""Durable log start offsets: a DeleteRecords is answered only when a crash cannot restore its records.

Writes run one at a time, off the event loop; all requests during a write share the next one. A client that deletes
record by record causes one fsync after the other, but never a queue of threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Final

from brokers.engine.partitions.table import PartitionTable

# Delay before a write is retried that failed for lack of a free file descriptor.
SHORTAGE_PAUSE_S: Final = 0.1


class DurableLogStartOffsets:
    """Writer of log start offsets; `spawn` starts a task that ends with the broker."""

    def __init__(self, table: PartitionTable, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        self._table = table
        self._spawn = spawn
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        self._roots: set[Path] = set()

    def call_when_durable(self, root: Path, callback: Callable[[], object]) -> None:
        """Calls `callback` when the start offsets of the logs in `root` are on disk or the root is offline."""
        self._spawn(self._call_when_durable(root, callback))

    async def _call_when_durable(self, root: Path, callback: Callable[[], object]) -> None:
        await self.wait_until_durable([root])
        callback()

    async def wait_until_durable(self, roots: Iterable[Path]) -> None:
        """Waits until the current start offsets of the logs in `roots` are on disk or the root is offline."""
        self._roots.update(roots)
        if self._next is None:
            self._next = self._spawn(self._write(self._running))
        # other requests wait for the same write: cancelling one must not cancel it
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
