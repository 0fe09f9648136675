"""Transaction indexes after a cleaning (CMP-22)."""

from __future__ import annotations

from pathlib import Path

from brokers.engine.records.batch import TRANSACTIONAL, read_header
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.records.control import ABORT, end_marker
from brokers.engine.storage.log import Log
from brokers.engine.storage.transactions import replay_batch
from tests.unit.brokers.engine.storage.compaction.cleaning import clean
from tests.unit.brokers.engine.storage.logs import NOW_MS, append, new_log, read_all, reopen


def write(log: Log, data: bytearray) -> None:
    log.append(memoryview(data), 0, NOW_MS, 0, NOW_MS)
    replay_batch(log, read_header(data), data, log.active)


def data_of(log: Log, producer_id: int, sequence: int) -> None:
    record = Record(NOW_MS, b"k%d" % producer_id, b"v")
    flags = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    write(log, build_batch([record], attributes=TRANSACTIONAL, **flags))


def abort(log: Log, producer_id: int) -> None:
    marker = end_marker(ABORT, timestamp_ms=NOW_MS, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0)
    write(log, marker)


def listed(log: Log) -> list[list[tuple[int, ...]]]:
    """Returns the listed aborted transactions of each segment."""
    return [
        [] if held.aborted is None else [tuple(held.aborted.entry(number)) for number in range(len(held.aborted))]
        for held in log.segments
    ]


def test_an_entry_stays_in_the_run_that_removes_the_data_and_is_removed_by_the_next(tmp_path: Path) -> None:
    """For a transaction that spans two segments the entry is in the segment of its marker."""
    log = new_log(tmp_path / "t-0")
    data_of(log, 7, 0)
    data_of(log, 8, 0)
    abort(log, 7)
    log.roll(NOW_MS)
    data_of(log, 8, 1)
    abort(log, 8)
    append(log, [Record(NOW_MS, b"a", b"1")])
    log.roll(NOW_MS)
    append(log, [Record(NOW_MS, b"b", b"2")])
    assert listed(log) == [[(7, 0, 2, 1)], [(8, 1, 4, 5)], []]

    clean(log, now_ms=NOW_MS)
    assert listed(log) == [[(7, 0, 2, 1), (8, 1, 4, 5)], []]
    assert log.may_have_aborts
    kept = [record.value for _, record in read_all(log) if record.key in (b"a", b"b", b"k7", b"k8")]
    assert kept == [b"1", b"2"]

    log.close()
    again, _ = reopen(tmp_path / "t-0", clean=True, recovery_point=7)
    assert (listed(again), again.may_have_aborts) == (listed(log), True)

    clean(again, now_ms=NOW_MS, first_dirty=6)
    assert listed(again) == [[], []]
    assert not list((tmp_path / "t-0").glob("*.txnindex"))


def test_a_log_without_aborts_gets_no_list(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    append(log, [Record(NOW_MS, b"a", b"1")])
    log.roll(NOW_MS)
    append(log, [Record(NOW_MS, b"a", b"2")])
    clean(log, now_ms=NOW_MS)
    assert not list((tmp_path / "t-0").glob("*.txnindex*"))
    assert not log.may_have_aborts
