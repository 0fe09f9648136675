"""Damaged indexes cost time and never lose records: bits of every index byte are flipped, then the log is read
(LOG-14).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from brokers.engine.records import batch as layout
from brokers.engine.records.batch import TRANSACTIONAL
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.records.control import ABORT, end_marker
from brokers.engine.storage import recovery
from brokers.engine.storage.log import Log, LogConfig
from brokers.engine.storage.lookups import find_first_at_or_after
from tests.unit.brokers.engine.storage.logs import NOW_MS, append, new_log, read_all, reopen, values

# Each batch has its own index entry; there are two closed segments and the active one.
SMALL = LogConfig(segment_bytes=420, index_limits=(50, 10_000))
BATCHES = 7
RECORDS = 2


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    directory = tmp_path / "t-0"
    log = new_log(directory, SMALL)
    for number in range(BATCHES):
        append(log, values(RECORDS, stamp_ms=NOW_MS + 10 * number))
    assert len(log.segments) == 3
    log.close()
    return directory


def damaged(stopped: Path, suffix: str) -> Iterator[Path]:
    """Yields copies of the directory, each with one flipped bit (low, high or sign) in one file of that suffix."""
    copy = stopped.parent / "copy"
    for file in sorted(stopped.glob(f"*{suffix}")):
        whole = file.read_bytes()
        for at in range(len(whole)):
            for bit in (0, 2, 5, 7):
                shutil.copytree(stopped, copy)
                content = bytearray(whole)
                content[at] ^= 1 << bit
                (copy / file.name).write_bytes(content)
                yield copy
                shutil.rmtree(copy)


def check_reads(log: Log) -> None:
    """Checks from every offset that a read begins with the batch that contains it and returns whole batches."""
    for offset in range(BATCHES * RECORDS):
        for max_bytes in (1, 250):
            result = log.read(offset, max_bytes, log.log_end_offset, min_one_batch=True)
            assert result is not None
            batches = list(layout.scan_headers(result.read()))
            result.release()
            assert batches[0][1].base_offset == offset // RECORDS * RECORDS
            assert sum(header.size_bytes for _, header in batches) == batches[-1][0] + batches[-1][1].size_bytes


@pytest.mark.parametrize("clean", [True, False])
def test_no_flipped_bit_of_an_offset_index_hides_a_record_or_moves_the_end(stopped: Path, clean: bool) -> None:
    for copy in damaged(stopped, ".index"):
        log, _ = reopen(copy, SMALL, clean=clean, recovery_point=BATCHES * RECORDS)
        assert log.log_end_offset == BATCHES * RECORDS
        check_reads(log)
        assert append(log, values(1)) == BATCHES * RECORDS


def test_no_flipped_bit_of_a_time_index_misleads_a_search_by_time_or_retention(stopped: Path) -> None:
    for copy in damaged(stopped, ".timeindex"):
        log, _ = reopen(copy, SMALL, clean=True, recovery_point=BATCHES * RECORDS)
        assert log.log_end_offset == BATCHES * RECORDS
        for number in range(BATCHES):
            at_or_after = find_first_at_or_after(log, NOW_MS + 10 * number)
            assert at_or_after is not None
            assert (at_or_after.timestamp_ms, at_or_after.offset) == (NOW_MS + 10 * number, number * RECORDS)
        assert log.active.largest_timestamp() == NOW_MS + 10 * (BATCHES - 1) + 1
        assert len(read_all(log)) == BATCHES * RECORDS


def test_a_rotten_end_found_at_a_clean_start_is_cut_not_appended_to(stopped: Path) -> None:
    last = sorted(stopped.glob("*.log"))[-1]
    content = bytearray(last.read_bytes())
    content[-1] ^= 1
    last.write_bytes(content)
    log, report = reopen(stopped, SMALL, clean=True, recovery_point=BATCHES * RECORDS)
    assert not report.clean
    assert log.log_end_offset == (BATCHES - 1) * RECORDS


def test_a_base_offset_out_of_range_ends_the_log(stopped: Path) -> None:
    """No checksum covers it; the base of the next segment, or what an index can express, limits it (LOG-36)."""
    for file in sorted(stopped.glob("*.log"), reverse=True):
        content = bytearray(file.read_bytes())
        content[0] ^= 0x40
        file.write_bytes(content)
        log, report = reopen(stopped, SMALL, clean=False)
        assert log.log_end_offset == int(file.stem)
        assert report.truncated_bytes >= len(content)
        log.close()


@pytest.mark.parametrize("lost", [".index", ".timeindex", ".txnindex"])
def test_a_start_that_is_killed_while_it_mends_an_index_leaves_aborted_transactions_aborted(
    tmp_path: Path, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start trusts the indexes of a segment before the recovery point if none contradicts the log."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    record = [Record(NOW_MS, b"k", b"aborted")]
    begun = build_batch(record, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0)
    ended = bytearray(end_marker(ABORT, timestamp_ms=NOW_MS, producer_id=7, producer_epoch=0, coordinator_epoch=0))
    layout.set_offset_and_epoch(memoryview(ended), 1, 0)
    (directory / f"{0:020d}.log").write_bytes(bytes(begun) + bytes(ended))
    after = build_batch(values(1))
    layout.set_offset_and_epoch(memoryview(after), 2, 0)
    (directory / f"{2:020d}.log").write_bytes(after)
    reopen(directory, clean=False)[0].close()
    torn = directory / f"{0:020d}{lost}"
    torn.write_bytes(bytes(5))

    def killed(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(recovery, "_replay_producers", killed)
        reopen(directory, clean=False, recovery_point=3)
    log, _ = reopen(directory, clean=False, recovery_point=3)

    aborted = log.segments[0].aborted
    assert aborted is not None
    assert [aborted.entry(at)[:3] for at in range(len(aborted))] == [(7, 0, 1)]
    log.close()
