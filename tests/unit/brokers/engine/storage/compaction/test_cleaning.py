"""Promises of compaction on a cleaned log: values, offsets, markers, producers, transactions (CMP-16 to CMP-31)."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka.record.memory_records import MemoryRecords

from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.records.control import ABORT, COMMIT, end_marker
from brokers.engine.storage.compaction.job import Cleaned, CleaningFailed
from brokers.engine.storage.compaction.swap import swap_in
from brokers.engine.storage.log import Log, LogConfig
from brokers.engine.storage.lookups import find_first_at_or_after, find_greatest_timestamp
from tests.unit.brokers.engine.storage.compaction.cleaning import clean, job_for, run
from tests.unit.brokers.engine.storage.logs import NOW_MS, append, new_log, read_all, reopen

HOUR_MS = 3_600_000
SMALL = LogConfig(index_limits=(64, 10_000))


def _keyed(key: str, value: str | None, at_ms: int = NOW_MS) -> Record:
    return Record(at_ms, key.encode(), None if value is None else value.encode())


def _contents(log: Log) -> list[tuple[int, str, str | None]]:
    return [
        (offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
        for offset, record in read_all(log)
    ]


def _append_raw(log: Log, data: bytearray, count: int) -> int:
    header = layout.read_header(data)
    return log.append(memoryview(data), count - 1, header.max_timestamp, 0, NOW_MS)


@pytest.mark.parametrize("codec", range(5))
def test_the_last_of_three_values_of_a_key_stays_at_its_offset(tmp_path: Path, codec: int) -> None:
    """CMP-31, CMP-4."""
    log = new_log(tmp_path / "t-0", SMALL)
    append(log, [_keyed("123", "bill@microsoft.com"), _keyed("9", "else")], codec=codec)
    append(log, [_keyed("123", "bill@gatesfoundation.org")], codec=codec)
    log.roll(NOW_MS)
    append(log, [_keyed("123", "bill@gmail.com"), _keyed("7", "other")], codec=codec)
    log.roll(NOW_MS)
    append(log, [_keyed("9", "in the active segment")])

    done = clean(log, now_ms=NOW_MS)

    assert _contents(log) == [
        (1, "9", "else"),
        (3, "123", "bill@gmail.com"),
        (4, "7", "other"),
        (5, "9", "in the active segment"),
    ]
    assert (done.end_offset, done.records_dropped, done.keys) == (5, 2, 3)
    assert [held.base_offset for held in log.segments] == [0, 5], "small remains are gathered in one segment"
    log.check()


def test_every_removed_offset_is_read_as_the_one_after_it(tmp_path: Path) -> None:
    """CMP-4, LOG-23."""
    log = new_log(tmp_path / "t-0", SMALL)
    for number in range(40):
        append(log, [_keyed(str(number % 7), str(number))])
    log.roll(NOW_MS)

    clean(log, now_ms=NOW_MS)

    present = [offset for offset, _, _ in _contents(log)]
    assert present == list(range(33, 40))
    for offset in range(40):
        assert [at for at, _ in read_all(log, from_offset=offset)] == [at for at in present if at >= offset]


def test_a_tombstone_is_readable_for_its_retention_time_and_then_removed(tmp_path: Path) -> None:
    """CMP-6, CMP-7, CMP-20: the first run that keeps the tombstone sets the delete horizon."""
    log = new_log(tmp_path / "t-0", SMALL)
    append(log, [_keyed("a", "1"), _keyed("b", "1", NOW_MS + 5)])
    append(log, [_keyed("a", None, NOW_MS - 7), _keyed("c", "3", NOW_MS + 9)])
    log.roll(NOW_MS)
    times = {offset: record.timestamp_ms for offset, record in read_all(log)}

    clean(log, now_ms=NOW_MS, delete_retention_ms=HOUR_MS)
    with_marker = [(1, "b", "1"), (2, "a", None), (3, "c", "3")]
    assert _contents(log) == with_marker
    assert {offset: record.timestamp_ms for offset, record in read_all(log)} == {at: times[at] for at in (1, 2, 3)}

    clean(log, now_ms=NOW_MS + HOUR_MS - 1, delete_retention_ms=HOUR_MS)
    assert _contents(log) == with_marker
    clean(log, now_ms=NOW_MS + HOUR_MS, delete_retention_ms=HOUR_MS, first_dirty=4)
    assert _contents(log) == [(1, "b", "1"), (3, "c", "3")]
    assert {offset: record.timestamp_ms for offset, record in read_all(log)} == {at: times[at] for at in (1, 3)}


def test_a_gap_leads_no_reader_past_its_limit(tmp_path: Path) -> None:
    """LOG-24: a high watermark from before the last stop may lie where records were removed."""
    log = new_log(tmp_path / "t-0", SMALL)
    for number in range(6):
        append(log, [_keyed("a", str(number))])
        if number in (2, 5):
            log.roll(NOW_MS)
    append(log, [_keyed("b", "active")])
    log.config = SMALL._replace(segment_bytes=100)
    clean(log, now_ms=NOW_MS)

    assert [(held.base_offset, held.size_bytes > 0) for held in log.segments[:2]] == [(0, False), (3, True)]
    for limit in (1, 2, 3):
        assert log.read(0, 1 << 20, limit, min_one_batch=True) is None
    piece = log.read(0, 1 << 20, 6, min_one_batch=True)
    assert piece is not None
    piece.release()


def test_a_record_without_a_key_is_removed(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", SMALL)
    append(log, [Record(NOW_MS, None, b"written before the topic was compacted"), _keyed("a", "1")])
    log.roll(NOW_MS)

    done = clean(log, now_ms=NOW_MS)

    assert _contents(log) == [(1, "a", "1")]
    assert done.records_keyless == 1


def test_the_last_batch_of_a_producer_stays_without_its_records(tmp_path: Path) -> None:
    """CMP-23: the last sequence must be known after a restart even when all records of the producer are gone."""
    log = new_log(tmp_path / "t-0", SMALL)
    for sequence in range(3):
        data = build_batch([_keyed("a", str(sequence))], producer_id=7, producer_epoch=1, base_sequence=sequence)
        _append_raw(log, data, 1)
    append(log, [_keyed("a", "of another")])
    log.roll(NOW_MS)

    clean(log, now_ms=NOW_MS, producers={7: (2, 1)})
    clean(log, now_ms=NOW_MS, producers={7: (2, 1)}, first_dirty=4)

    assert _contents(log) == [(3, "a", "of another")]
    headers = [header for _, header in log.segments[0].headers(0)]
    assert (headers[0].base_offset, headers[0].record_count, headers[0].last_sequence) == (2, 0, 2)
    clean(log, now_ms=NOW_MS, first_dirty=4)
    assert [header.base_offset for _, header in log.segments[0].headers(0)] == [3]


def test_an_aborted_transaction_is_removed_and_a_committed_one_stays(tmp_path: Path) -> None:
    """CMP-18, CMP-22: the marker of the aborted transaction lies in a segment that is not cleaned."""
    log = new_log(tmp_path / "t-0", SMALL)

    def write(producer: int, key: str, value: str) -> None:
        data = build_batch(
            [_keyed(key, value)],
            attributes=layout.TRANSACTIONAL,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
        )
        _append_raw(log, data, 1)

    def end(producer: int, kind: int) -> None:
        marker = end_marker(kind, timestamp_ms=NOW_MS, producer_id=producer, producer_epoch=0, coordinator_epoch=0)
        _append_raw(log, marker, 1)

    append(log, [_keyed("x", "before"), _keyed("y", "before")])
    write(1, "x", "aborted")
    write(2, "y", "committed")
    end(2, COMMIT)
    log.roll(NOW_MS)
    end(1, ABORT)

    clean(log, now_ms=NOW_MS)
    kept = [header.base_offset for _, header in log.segments[0].headers(0)]
    assert kept == [0, 3, 4], "the commit's marker stays beside its data"
    assert [(key, value) for _, key, value in _contents(log)][:2] == [("x", "before"), ("y", "committed")]

    append(log, [_keyed("y", "later")])
    log.roll(NOW_MS)
    for later_ms in (0, 1, HOUR_MS + 1, 2 * HOUR_MS):
        clean(log, now_ms=NOW_MS + later_ms, delete_retention_ms=HOUR_MS)
    assert [header.base_offset for _, header in log.segments[0].headers(0)] == [0, 6], "then both markers go"
    assert _contents(log) == [(0, "x", "before"), (6, "y", "later")]


def test_keys_that_do_not_fit_into_the_map_wait_for_another_run(tmp_path: Path) -> None:
    """CMP-18: 40 slots, 36 used."""
    log = new_log(tmp_path / "t-0", SMALL)
    for number in range(100):
        append(log, [_keyed(str(number % 50), str(number))])
    log.roll(NOW_MS)

    first = clean(log, now_ms=NOW_MS, map_bytes=40 * 24)
    assert first.end_offset == 36
    assert len(_contents(log)) == 100, "no key came twice so far"
    end_offset = first.end_offset
    while end_offset < 100:
        end_offset = clean(log, now_ms=NOW_MS, map_bytes=40 * 24, first_dirty=end_offset).end_offset
    assert [offset for offset, _, _ in _contents(log)] == list(range(50, 100))


def test_a_flipped_bit_ends_the_run_and_is_reported(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", SMALL)
    append(log, [_keyed("a", "1")])
    append(log, [_keyed("a", "2")])
    log.roll(NOW_MS)
    file = Path(log.segments[0].file.path)
    content = bytearray(file.read_bytes())
    content[-3] ^= 4
    file.write_bytes(content)

    with pytest.raises(
        CleaningFailed, match=r"00000000000000000000\.log at byte 70: the checksum .* offset 1 is wrong"
    ):
        run(job_for(log, now_ms=NOW_MS))


def test_a_group_whose_source_was_deleted_meanwhile_is_not_swapped_in(tmp_path: Path) -> None:
    """CMP-30."""
    log = new_log(tmp_path / "t-0", SMALL)
    for number in range(3):
        append(log, [_keyed("a", str(number))])
        log.roll(NOW_MS)
    group, _ = run(job_for(log, now_ms=NOW_MS))
    log.detach_segments(0, 1)

    assert isinstance(group, Cleaned)
    assert swap_in(log, group) is None
    assert not list((tmp_path / "t-0").glob("*.cleaned"))
    assert _contents(log) == [(1, "a", "1"), (2, "a", "2")]


def test_a_reader_finishes_on_the_file_it_began_with(tmp_path: Path) -> None:
    """CMP-29."""
    log = new_log(tmp_path / "t-0", SMALL)
    for number in range(10):
        append(log, [_keyed("a", str(number))])
    log.roll(NOW_MS)
    piece = log.read(0, 1 << 20, log.log_end_offset, min_one_batch=True)
    assert piece is not None
    before = piece.read()

    clean(log, now_ms=NOW_MS)

    assert piece.read() == before
    piece.release()
    assert len(_contents(log)) == 1


def test_timestamp_lookups_work_and_indexes_are_trusted_after_cleaning_and_restart(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", SMALL)
    for number in range(60):
        append(log, [_keyed(str(number % 13), "v" * 30, NOW_MS + number * 10)])
    log.roll(NOW_MS)
    append(log, [_keyed("z", "last", NOW_MS + 1_000)])

    clean(log, now_ms=NOW_MS)
    log.close()
    again, report = reopen(tmp_path / "t-0", SMALL, clean=True)

    assert report.clean and report.truncated_bytes == 0
    for opened in (log, again):
        assert len(opened.segments[0].offset_index) > 2
        for at in range(0, 1_000, 5):
            expected = next((offset for offset, record in read_all(opened) if record.timestamp_ms >= NOW_MS + at), None)
            at_or_after = find_first_at_or_after(opened, NOW_MS + at)
            assert at_or_after is not None
            assert at_or_after.offset == expected
        greatest = find_greatest_timestamp(opened)
        assert greatest is not None
        assert greatest.offset == 60
    crashed, report = reopen(tmp_path / "t-0", SMALL, clean=False)
    assert report.truncated_bytes == 0
    assert read_all(crashed) == read_all(log)


@pytest.mark.parametrize("codec", [0, 1, 3, 4])
def test_another_implementation_reads_the_cleaned_file(tmp_path: Path, codec: int) -> None:
    log = new_log(tmp_path / "t-0", SMALL)
    for number in range(30):
        append(log, [_keyed(str((number * 2 + at) % 9), None if at else f"v{number}") for at in (0, 1)], codec=codec)
    log.roll(NOW_MS)
    clean(log, now_ms=NOW_MS)
    ours = read_all(log)

    read = MemoryRecords(Path(log.segments[0].file.path).read_bytes())
    theirs = []
    while (batch := read.next_batch()) is not None:
        assert batch.validate_crc()
        theirs += [(record.offset, record.key, record.value, record.timestamp) for record in batch]

    assert theirs == [(offset, record.key, record.value, record.timestamp_ms) for offset, record in ours]
