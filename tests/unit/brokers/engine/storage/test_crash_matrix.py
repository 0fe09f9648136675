"""Crash matrix (LOG-41): scripted runs with a crash before and within each file operation and during the start after
it.

The broker's own recovery opens the remains, which are then compared with the model.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.simulation.checks import check_compacted, check_files, check_promises, check_transactions
from tests.simulation.disk import Disk
from tests.simulation.log import SimulatedLog
from tests.simulation.matrix import Effort, crash_everywhere, quick_directory
from tests.testkit import depth

# The suite crashes at every step, cuts the power at some, and crashes some of the following starts.
# `PENSTOCK_CRASH_ALL=1` tries everything (many minutes); `PENSTOCK_CRASH_PIECE=2/5` is the second of five parts of each
# run.
PIECE_OF_DAY = "1/1" if depth.LONG else f"{depth.part_of_day(4) + 1}/4"
PIECE, PIECES = map(int, os.environ.get("PENSTOCK_CRASH_PIECE", PIECE_OF_DAY).split("/"))
EFFORT = (Effort() if os.environ.get("PENSTOCK_CRASH_ALL", "0") != "0" else Effort(3, 1, 40))._replace(
    piece=(PIECE - 1, PIECES)
)
EPOCH_AFTER = 50


def filled(log: SimulatedLog, batches: int = 4) -> None:
    for number in range(batches):
        log.append(1 + number % 3, 60, shift_ms=-number * 10, producer=number % 2)


def appends(log: SimulatedLog) -> None:
    filled(log, 6)


def rolls(log: SimulatedLog) -> None:
    filled(log)
    log.roll()
    filled(log)
    log.flush()
    log.roll()
    log.append(2)


def flushes(log: SimulatedLog) -> None:
    for _ in range(3):
        filled(log, 3)
        log.flush()
    log.roll()
    log.flush()
    log.append(1)
    log.roll()
    log.append(2, shift_ms=50)
    log.flush()


def sparse_index(log: SimulatedLog) -> None:
    for _ in range(8):
        log.append(1, 100, codec=1)
    log.flush()
    for _ in range(10):
        log.append(2, 100)
    log.flush()


def retention(log: SimulatedLog) -> None:
    for _ in range(3):
        filled(log, 2)
        log.roll()
    log.flush()
    log.retain(500)
    log.append(1)
    log.retain(0)
    log.append(1)
    log.retain(0)


def truncation(log: SimulatedLog) -> None:
    for _ in range(3):
        filled(log, 3)
        log.roll()
    log.flush()
    log.append(1)
    log.truncate(9)
    filled(log, 3)
    log.roll()
    filled(log, 2)
    log.truncate(0)
    log.append(3)


def deleted_records(log: SimulatedLog) -> None:
    filled(log)
    log.roll()
    filled(log)
    log.delete_records(3)
    log.append(1)
    log.delete_records(9)
    log.retain(10**6)
    log.delete_records(10**6)
    log.append(1)


def elections(log: SimulatedLog) -> None:
    log.append(1)
    log.elect()
    log.append(2)
    log.flush()
    log.elect()
    log.elect()
    log.append(1)
    log.roll()
    log.elect()
    log.append(1)
    log.flush()


def clean_stops(log: SimulatedLog) -> None:
    filled(log)
    log.roll()
    log.append(1)
    log.restart()
    filled(log)
    log.restart()
    log.restart()
    log.append(1)


def cleanings(log: SimulatedLog) -> None:
    for _ in range(3):
        filled(log, 3)
        log.roll()
    log.append(1)
    log.clean()
    log.append(1)


def transactions(log: SimulatedLog) -> None:
    """Some transactions end in another segment than they begin in, and some after a clean stop."""
    log.append(1)
    log.append(2, producer=3, transactional=True)
    log.append(1, producer=4, transactional=True)
    log.mark(3, committed=False)
    log.flush()
    log.append(1, producer=5, transactional=True)
    log.roll()
    log.mark(4, committed=False)
    log.append(1, producer=3, transactional=True)
    log.flush()
    log.roll()
    log.mark(5, committed=True)
    log.mark(3, committed=False)
    log.append(1, producer=4, transactional=True)
    log.truncate(8)
    log.append(1, producer=5, transactional=True)
    log.restart()
    log.mark(5, committed=False)
    log.roll()
    log.append(1)


SCENARIOS = (
    appends, rolls, flushes, sparse_index, retention, truncation, deleted_records, elections, clean_stops,
    transactions,
)  # fmt: skip


@pytest.mark.parametrize("scenario", [*SCENARIOS, cleanings], ids=lambda scenario: scenario.__name__)
def test_a_crash_at_any_step_keeps_every_promise(
    scenario: Callable[[SimulatedLog], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with quick_directory() as home:
        top = home / "run"
        top.mkdir()
        disk = Disk(top)
        with disk.recording():
            log = SimulatedLog(top, disk=disk, compacted=scenario is cleanings)
            first_step = 0 if scenario is appends else log.step
            scenario(log)
        disk.end_process()

        def check(left: Path, step: int, power_lost: bool) -> None:
            """Checks that the start keeps every promise, that the log takes appends, and that a clean stop preserves
            them.
            """
            disk = Disk(left)
            with disk.recording():
                again = SimulatedLog(left, disk=disk, epoch=EPOCH_AFTER, compacted=log.compacted)
                held = again.partition.log
                (check_compacted if log.compacted else check_promises)(
                    again.partition, log.model, step, power_lost=power_lost
                )
                check_files(Path(held.directory), held)
                start, end = held.log_start_offset, held.log_end_offset
                again.model.end = end
                again.append(2)
                again.restart()
                held = again.partition.log
                assert (held.log_start_offset, held.log_end_offset) == (start, end + 2)
                if not log.compacted:
                    check_transactions(held)
            disk.end_process()

        tried = crash_everywhere(home, disk, check, EFFORT, log.model.at, first_step)
    with capsys.disabled():
        print(
            f"\n{scenario.__name__}: {len(disk.ops)} operations, {tried.crashes} crashes, {tried.starts} starts", end=""
        )
