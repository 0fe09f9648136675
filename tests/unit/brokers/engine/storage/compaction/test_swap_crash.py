"""A crash between two file operations of a swap, and another one during the start after it (LOG-41, CMP-26)."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from brokers.engine.records.batch import TRANSACTIONAL, read_header
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.records.control import ABORT, end_marker
from brokers.engine.storage.compaction import swap
from brokers.engine.storage.compaction.job import Cleaned
from brokers.engine.storage.log import Log, LogConfig
from brokers.engine.storage.transactions import replay_batch
from tests.simulation.matrix import quick_directory
from tests.testkit import depth
from tests.unit.brokers.engine.storage.compaction.cleaning import job_for, run
from tests.unit.brokers.engine.storage.logs import NOW_MS, append, new_log, read_all, reopen

CONFIG = LogConfig(index_limits=(64, 10_000))
KEYS = 4
PARTS = 3
ABORTED_KEY = b"aborted"


class Died(BaseException):
    """Crash of the process, which no handler of the broker catches."""


@contextmanager
def dying_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Stops before file operation number `step`; yields the number of operations that ran."""
    done = 0

    def mortal(operation: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **more: Any) -> Any:
            nonlocal done
            if done == step:
                raise Died
            done += 1
            return operation(*arguments, **more)

        return act

    with monkeypatch.context() as patched:
        for name in ("rename", "replace", "unlink"):
            patched.setattr(os, name, mortal(getattr(os, name)))
        yield lambda: done


def _aborted_transaction(log: Log) -> None:
    """Appends an aborted transaction; its data is removed, its marker and list entry stay for this run (CMP-22)."""
    data = build_batch(
        [Record(NOW_MS, ABORTED_KEY, b"v")], attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0
    )
    marker = end_marker(ABORT, timestamp_ms=NOW_MS, producer_id=7, producer_epoch=0, coordinator_epoch=0)
    for batch in (data, marker):
        log.append(memoryview(batch), 0, NOW_MS, 0, NOW_MS)
        replay_batch(log, read_header(batch), batch, log.active)


def _dirty_log(directory: Path) -> tuple[Log, list[tuple[int, Record]]]:
    """Builds three closed segments and an active one; the last records of the keys lie in the first, second and active
    one.
    """
    log = new_log(directory, CONFIG)
    _aborted_transaction(log)
    for number in range(9):
        append(log, [Record(NOW_MS + number, b"%d" % (number % KEYS), b"%d" % number)])
        if number % 3 == 2:
            log.roll(NOW_MS)
    append(log, [Record(NOW_MS, b"0", b"active")])
    for segment in log.segments:
        for index in segment.indexes():
            index.store()
    return log, read_all(log)


def _check(log: Log, written: list[tuple[int, Record]]) -> None:
    log.check()
    result = read_all(log)
    assert set(result) <= set(written)
    assert result == sorted(result, key=lambda pair: pair[0])
    latest = {record.key: (offset, record) for offset, record in written if record.key != ABORTED_KEY}
    assert set(latest.values()) <= set(result)
    assert log.log_end_offset == written[-1][0] + 1
    names = [path.name for path in Path(log.directory).iterdir()]
    assert not [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
    logs = {name for name in names if name.endswith(".log")}
    assert logs == {f"{held.base_offset:020d}.log" for held in log.segments}
    lists = {name for name in names if name.endswith(".txnindex")}
    assert lists == {f"{held.base_offset:020d}.txnindex" for held in log.segments if held.aborted is not None}
    for index in (held.aborted for held in log.segments if held.aborted is not None):
        # Recovery lists no transaction whose data is gone.
        assert [tuple(index.entry(number)) for number in range(len(index))] in ([(7, 0, 1, 2)], [])


def _attempt(directory: Path, group: Cleaned, step: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Crashes a swap at `step`; returns False if the swap had fewer operations."""
    log, _ = reopen(directory, CONFIG, clean=False)
    for part in (".log", ".index", ".timeindex", ".txnindex"):  # the start removed files of an unfinished run
        source = directory.parent / "cleaned" / f"{group.base_offset:020d}{part}.cleaned"
        shutil.copy(source, directory / source.name)
    with dying_at(step, monkeypatch):
        try:
            assert swap.swap_in(log, group) is not None
        except Died:
            return True
    return False


@pytest.fixture
def quick_path() -> Iterator[Path]:
    with quick_directory() as home:
        yield home


# A crash while a directory is listed leaves the listing open, unlike the end of a process.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("clean", [True, False])
def test_no_last_value_is_lost_at_any_step_the_broker_dies_at(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, clean: bool
) -> None:
    original = quick_path / "t-0"
    log, written = _dirty_log(original)
    group, _ = run(job_for(log, now_ms=NOW_MS))
    assert isinstance(group, Cleaned)
    assert len(group.sources) == 3
    kept = quick_path / "cleaned"
    kept.mkdir()
    for path in original.glob("*.cleaned"):
        path.rename(kept / path.name)

    steps = 0
    for step in itertools.count():
        crashed = quick_path / "crashed" / "t-0"
        shutil.rmtree(crashed, ignore_errors=True)
        shutil.copytree(original, crashed)
        (quick_path / "crashed" / "cleaned").exists() or shutil.copytree(kept, quick_path / "crashed" / "cleaned")
        if not _attempt(crashed, group, step, monkeypatch):
            break
        steps += 1
        # The start after the crash crashes too: after each step in a long run, otherwise after every third, which
        # depends on the date.
        if not depth.LONG and step % PARTS != depth.part_of_day(PARTS):
            _check(reopen(crashed, CONFIG, clean=clean)[0], written)
            continue
        for again in itertools.count():
            directory = quick_path / "again" / "t-0"
            shutil.rmtree(directory, ignore_errors=True)
            shutil.copytree(crashed, directory)
            with dying_at(again, monkeypatch):
                try:
                    reopen(directory, CONFIG, clean=clean)
                    died = False
                except Died:
                    died = True
            _check(reopen(directory, CONFIG, clean=clean)[0], written)
            if not died:
                break
    assert steps > 12
    assert len(read_all(reopen(crashed, CONFIG, clean=clean)[0])) == 1 + KEYS + 1, "the marker is a record too"
