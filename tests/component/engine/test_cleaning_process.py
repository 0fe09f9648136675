"""The cleaning process when it is killed, has no disk space, or cannot start: log and broker stay, and it
is retried.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest
from structlog.testing import capture_logs

from brokers.engine.assembly import cleaning
from brokers.engine.assembly.cleaning import LogCleaning
from brokers.engine.partitions.cleaning import LogToClean
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.storage.compaction.settings import CleanerSettings
from brokers.engine.storage.compaction.worker import NICENESS
from tests.testkit.waiting import eventually
from tests.unit.brokers.engine.partitions.test_cleaning import _lead, _produce
from tests.unit.brokers.engine.partitions.test_table import NOW_MS, opened

DEADLINE_S = 30
BACKOFF_MS = 15_000
FIRST_CLEANED = "00000000000000000000.log.cleaned"


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


def _dirty(table: PartitionTable, records: int = 60) -> Partition:
    """Fills a log; the first segment has a record that stays."""
    partition = _lead(table, "t")
    data = memoryview(build_batch([Record(NOW_MS, b"alone", b"x")]))
    assert partition.append(data, NOW_MS, acks=1, produce_version=9).error_code == 0
    _produce(partition, records)
    return partition


def _contents(partition: Partition) -> dict[str, str]:
    """Returns a hash of every segment. Indexes are left out: they are stored when their log is flushed."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in Path(partition.log.directory).glob("*.log")
    }


def _planned(runner: LogCleaning) -> LogToClean:
    work = runner._plan()
    assert work is not None
    return work


def _clean(runner: LogCleaning, work: LogToClean | None = None) -> None:
    """Cleans everything that is due, with the real process."""
    asyncio.run(asyncio.wait_for(runner._clean_all(work or _planned(runner)), DEADLINE_S))


def _workers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if cleaning.WORKER in child.cmdline()]


NICENESS_MAX = 19  # the tests may run with a niceness of their own


def test_the_process_takes_what_the_others_leave() -> None:
    worker = subprocess.Popen([sys.executable, "-m", cleaning.WORKER], stdin=subprocess.PIPE, cwd=cleaning.SOURCES)
    try:
        eventually(lambda: os.getsid(worker.pid) == worker.pid, within_s=DEADLINE_S, what="a session of its own")
        assert psutil.Process(worker.pid).nice() == min(os.nice(0) + NICENESS, NICENESS_MAX)
        group = Path(f"/proc/{worker.pid}/autogroup")
        if group.exists():
            eventually(lambda: f"nice {NICENESS}\n" in group.read_text(), within_s=DEADLINE_S, what="a nice session")
    finally:
        worker.communicate()
    assert worker.returncode == 0


async def _interrupt(runner: LogCleaning, by: Callable[[asyncio.Task[None]], object]) -> None:
    """Calls `by` while the process writes."""
    work = _planned(runner)
    task = asyncio.create_task(runner._clean_all(work))
    await asyncio.to_thread(eventually, partial(_remains, work.partition), within_s=DEADLINE_S)
    by(task)
    await asyncio.wait_for(task, DEADLINE_S)


def _remains(partition: Partition) -> list[Path]:
    return list(Path(partition.log.directory).glob("*.cleaned"))


def test_a_process_that_is_killed_is_followed_by_another_after_a_growing_while(tmp_path: Path) -> None:
    """Only an error in the log itself excludes it for good (CMP-15)."""
    table, clock = opened(tmp_path), Clock()
    partition = _dirty(table)
    before = _contents(partition)
    slow = CleanerSettings(io_bytes_per_s=100_000.0, io_buffer_bytes=4_096, backoff_ms=BACKOFF_MS)
    runner = LogCleaning(table, slow, clock)
    for wait_ms in (BACKOFF_MS, 2 * BACKOFF_MS):
        with capture_logs() as sent:
            asyncio.run(_interrupt(runner, lambda _: _workers()[0].kill()))
        assert [(line["event"], line["fault"], line["tried_again_after_ms"]) for line in sent] == [
            ("cleaning_failed", "passing", wait_ms)
        ]
        assert "-9" in sent[0]["reason"]
        assert _contents(partition) == before
        assert not _remains(partition)
        assert (table.cleaned.waiting, table.cleaned.uncleanable) == (1, 0)
        clock.now_ms += wait_ms - 1
        assert runner._plan() is None
        clock.now_ms += 1
    runner._cleaner._settings = CleanerSettings()

    _clean(runner)

    assert partition.size_bytes < 25_000
    assert (table.cleaned.waiting, table.cleaned.failures, table.cleaned.runs) == (0, 2, 1)
    table.close()


