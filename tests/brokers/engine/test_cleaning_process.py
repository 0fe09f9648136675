"""The cleaning process dies or cannot be started: the log stays as it is, and so does the broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from brokers.engine.assembly import cleaning
from brokers.engine.assembly.cleaning import LogCleaning
from brokers.engine.storage.compaction.settings import CleanerSettings
from tests.brokers.engine.partitions.test_cleaning import _lead, _produce
from tests.brokers.engine.partitions.test_table import NOW_MS, opened


@pytest.mark.parametrize(("worker", "failures"), [("no.such.module", 1), (None, 0)])
async def test_a_process_that_fails_leaves_log_and_broker_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: str | None, failures: int
) -> None:
    table = opened(tmp_path)
    partition = _lead(table, "t")
    _produce(partition, 60)
    before = partition.size_bytes
    if worker is None:
        monkeypatch.setattr(cleaning.sys, "executable", str(tmp_path / "nothing"))
    else:
        monkeypatch.setattr(cleaning, "WORKER", worker)
    runner = LogCleaning(table, CleanerSettings(), lambda: NOW_MS)
    work = runner._plan()
    assert work is not None

    await asyncio.wait_for(runner._clean_all(work), 20)

    assert partition.size_bytes == before
    assert table.cleaned.failures == failures
    assert (runner._plan() is None) == bool(failures)
    table.close()
