"""Runs the log cleaner: the event loop selects logs and swaps in the results, child processes clean them (CMP-10)."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import structlog

import brokers
from brokers.engine.partitions.cleaning import Cleaner, LogToClean
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.storage.compaction.job import Cleaned, Failed, Fault, Finished, parse_event
from brokers.engine.storage.compaction.settings import CleanerSettings
from brokers.engine.storage.files import StorageFailed

log = structlog.get_logger(__name__)

SOURCES: Final = Path(brokers.__file__).resolve().parents[1]
WORKER: Final = "brokers.engine.storage.compaction.worker"
# Maximum size of an event, which names the segments of one group.
EVENT_BYTES_MAX: Final = 16 * 1024 * 1024
END_TIMEOUT_S: Final = 5.0
MS: Final = 1000


class WorkerFailed(Exception):
    """The cleaning process ended, or sent an invalid event."""


class LogCleaning:
    """The log cleaner. Each task of `run` is one cleaner thread in Kafka's sense; two never clean the same log."""

    def __init__(self, table: PartitionTable, settings: CleanerSettings, now_ms: Callable[[], int]) -> None:
        self._table = table
        self._settings = settings
        self._now_ms = now_ms
        self._cleaner = Cleaner(table, settings)
        self._checkpoint_lock = asyncio.Lock()
        self._changed = asyncio.Event()

    def use(self, settings: CleanerSettings) -> None:
        """Applies new settings; a running cleaning finishes with the former ones."""
        self._settings = settings
        self._cleaner.use_settings(settings)
        # Wakes the idle threads.
        self._changed.set()
        self._changed = asyncio.Event()

    async def run(self, number: int = 0) -> None:
        """Runs the cleaner thread of this number: cleans all logs that are due, then waits `log.cleaner.backoff.ms`,
        forever. It pauses while its number is beyond `log.cleaner.threads`.
        """
        while True:
            if number >= self._settings.threads:
                await self._changed.wait()
                continue
            await self._write_lowered()
            work = self._plan()
            if work is not None:
                await self._clean_all(work)
            await asyncio.sleep(self._settings.backoff_ms / MS)

    async def _clean_all(self, first: LogToClean) -> None:
        """Cleans `first` and all logs that are due after it, with one process."""
        work: LogToClean | None = first
        try:
            async with _worker() as process:
                while work is not None:
                    done = await self._clean(process, work)
                    work = None
                    if done:
                        work = self._plan()
                    elif process.returncode is None:
                        process.kill()
        except OSError as error:  # no process could be started, or it ended before it was killed
            log.error("cleaning_process_failed", reason=str(error))
            if work is not None:
                self._fail(work, Failed(f"no cleaning process could be started: {error}", Fault.TRANSIENT))

    def _plan(self) -> LogToClean | None:
        work = self._cleaner.plan(self._now_ms())
        for topic, partition in self._cleaner.ignored_checkpoints:
            log.warning("cleaner_checkpoint_past_the_log", topic=topic, partition=partition)
        self._cleaner.ignored_checkpoints.clear()
        return work

    async def _clean(self, process: Process, work: LogToClean) -> bool:
        """Runs one cleaning. Returns True if the process can run another one."""
        started_s = asyncio.get_running_loop().time()
        try:
            outcome = await self._run_job(process, work) if await self._make_durable(work) else None
        except (WorkerFailed, OSError) as error:
            self._fail(work, Failed(f"the cleaning process failed: {error}", Fault.TRANSIENT))
            return False
        except asyncio.CancelledError:
            self._cleaner.abandon(work)
            raise
        if isinstance(outcome, Finished):
            self._cleaner.on_finished(work, outcome)
            await self._checkpoint(work.partition.log.root)
            took_s = round(asyncio.get_running_loop().time() - started_s, 3)
            self._log_event(work, "log_cleaned", dirty_ratio=round(work.ratio, 3), took_s=took_s, **outcome._asdict())
            return True
        if isinstance(outcome, Failed):
            self._fail(work, outcome)
            return True
        self._cleaner.abandon(work)
        self._log_event(work, "cleaning_given_up")
        return False

    def _fail(self, work: LogToClean, failed: Failed) -> None:
        wait_ms = self._cleaner.on_failed(work, failed, self._now_ms())
        self._log_event(
            work, "cleaning_failed", reason=failed.reason, fault=failed.fault.value, tried_again_after_ms=wait_ms
        )

    async def _make_durable(self, work: LogToClean) -> bool:
        """Flushes the log, and names it in a checkpoint file first if none does. Returns False on a disk error."""
        durable = True
        try:
            await asyncio.to_thread(work.flush_log)
        except StorageFailed as failure:
            self._table.on_directory_failure(failure)
            durable = False
        self._cleaner.finish_flush(work)
        return durable and (not work.is_first or await self._checkpoint(work.partition.log.root))

    async def _write_lowered(self) -> None:
        """Writes the checkpoint files whose entries are too high, before a log grows to these offsets."""
        for root in tuple(self._cleaner.roots_to_checkpoint):
            self._cleaner.roots_to_checkpoint.discard(root)
            if not await self._checkpoint(root):
                self._cleaner.roots_to_checkpoint.add(root)

    async def _checkpoint(self, root: Path) -> bool:
        """Writes the checkpoint file of a root. Returns False on a disk error."""
        try:
            async with self._checkpoint_lock:
                await asyncio.to_thread(self._cleaner.checkpoint(root).write)
        except StorageFailed as failure:
            self._table.on_storage_failure(failure)
            return False
        return True

    async def _run_job(self, process: Process, work: LogToClean) -> Finished | Failed | None:
        """Sends the job to the process and swaps in the results. Returns the last event, or None if the log changed so
        that the run is useless.
        """
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(work.job.to_json().encode() + b"\n")
        await process.stdin.drain()
        while True:
            line = await process.stdout.readline()
            if not line.endswith(b"\n"):
                raise WorkerFailed(f"it ended in the middle of its work with {await process.wait()}")
            try:
                event = parse_event(line)
            except (ValueError, TypeError) as error:
                raise WorkerFailed(f"it said what is no event: {error}") from error
            if not isinstance(event, Cleaned):
                return event
            if not self._cleaner.swap_in(work, event, self._now_ms()):
                return None

    @staticmethod
    def _log_event(work: LogToClean, event: str, **numbers: object) -> None:
        emit = log.error if event == "cleaning_failed" else log.info
        emit(event, topic=work.partition.topic, partition=work.partition.index, **numbers)


@contextlib.asynccontextmanager
async def _worker() -> AsyncIterator[Process]:
    """Starts a cleaning process and ends it after the block: its input is closed; after an error it is killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        WORKER,
        stdin=PIPE,
        stdout=PIPE,
        limit=EVENT_BYTES_MAX,
        cwd=SOURCES,
    )
    try:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), END_TIMEOUT_S)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
