"""Delayed removal of deleted files and directories (LOG-44).

The kernel takes half a second to unlink a file of a gigabyte whose pages are cached, so this does not run on the event
loop.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from pathlib import Path

from brokers.engine.storage.directories import remove
from brokers.engine.storage.files import StorageFailed


class RemovalBatch:
    """Files due for removal: `run` in any thread, then `finish` in the table's; `requeue` requeues a file whose failure
    is transient.
    """

    __slots__ = ("_due_files", "_failures", "_is_stopped", "_on_failure", "_requeue")

    def __init__(
        self,
        due_files: list[tuple[str, Path]],
        on_failure: Callable[[StorageFailed], None],
        requeue: Callable[[str, Path], None],
    ) -> None:
        self._due_files = due_files
        self._failures: list[tuple[str, StorageFailed]] = []
        self._on_failure = on_failure
        self._requeue = requeue
        self._is_stopped = False

    def run(self) -> None:
        for path, root in self._due_files:
            if self._is_stopped:
                return
            try:
                remove(path, root)
            except StorageFailed as failure:
                self._failures.append((path, failure))

    def stop(self) -> None:
        """Leaves the remaining files to the next start, which removes all deleted ones. May be called in any thread."""
        self._is_stopped = True

    def finish(self) -> None:
        for path, failure in self._failures:
            if failure.is_transient:
                self._requeue(path, failure.directory)
            self._on_failure(failure)


class Removals:
    """Queue of files by removal time; `on_failure` is called for a failed directory (LOG-3)."""

    __slots__ = ("_last_call_ms", "_on_failure", "_queue")

    def __init__(self, on_failure: Callable[[StorageFailed], None]) -> None:
        self._queue: list[tuple[int, str, Path]] = []
        self._last_call_ms = 0
        self._on_failure = on_failure

    def add(self, paths: Iterable[str], root: Path, due_ms: int) -> None:
        for path in paths:
            heapq.heappush(self._queue, (due_ms, path, root))

    def pop_due(self, now_ms: int) -> RemovalBatch | None:
        """Returns all files whose time has come, None if there are none. A clock that was set back delays nothing."""
        clock_setback_ms = self._last_call_ms - now_ms
        if clock_setback_ms > 0:
            self._queue = [(due_ms - clock_setback_ms, path, root) for due_ms, path, root in self._queue]
        self._last_call_ms = now_ms
        result: list[tuple[str, Path]] = []
        while self._queue and self._queue[0][0] <= now_ms:
            _, path, root = heapq.heappop(self._queue)
            result.append((path, root))
        return RemovalBatch(result, self._on_failure, self._requeue) if result else None

    def _requeue(self, path: str, root: Path) -> None:
        self.add([path], root, self._last_call_ms)
