"""One failing file operation of a run or a swap: the log is in its old state or in its new one."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from brokers.engine.records.builder import Record
from brokers.engine.storage.compaction import swap
from brokers.engine.storage.compaction.job import Cleaned
from brokers.engine.storage.files import StorageFailed
from brokers.engine.storage.log import Log, LogConfig
from tests.unit.brokers.engine.storage.compaction.cleaning import job_for, run
from tests.unit.brokers.engine.storage.logs import NOW_MS, append, new_log, read_all, reopen

CONFIG = LogConfig(index_limits=(64, 10_000), segment_bytes=600)
OPERATIONS = ("open", "write", "pread", "fsync", "fdatasync", "utime", "stat", "rename", "replace", "unlink")


@contextmanager
def failing_at(step: int, number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Makes file operation number `step` fail with `number`; yields the names of the operations that were called."""
    called: list[str] = []

    def fallible(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **more: Any) -> Any:
            called.append(name)
            if len(called) - 1 == step:
                raise OSError(number, os.strerror(number))
            return operation(*arguments, **more)

        return act

    with monkeypatch.context() as patched:
        for name in OPERATIONS:
            patched.setattr(os, name, fallible(name, getattr(os, name)))
        yield called


def _dirty_log(directory: Path) -> Log:
    """Builds a log of several segments, which compaction merges into two or three, and an active one."""
    log = new_log(directory, CONFIG)
    for number in range(20):
        append(log, [Record(NOW_MS + number, b"%d" % (number % 7), b"%d" % number * 9)], codec=number % 3)
    for segment in log.segments:
        segment.offset_index.store()
        segment.time_index.store()
    return log


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def _contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_an_error_anywhere_in_a_run_leaves_the_log_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _dirty_log(tmp_path / "t-0")
    before = _contents(tmp_path / "t-0")
    job = job_for(log, now_ms=NOW_MS)
    met: set[str] = set()
    descriptors = _descriptors()
    for step in itertools.count():
        with failing_at(step, errno.ENOSPC, monkeypatch) as called:
            try:
                events = run(job)
            except (OSError, StorageFailed) as error:
                cause = error.cause if isinstance(error, StorageFailed) else error
                assert cause.errno == errno.ENOSPC
                met.add(called[step])
        if len(called) <= step:
            break
        swap.discard(log.directory, log.root)
        assert _contents(tmp_path / "t-0") == before
        assert _descriptors() == descriptors
    assert {"open", "write", "pread", "fsync", "utime"} <= met
    assert step > 30
    written = dict(read_all(log))
    for group in events[:-1]:
        assert isinstance(group, Cleaned)
        assert swap.swap_in(log, group) is not None
    _check(log, written)


def test_an_error_anywhere_in_a_swap_is_reported_and_the_next_start_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory goes offline (LOG-3); in either of the two states a start finds every last value."""
    original = tmp_path / "original" / "t-0"
    log = _dirty_log(original)
    written = dict(read_all(log))
    cleaned = tmp_path / "cleaned"
    groups = [group for group in run(job_for(log, now_ms=NOW_MS)) if isinstance(group, Cleaned)]
    cleaned.mkdir()
    for path in original.glob("*.cleaned"):
        path.rename(cleaned / path.name)
    sent = 0
    for step in itertools.count():
        directory = tmp_path / "again" / "t-0"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(original, directory)
        log, _ = reopen(directory, CONFIG, clean=False)
        for path in cleaned.iterdir():  # the start removed files of an unfinished run
            shutil.copy(path, directory)
        with failing_at(step, errno.EIO, monkeypatch) as called:
            try:
                for group in groups:
                    assert swap.swap_in(log, group) is not None
            except StorageFailed:
                sent += 1
        if len(called) <= step:
            break
        for segment in log.segments:
            segment.file.close()
        log, report = reopen(directory, CONFIG, clean=False)
        assert report.truncated_bytes == 0
        _check(log, written)
        for segment in log.segments:
            segment.file.close()
    assert sent > 15
    _check(log, written)


def _check(log: Log, written: dict[int, Record]) -> None:
    log.check()
    result = dict(read_all(log))
    assert result.items() <= written.items()
    latest = {record.key: offset for offset, record in written.items()}
    assert set(latest.values()) <= set(result)
    assert log.log_end_offset == max(written) + 1
