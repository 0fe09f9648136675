"""Periodic work on logs: retention and other maintenance, flushes, and the reaction to a failed disk (LOG-3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

import structlog

from brokers.engine.lifecycle import Periodic
from brokers.engine.partitions.flush import FlushBatch
from brokers.engine.partitions.offset_files import HighWatermarksBatch
from brokers.engine.partitions.table import NoUsableDirectory, PartitionTable
from brokers.engine.scheduling.turn_queue import TurnQueue

log = structlog.get_logger(__name__)

MAINTENANCE_INTERVAL_S: Final = 5.0
FLUSH_INTERVAL_S: Final = 30.0
# Kafka's setting `replica.high.watermark.checkpoint.interval.ms`.
HIGH_WATERMARK_INTERVAL_S: Final = 5.0
# Accuracy of `flush.messages` and `flush.ms`.
FLUSH_DUE_INTERVAL_S: Final = 1.0
# Maximum time for closing logs early; the rest is closed after the ports.
EARLY_CLOSE_S_MAX: Final = 10.0
SHORTAGE_LOG_INTERVAL_MS: Final = 60_000


class LogMaintenance:
    """Periodic work on the logs of one broker. `fail` ends the process with a reason."""

    def __init__(self, table: PartitionTable, now_ms: Callable[[], int], fail: Callable[[str], None]) -> None:
        self._table = table
        self._now_ms = now_ms
        self._fail = fail
        self._reported: set[Path] = set()
        self._shortage_reported_ms = 0
        self._flushing = asyncio.Lock()

    def start_periodic(self, periodic: Periodic, turns: TurnQueue) -> None:
        periodic.every(MAINTENANCE_INTERVAL_S, lambda: self._maintain_in_turns(turns))
        periodic.every(MAINTENANCE_INTERVAL_S, self._delete_files)
        periodic.every(FLUSH_INTERVAL_S, lambda: self._flush(self._table.flusher.plan_flush))
        periodic.every(HIGH_WATERMARK_INTERVAL_S, lambda: self._keep_high_watermarks(turns))
        periodic.every(FLUSH_DUE_INTERVAL_S, lambda: self._flush(self._plan_due_flush))

    def _plan_due_flush(self) -> FlushBatch | None:
        return self._table.flusher.plan_due_flush(self._now_ms())

    async def close_followed_logs(self) -> None:
        """Flushes and closes the logs that this broker does not lead, for up to EARLY_CLOSE_S_MAX. Called before the
        ports are closed, because many logs take seconds.
        """
        until_s = asyncio.get_running_loop().time() + EARLY_CLOSE_S_MAX
        async with self._flushing:
            while asyncio.get_running_loop().time() < until_s:
                batch = self._table.flusher.plan_early_close()
                if batch is None:
                    return
                await asyncio.to_thread(batch.run)
                batch.finish()

    def maintain(self) -> None:
        """Runs all maintenance without yielding to the event loop."""
        for _ in self._maintenance():
            pass

    async def _maintain_in_turns(self, turns: TurnQueue) -> None:
        await turns.run(self._maintenance())

    async def _keep_high_watermarks(self, turns: TurnQueue) -> None:
        async with self._flushing:
            batch = await turns.run(self._table.flusher.plan_high_watermarks_in_steps())
            if batch is not None:
                await asyncio.to_thread(batch.run)
                batch.finish()

    def _maintenance(self) -> Generator[None, None, None]:
        for directory, reason in self._table.offline_directories.items():
            if directory not in self._reported:
                self._reported.add(directory)
                log.error("log_directory_offline", directory=str(directory), reason=reason)
        self._log_shortage(self._now_ms())
        try:
            yield from self._table.maintenance(self._now_ms(), removes_files=False)
        except NoUsableDirectory as failure:
            self._fail(f"no log directory is left: {failure}")

    def _log_shortage(self, now_ms: int) -> None:
        """Logs a shortage of descriptors at a limited rate, whatever the number of requests that it failed."""
        files = self._table.files
        if files.shortages and not 0 <= now_ms - self._shortage_reported_ms < SHORTAGE_LOG_INTERVAL_MS:
            log.warning("storage_short_of_descriptors", times=files.shortages, last=files.shortage)
            self._shortage_reported_ms = now_ms
            files.shortages = 0

    async def _flush(self, plan: Callable[[], FlushBatch | HighWatermarksBatch | None]) -> None:
        # One at a time, since all kinds of flushes write the same checkpoints.
        async with self._flushing:
            batch = plan()
            if batch is not None:
                await asyncio.to_thread(batch.run)
                batch.finish()

    async def drop_deleted_from_checkpoints(self) -> bool:
        """Removes deleted partitions from the checkpoint files. Returns True if all files could be written."""
        async with self._flushing:
            batch = self._table.flusher.plan_checkpoints()
            if batch is None:
                return True
            await asyncio.to_thread(batch.run)
            batch.finish()
            return batch.is_complete

    async def _delete_files(self) -> None:
        batch = self._table.plan_removals(self._now_ms())
        if batch is None:
            return
        try:
            await asyncio.to_thread(batch.run)
        finally:
            batch.stop()  # a stopping broker does not wait for the deletion of gigabytes
        batch.finish()
