"""Early deletion of records: DeleteRecords on the leader (LOG-46), and early retention for an instance that is nearly
full (decision 114).

After a DeleteRecords the log start offset advances, and records below it are unreadable at once. Followers learn the
new log start from the next fetch response and confirm it with their next fetch; the request is answered when all
in-sync replicas have confirmed it, and when a crash cannot restore the records. The files are deleted by the next
retention run, which drops each segment entirely below the log start (LOG-43).

Log start offsets are written one at a time, off the event loop; all requests during a write share the next one. A
client that deletes records one by one causes consecutive fsyncs, but never a queue of threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.records import error_codes
from brokers.engine.storage.files import StorageFailed

UP_TO_HIGH_WATERMARK: Final = -1
POLICY_VIOLATION: Final = 44
# Low watermark of an error response.
NO_LOW_WATERMARK: Final = -1
# Delay before a write is retried that failed for lack of a free file descriptor.
SHORTAGE_PAUSE_S: Final = 0.1


class DeletedRecords(NamedTuple):
    """Result of a deletion; `low_watermark`, the first remaining offset, must be on disk before the response is
    sent.
    """

    error_code: int
    low_watermark: int = NO_LOW_WATERMARK


def delete_before(partition: Partition, offset: int) -> DeletedRecords:
    """Makes all records below `offset` unreadable, or all committed records if it is -1; an offset below the log start
    is no error.

    Errors are checked in Kafka's order: disk offline, not the leader, a topic that is only compacted (its records are
    removed by key), an invalid offset or one past the high watermark.
    """
    if partition.offline:
        return DeletedRecords(error_codes.KAFKA_STORAGE_ERROR)
    if not partition.is_leader:
        return DeletedRecords(error_codes.NOT_LEADER_OR_FOLLOWER)
    config = partition.config
    if config.batch_rules.compacted and not config.log.retention.delete:
        return DeletedRecords(POLICY_VIOLATION)
    up_to_offset = partition.high_watermark if offset == UP_TO_HIGH_WATERMARK else offset
    if not 0 <= up_to_offset <= partition.high_watermark:
        return DeletedRecords(error_codes.OFFSET_OUT_OF_RANGE)
    log = partition.log
    try:
        log.advance_start(up_to_offset)
    except StorageFailed as failure:
        partition.on_storage_failure(failure)
        return DeletedRecords(error_codes.KAFKA_STORAGE_ERROR)
    if partition.leadership is not None:
        for fetch in tuple(partition.leadership.fetches):
            fetch.on_log_start_advanced(partition)
    return DeletedRecords(error_codes.NONE, log.log_start_offset)


class DurableLogStartOffsets:
    """Writer of log start offsets; `spawn` starts a task that ends with the broker."""

    def __init__(self, table: PartitionTable, spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]) -> None:
        self._table = table
        self._spawn = spawn
        self._current_write: asyncio.Task[None] | None = None
        self._next_write: asyncio.Task[None] | None = None
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
        if self._next_write is None:
            self._next_write = self._spawn(self._write(self._current_write))
        # other requests wait for the same write: cancelling one must not cancel it
        await asyncio.shield(self._next_write)

    async def _write(self, previous_write: asyncio.Task[None] | None) -> None:
        if previous_write is not None:
            await asyncio.wait([previous_write])
        self._current_write, self._next_write = self._next_write, None
        roots, self._roots = self._roots, set()
        while roots:
            batch = self._table.flusher.plan_start_offsets(roots)
            await asyncio.to_thread(batch.run)
            roots = set(batch.finish())
            if roots:
                await asyncio.sleep(SHORTAGE_PAUSE_S)


def delete_oldest(table: PartitionTable, partition: Partition, count: int, now_ms: int) -> bool:
    """Deletes `count` of the oldest segments of a partition led here, and notifies its followers at once.

    Returns False if the disk failed.
    """
    try:
        deleted_paths = partition.log.delete_oldest(count)
    except StorageFailed as failure:
        table.on_storage_failure(failure)
        return False
    table.remove_later(partition, deleted_paths, now_ms)
    if partition.leadership is not None:
        for fetch in tuple(partition.leadership.fetches):
            fetch.on_log_start_advanced(partition)
    return True


def roll_active_segment(table: PartitionTable, partition: Partition, now_ms: int) -> None:
    """Rolls the active segment, so that its records can be deleted."""
    try:
        partition.log.roll(now_ms)
    except StorageFailed as failure:
        table.on_storage_failure(failure)
