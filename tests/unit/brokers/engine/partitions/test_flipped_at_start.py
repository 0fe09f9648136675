"""A flipped bit in any file of a log directory while the broker is down: every resulting change is reported
(LOG-36).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from brokers.engine.partitions.reports import RecoveryReport
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records import batch as layout
from brokers.engine.storage import checkpoints
from brokers.engine.storage.directories import CLEAN_SHUTDOWN_FILE, DirectoryRefused
from brokers.engine.storage.log import Log
from brokers.engine.storage.segment import DamagedSegment
from tests.simulation.log import CONFIG, NOW_MS, TOPIC, SimulatedLog
from tests.simulation.matrix import quick_directory
from tests.testkit import depth

# The suite flips a bit of every n-th byte; 1 means all of them, which takes half a minute. Short runs of three
# consecutive days together flip what a long run flips.
LONG_EVERY = 17
SHORT_DAYS = 3
EVERY = depth.number_from("PENSTOCK_FLIP_EVERY", short=LONG_EVERY * SHORT_DAYS, long=LONG_EVERY)
FIRST = LONG_EVERY * depth.part_of_day(SHORT_DAYS)
START = 3
BASE_OFFSET_BYTES = 8


class Seen(NamedTuple):
    """Data that clients and replicas can read from a log.

    `batches` ends at the first batch that a client rejects or that is refused to it, which is None.
    """

    start: int
    end: int
    batches: tuple[bytes | None, ...]
    epochs: tuple[tuple[int, int], ...]
    producers: tuple[Any, ...]
    aborted: tuple[Any, ...]


def write(top: Path) -> None:
    """Writes a log with three epochs, segments with and without transactions, and deleted records; stops it cleanly."""
    log = SimulatedLog(top)
    log.append(2, producer=1)
    log.append(2, codec=1)
    log.append(1, producer=3, transactional=True)
    log.roll()
    log.elect()
    log.mark(3, committed=False)
    log.append(2, 100)
    log.elect()
    log.append(3)
    log.append(1, producer=4, transactional=True)
    log.roll()
    log.append(1, producer=1)
    log.append(1, shift_ms=5)
    log.delete_records(START)
    log.table.close(broker_epoch=1)


def batches(log: Log) -> Iterator[bytes | None]:
    """Yields the batches in order, checked like a client does."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            piece = log.read(offset, 1, log.log_end_offset, min_one_batch=True)
        except DamagedSegment:
            yield None
            return
        if piece is None:
            return
        data = piece.read()
        piece.release()
        header = layout.read_header(data)
        if layout.checksum(data) != header.crc:
            yield None
            return
        yield data[:BASE_OFFSET_BYTES] + data[layout.CRC_AT :]
        offset = header.next_offset


def seen(log: Log) -> Seen:
    producers = sorted(log.producers.producers.items())
    indexes = [segment.aborted for segment in log.segments if segment.aborted is not None]
    return Seen(
        log.log_start_offset,
        log.log_end_offset,
        tuple(batches(log)),
        tuple(log.epochs.entries),
        tuple((at, entry.epoch, entry.transaction_first_offset, entry.batches[-1][:4]) for at, entry in producers),
        # The last stable offset only hints how far to look.
        tuple(index.entry(at)[:3] for index in indexes for at in range(len(index))),
    )


def started(top: Path) -> tuple[Seen | None, RecoveryReport]:
    table = PartitionTable(StorageSettings(roots=(top,), broker_id=1, cluster_id="c", defaults=CONFIG))
    report = table.recover(NOW_MS)
    try:
        partition = table.get(TOPIC, 0)
        assert partition is not None
        if partition.offline:
            return None, report
        partition.check()
        return seen(partition.log), report
    finally:
        for held in table:
            for segment in held.log.segments:
                segment.file.close()
        for root in table._roots:
            root.unlock()


def sent(report: RecoveryReport) -> bool:
    return bool(report.damages or report.unreadable or report.refused)


class Flip(NamedTuple):
    name: str
    at: int
    copy: Path


def flips(top: Path) -> Iterator[Flip]:
    """Yields copies of the directory, each with one flipped bit in one byte."""
    copy = top.parent / "copy"
    number = 0
    for file in sorted(path for path in top.rglob("*") if path.is_file()):
        whole = file.read_bytes()
        name = str(file.relative_to(top))
        for at in range(len(whole)):
            number += 1
            if (number + FIRST) % EVERY:
                continue
            shutil.copytree(top, copy)
            content = bytearray(whole)
            content[at] ^= 1 << at % 8
            (copy / name).write_bytes(content)
            yield Flip(name, at, copy)
            shutil.rmtree(copy)


def is_unprovable(flip: Flip, whole: Path, clean: bool) -> bool:
    """True if no other file contradicts the flip (decision 50).

    These are the offsets in a batch, and after a crash offsets and leader epochs in files that may be outdated.
    """
    name, at, _ = flip
    if name.endswith(".log"):
        for position, _ in layout.scan_headers((whole / name).read_bytes()):
            if at - position in range(BASE_OFFSET_BYTES):
                return True
            if not clean and at - position in range(layout.LOG_OVERHEAD_BYTES, layout.MAGIC_AT):
                return True
    return not clean and name == checkpoints.LOG_START_OFFSETS


@pytest.mark.parametrize("clean", [True, False])
def test_effects_of_a_flipped_bit_are_reported_or_refused_and_nothing_else_changes(clean: bool) -> None:
    with quick_directory() as home:
        top = home / "run"
        top.mkdir()
        write(top)
        if not clean:
            (top / CLEAN_SHUTDOWN_FILE).unlink()
        shutil.copytree(top, home / "whole")
        expected, report = started(home / "whole")
        assert expected is not None
        assert not sent(report)
        silent = []
        for flip in flips(top):
            try:
                result, report = started(flip.copy)
            except DirectoryRefused:
                continue
            if result is None or result == expected or is_unprovable(flip, top, clean):
                continue
            good = result.batches[: result.batches.index(None)] if None in result.batches else result.batches
            refused = len(good) < len(result.batches) and result._replace(batches=expected.batches) == expected
            changed = bool(set(good) - set(expected.batches)) and not result.start < START
            if changed or not (sent(report) or refused):
                silent.append((flip.name, flip.at, result))
        assert not silent, "\n".join(map(str, silent))
