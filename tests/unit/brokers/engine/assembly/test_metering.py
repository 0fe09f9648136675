"""Reports of the usage of an earlier process, whose files cannot be read or have an invalid entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from brokers.engine.assembly import metering
from brokers.engine.assembly.mmap_counters import MmapCounters
from brokers.engine.throttling.accounting import AccountingRegistry
from tests.testkit.in_process import InProcessBroker

NOW_MS, EPOCH = 1_700_000_000_000, 41


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    """Returns the broker's directory, with the files of a process that counted for two clients and was killed."""
    directory = tmp_path / "broker"
    data = directory / "data"
    data.mkdir(parents=True)
    kept = MmapCounters(data)
    kept.open(NOW_MS)
    kept.store_broker_epoch(EPOCH)
    usage = AccountingRegistry(allocate_numbers=kept.allocate_numbers).get_or_create("ins-x").usage
    for client in ("a", "b"):
        usage.counter("orders", "User:a", client, "produce").add(10)
    return directory


async def reported(broker: InProcessBroker) -> None:
    """Waits until the broker can write usage, and lets it report once."""
    running = broker.broker
    await broker.until(lambda: running.metering.broker_epoch is not None and running.metering._partition() is not None)
    assert await running.metering.report()


def said(lines: list[Any], event: str) -> list[Any]:
    return [line for line in lines if line["event"] == event]


async def test_files_that_cannot_be_opened_now_are_reported_later_by_the_same_process(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metering, "UNREPORTED_RETRY_MS", 0, raising=False)
    counters, elsewhere = directory / "data" / "usage.1.counters", directory / "elsewhere"
    counters.rename(elsewhere)
    counters.mkdir()
    with capture_logs() as lines:
        async with InProcessBroker(directory) as broker:
            await reported(broker)
            assert said(lines, "usage_left_unreadable")
            assert not said(lines, "usage_of_an_earlier_run_reported")
            counters.rmdir()
            elsewhere.rename(counters)
            await reported(broker)
    (line,) = said(lines, "usage_of_an_earlier_run_reported")
    assert (line["broker_epoch"], line["counters"]) == (EPOCH, 2)
    assert not list((directory / "data").glob("usage.1.*"))


@pytest.mark.parametrize("damage", [b"no json", b"5", b'["ins-x", "orders"]', b"[1, 2, 3, 4, 5]", b"\xff"])
async def test_a_damaged_file_is_reported_up_to_the_damage_and_kept(directory: Path, damage: bytes) -> None:
    keys = directory / "data" / "usage.1.keys"
    first = keys.read_bytes().split(b"\n")[0]
    keys.write_bytes(first + b"\n" + damage + b"\n")
    with capture_logs() as lines:
        async with InProcessBroker(directory) as broker:
            await reported(broker)
    (line,) = said(lines, "usage_of_an_earlier_run_reported")
    assert (line["broker_epoch"], line["counters"]) == (EPOCH, 1)
    assert len(said(lines, "usage_left_unreadable")) == 1
    kept = {file.name for file in (directory / "data").glob("usage.1.*")}
    assert kept == {"usage.1.counters.unreadable", "usage.1.keys.unreadable"}
