"""Counters in files: the next process reports what a killed one had not."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from brokers.contract.usage import USAGE_INTERVAL_MS, ReportHead, UsageEvent
from brokers.engine.assembly.mmap_counters import CHUNK_SLOTS, MmapCounters
from brokers.engine.throttling.accounting import AccountingRegistry
from brokers.engine.throttling.usage import reports

NOW_MS = 1_700_000_000_000
BROKER, EPOCH = 3, 41


def opened(directory: Path, epoch: int = EPOCH) -> tuple[MmapCounters, AccountingRegistry, list[UsageEvent]]:
    """Opens the counters of a new process; returns also the usage of earlier ones."""
    kept = MmapCounters(directory)
    unreported = kept.open(NOW_MS)
    result = [event for item in unreported for event in item.events(BROKER, NOW_MS + 60_000)]
    kept.store_broker_epoch(epoch)
    return kept, AccountingRegistry(allocate_numbers=kept.allocate_numbers), result


def count(accountings: AccountingRegistry, client: str, size: int) -> None:
    accountings.get_or_create("ins-x").usage.counter("orders", "User:a", client, "produce").add(size)


def say(kept: MmapCounters, accountings: AccountingRegistry, sequence: int) -> None:
    for part in reports(accountings.usage(), ReportHead(BROKER, EPOCH, sequence, NOW_MS)):
        part.confirm()
    kept.store_last_report(sequence, NOW_MS)


def test_usage_counted_after_the_last_report_is_found_under_the_process_that_counted_it(tmp_path: Path) -> None:
    kept, accountings, result = opened(tmp_path)
    assert result == []
    count(accountings, "told", 100)
    count(accountings, "both", 10)
    say(kept, accountings, 7)
    count(accountings, "both", 5)
    count(accountings, "untold", 1)
    _, _, result = opened(tmp_path, epoch=42)
    assert {event.client_id: (event.bytes, event.requests) for event in result} == {"both": (15, 2), "untold": (1, 1)}
    assert {(event.broker_id, event.broker_epoch, event.sequence) for event in result} == {(BROKER, EPOCH, 8)}
    assert {event.at_ms for event in result} == {NOW_MS + USAGE_INTERVAL_MS}


def test_found_counters_stay_until_they_are_discarded(tmp_path: Path) -> None:
    _, accountings, _ = opened(tmp_path)
    count(accountings, "a", 1)
    opened(tmp_path)
    third = MmapCounters(tmp_path).open(NOW_MS)
    assert [len(list(item.events(BROKER, NOW_MS))) for item in third] == [1, 0]
    for item in third:
        item.discard()
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith("usage.1.")] == []


def test_an_incarnation_that_said_everything_leaves_nothing(tmp_path: Path) -> None:
    kept, accountings, _ = opened(tmp_path)
    count(accountings, "a", 1)
    say(kept, accountings, 1)
    kept.discard()
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2**40), st.booleans()), max_size=40))
def test_nothing_counted_is_lost_whenever_it_ends(tmp_path_factory: pytest.TempPathFactory, steps: list) -> None:
    directory = tmp_path_factory.mktemp("kept")
    kept, accountings, _ = opened(directory)
    sent: dict[str, int] = {}
    counted: dict[str, int] = {}
    for sequence, (client, size, report_now) in enumerate(steps, start=1):
        count(accountings, str(client), size)
        counted[str(client)] = counted.get(str(client), 0) + size
        if report_now:
            say(kept, accountings, sequence)
            sent = dict(counted)
    _, _, result = opened(directory)
    assert sent | {event.client_id: event.bytes for event in result} == counted


def test_more_counters_than_one_piece_holds_are_all_kept(tmp_path: Path) -> None:
    _, accountings, _ = opened(tmp_path)
    for number in range(CHUNK_SLOTS + 3):
        count(accountings, str(number), number + 1)
    _, _, result = opened(tmp_path)
    assert [event.bytes for event in result] == list(range(1, CHUNK_SLOTS + 4))


def test_a_line_that_was_being_written_is_passed_over(tmp_path: Path) -> None:
    _, accountings, _ = opened(tmp_path)
    count(accountings, "a", 1)
    with (tmp_path / "usage.1.keys").open("ab") as keys:
        keys.write(b'["ins-x", "ord')
    _, _, result = opened(tmp_path)
    assert [event.client_id for event in result] == ["a"]


@pytest.mark.parametrize("damage", [b"", b"no counters at all, but long enough to be some"], ids=["empty", "foreign"])
def test_files_that_make_no_sense_have_no_usage(tmp_path: Path, damage: bytes) -> None:
    _, accountings, _ = opened(tmp_path)
    count(accountings, "a", 1)
    (tmp_path / "usage.1.counters").write_bytes(damage)
    (unreported,) = MmapCounters(tmp_path).open(NOW_MS)
    with pytest.raises(ValueError, match="no counters") if damage else nullcontext():
        assert list(unreported.events(BROKER, NOW_MS)) == []


def test_files_that_are_set_aside_are_kept_and_found_by_no_later_process(tmp_path: Path) -> None:
    _, accountings, _ = opened(tmp_path)
    count(accountings, "a", 1)
    (unreported,) = MmapCounters(tmp_path).open(NOW_MS)
    unreported.set_aside()
    assert [item.number for item in MmapCounters(tmp_path).open(NOW_MS)] == [2]
    assert {file.name for file in tmp_path.iterdir()} > {"usage.1.counters.unreadable", "usage.1.keys.unreadable"}


def test_files_that_an_incarnation_had_no_room_to_begin_are_no_fault(tmp_path: Path) -> None:
    for kind in ("counters", "keys"):
        (tmp_path / f"usage.1.{kind}").touch()
    with capture_logs() as said:
        _, _, result = opened(tmp_path)
    assert (result, said) == ([], [])


def test_counters_that_the_disk_does_not_return_are_left_for_another_time(tmp_path: Path) -> None:
    (tmp_path / "usage.1.counters").mkdir()
    (unreported,) = MmapCounters(tmp_path).open(NOW_MS)
    with pytest.raises(IsADirectoryError):
        list(unreported.events(BROKER, NOW_MS))
    assert unreported.counters.exists()


def test_an_incarnation_that_never_joined_has_nothing_to_say(tmp_path: Path) -> None:
    kept = MmapCounters(tmp_path)
    kept.open(NOW_MS)
    _, _, result = opened(tmp_path)
    assert result == []


def test_a_full_disk_costs_the_memory_and_not_the_counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    _, accountings, _ = opened(tmp_path)
    count(accountings, "a", 5)
    assert accountings.get_or_create("ins-x").usage.counter("orders", "User:a", "a", "produce").bytes == 5


def test_a_directory_that_is_not_there_costs_the_memory_and_not_the_counting(tmp_path: Path) -> None:
    _, accountings, _ = opened(tmp_path / "gone")
    count(accountings, "a", 5)
    assert accountings.get_or_create("ins-x").usage.counter("orders", "User:a", "a", "produce").bytes == 5