def test_a_disk_without_room_for_the_copy_is_tried_again(tmp_path: Path) -> None:
    """The output file is /dev/full: ENOSPC."""
    table, clock = opened(tmp_path), Clock()
    partition = _dirty(table)
    before = _contents(partition)
    runner = LogCleaning(table, CleanerSettings(), clock)
    work = _planned(runner)
    Path(work.job.directory, FIRST_CLEANED).symlink_to("/dev/full")

    _clean(runner, work)

    assert not partition.offline
    assert _contents(partition) == before
    assert (table.cleaned.failures, table.cleaned.waiting, table.cleaned.uncleanable) == (1, 1, 0)
    clock.now_ms += BACKOFF_MS
    _clean(runner)
    assert partition.size_bytes < 25_000
    table.close()


def test_an_io_error_gives_the_directory_up(tmp_path: Path) -> None:
    """LOG-3: the output file answers EIO, as a process's memory does at address 0; the other root stays."""
    table = opened(tmp_path / "a", tmp_path / "b")
    partition = _dirty(table)
    before = _contents(partition)
    runner = LogCleaning(table, CleanerSettings(), Clock())
    work = _planned(runner)
    Path(work.job.directory, FIRST_CLEANED).symlink_to("/proc/self/mem")

    _clean(runner, work)

    assert partition.offline
    assert list(table.offline_directories) == [partition.log.root]
    assert "Input/output error" in table.offline_directories[partition.log.root]
    assert _contents(partition) == before
    assert runner._plan() is None
    table.close()


def test_a_damaged_log_is_kept_out(tmp_path: Path) -> None:
    """CMP-15."""
    table, clock = opened(tmp_path), Clock()
    partition = _dirty(table)
    first = Path(partition.log.segments[0].file.path)
    content = bytearray(first.read_bytes())
    content[500] ^= 4
    first.write_bytes(content)
    runner = LogCleaning(table, CleanerSettings(), clock)

    _clean(runner)

    assert (table.cleaned.failures, table.cleaned.waiting, table.cleaned.uncleanable) == (1, 0, 1)
    clock.now_ms += 10**9
    assert runner._plan() is None
    assert not partition.offline
    table.close()


@pytest.mark.parametrize("worker", ["no.such.module", None])
def test_a_process_that_does_not_start_leaves_log_and_broker_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: str | None
) -> None:
    table, clock = opened(tmp_path), Clock()
    partition = _dirty(table)
    before = _contents(partition)
    if worker is None:
        monkeypatch.setattr(cleaning.sys, "executable", str(tmp_path / "nothing"))
    else:
        monkeypatch.setattr(cleaning, "WORKER", worker)
    runner = LogCleaning(table, CleanerSettings(), clock)

    _clean(runner)

    assert _contents(partition) == before
    assert (table.cleaned.failures, table.cleaned.waiting, table.cleaned.uncleanable) == (1, 1, 0)
    assert runner._plan() is None
    clock.now_ms += BACKOFF_MS
    assert runner._plan() is not None
    table.close()


def test_a_run_that_is_cancelled_leaves_nothing_behind(tmp_path: Path) -> None:
    """The broker stops."""
    table = opened(tmp_path)
    partition = _dirty(table)
    before = _contents(partition)
    runner = LogCleaning(table, CleanerSettings(io_bytes_per_s=100_000.0, io_buffer_bytes=4_096), Clock())

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(_interrupt(runner, lambda task: task.cancel()))

    assert not _workers()
    assert _contents(partition) == before
    assert table.cleaned.failures == 0
    table.close()


async def test_a_thread_rests_until_the_thread_count_includes_it(tmp_path: Path) -> None:
    """Changes of `log.cleaner.threads` in a running broker, and of the back-off of a resting thread."""

    class Looking(LogCleaning):
        looked = 0

        def _plan(self) -> LogToClean | None:
            self.looked += 1
            return None

    runner = Looking(opened(tmp_path), CleanerSettings(backoff_ms=1), Clock())
    second = asyncio.create_task(runner.run(1))
    await asyncio.sleep(0)
    assert runner.looked == 0

    async with asyncio.timeout(DEADLINE_S):
        runner.use(CleanerSettings(threads=2, backoff_ms=1))
        while runner.looked < 2:  # noqa: ASYNC110 (a fake that nobody tells of)
            await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
