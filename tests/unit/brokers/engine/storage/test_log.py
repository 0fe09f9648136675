"""The log against a plain list: appends, rolls, reads, restarts, retention, truncation (LOG-15 to LOG-26)."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.engine.records.builder import Record
from brokers.engine.storage.files import OpenFiles
from brokers.engine.storage.flushing import FlushJob, needs_flush
from brokers.engine.storage.log import (
    ROLLED_MS_MIN,
    ROLLED_RAPIDLY_MAX,
    ROLLED_SMALL_MS_MIN,
    SMALL_SEGMENT_BYTES,
    LogConfig,
)
from brokers.engine.storage.lookups import find_first_at_or_after, find_greatest_timestamp
from brokers.engine.storage.retention import RetentionRules
from brokers.engine.storage.segment import BLOCK_BYTES
from tests.unit.brokers.engine.storage.logs import NOW_MS, append, new_log, read_all, reopen, values

SMALL = LogConfig(segment_bytes=2_000, index_limits=(200, 10_000))

batches = st.lists(
    st.tuples(st.integers(1, 12), st.integers(0, 150), st.integers(-5_000, 5_000), st.sampled_from([0, 0, 1, 4])),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60)
@given(batches, st.integers(1, 3_000), st.data())
def test_a_log_returns_the_same_records_as_a_list(
    shape: list[tuple[int, int, int, int]], max_bytes: int, data: st.DataObject
) -> None:
    """Compares reads from every offset with any size, and time lookups with a scan; again after a clean restart."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "t-0"
        log = new_log(directory, SMALL)
        model: list[Record] = []
        for count, size, shift_ms, codec in shape:
            records = values(count, size=size, stamp_ms=NOW_MS + shift_ms)
            assert append(log, records, codec=codec) == len(model)
            model += records
        for _ in range(2):
            log.check()
            assert log.log_end_offset == len(model)
            start = data.draw(st.integers(0, len(model)))
            assert read_all(log, from_offset=start, max_bytes=max_bytes) == list(enumerate(model))[start:]
            wanted_ms = data.draw(st.integers(NOW_MS - 6_000, NOW_MS + 6_000))
            first = next((at for at, record in enumerate(model) if record.timestamp_ms >= wanted_ms), None)
            at_or_after = find_first_at_or_after(log, wanted_ms)
            assert (at_or_after.offset if at_or_after else None) == first
            newest = find_greatest_timestamp(log)
            assert newest is not None
            assert newest.timestamp_ms == max(record.timestamp_ms for record in model)
            assert model[newest.offset].timestamp_ms == newest.timestamp_ms
            log.close()
            log, report = reopen(directory, SMALL, clean=True)
            assert report == (0, 0, True, 0, 0, ())


def test_a_read_starts_at_the_batch_that_contains_the_offset(tmp_path: Path) -> None:
    """LOG-22, LOG-23."""
    log = new_log(tmp_path / "t-0")
    for _ in range(4):
        append(log, values(5))
    piece = log.read(7, 1 << 20, log.log_end_offset, min_one_batch=True)
    assert piece is not None
    assert piece.read()[:8] == (5).to_bytes(8, "big")
    piece.release()
    piece.release()


def test_a_read_ends_at_the_limit_and_returns_nothing_at_the_log_end(tmp_path: Path) -> None:
    """LOG-24, REP-3: no record at or above the high watermark is returned."""
    log = new_log(tmp_path / "t-0", SMALL)
    for _ in range(60):
        append(log, values(5))
    for limit in range(5, 300, 5):
        piece = log.read(limit - 5, 1 << 20, limit, min_one_batch=True)
        assert piece is not None
        assert int.from_bytes(piece.read()[:8], "big") == limit - 5
        assert piece.length == len(piece.read())
        piece.release()
        assert log.read(limit, 1 << 20, limit, min_one_batch=True) is None
    assert log.read(300, 1 << 20, 300, min_one_batch=True) is None


def test_the_first_batch_is_whole_with_any_size_limit(tmp_path: Path) -> None:
    """WIRE-28."""
    log = new_log(tmp_path / "t-0")
    append(log, values(50))
    append(log, values(50))
    whole = log.read(0, 1, log.log_end_offset, min_one_batch=True)
    assert whole is not None
    assert whole.length == log.size_bytes // 2
    whole.release()
    assert log.read(0, 1, log.log_end_offset, min_one_batch=False) is None


def test_segments_roll_by_size_and_by_time(tmp_path: Path) -> None:
    """LOG-16, LOG-17."""
    log = new_log(tmp_path / "t-0", LogConfig(segment_bytes=1_000, segment_ms=60_000))
    append(log, values(1))
    append(log, values(1, stamp_ms=NOW_MS + 60_000))
    assert len(log.segments) == 1
    append(log, values(1, stamp_ms=NOW_MS + 60_001))
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    append(log, values(1, size=850, stamp_ms=NOW_MS + 60_001))
    assert [segment.base_offset for segment in log.segments] == [0, 2, 3]
    names = sorted(path.name for path in (tmp_path / "t-0").iterdir())
    assert "00000000000000000002.log" in names
    assert "00000000000000000000.timeindex" in names
    assert "00000000000000000003.snapshot" in names


@pytest.mark.parametrize("clock_ms", [0, ROLLED_SMALL_MS_MIN - 1])
def test_invented_timestamps_do_not_create_a_segment_per_batch(tmp_path: Path, clock_ms: int) -> None:
    """LOG-16: a small segment of a log with several is rolled by time after one minute of the broker's clock."""
    log = new_log(tmp_path / "t-0", LogConfig(segment_ms=60_000))
    for day in range(ROLLED_RAPIDLY_MAX):
        append(log, values(1, stamp_ms=NOW_MS + day * 86_400_000))
    assert len(log.segments) == ROLLED_RAPIDLY_MAX, "as Kafka does it"
    for day in range(ROLLED_RAPIDLY_MAX, ROLLED_RAPIDLY_MAX + 50):
        append(log, values(1, stamp_ms=NOW_MS + day * 86_400_000), now_ms=NOW_MS + clock_ms)
    assert len(log.segments) == ROLLED_RAPIDLY_MAX
    append(log, values(1, stamp_ms=NOW_MS + 200 * 86_400_000), now_ms=NOW_MS + ROLLED_SMALL_MS_MIN)
    assert len(log.segments) == ROLLED_RAPIDLY_MAX + 1
    append(log, values(1, stamp_ms=NOW_MS + 202 * 86_400_000), now_ms=NOW_MS - 3_600_000)
    assert len(log.segments) == ROLLED_RAPIDLY_MAX + 2, "a clock that was set back holds nothing up"


def test_a_large_segment_is_rolled_by_time_after_one_second(tmp_path: Path) -> None:
    """Old records that are copied quickly lie in segments by their own timestamps, as retention requires."""
    log = new_log(tmp_path / "t-0", LogConfig(segment_ms=60_000))

    def fill(day: int, clock_ms: int) -> int:
        before = log.size_bytes
        while log.size_bytes - before <= SMALL_SEGMENT_BYTES:
            append(log, values(10, size=20_000, stamp_ms=NOW_MS + day * 86_400_000), now_ms=NOW_MS + clock_ms)
        return len(log.segments)

    for day in range(ROLLED_RAPIDLY_MAX):
        assert fill(day, 0) == day + 1
    assert fill(20, ROLLED_MS_MIN - 1) == ROLLED_RAPIDLY_MAX
    assert fill(30, ROLLED_MS_MIN) == ROLLED_RAPIDLY_MAX + 1


@pytest.mark.parametrize("interval_bytes", [0, 100, 4096])
def test_a_log_counts_the_blocks_of_all_its_files(tmp_path: Path, interval_bytes: int) -> None:
    """Indexes and snapshots of closed segments count too, as they are on disk, also after a restart."""
    log = new_log(tmp_path / "t-0", LogConfig(segment_bytes=20_000, index_limits=(interval_bytes, 10_000)))
    append(log, values(1))
    while len(log.segments) < 12:
        append(log, values(1, size=100))

    def files_bytes() -> int:
        """Returns the disk space of all files of the segments; the snapshot of a clean stop belongs to no segment."""
        bases, suffixes = (
            {segment.base_offset for segment in log.segments},
            (".log", ".index", ".timeindex", ".snapshot"),
        )
        files = [file for file in (tmp_path / "t-0").iterdir() if file.suffix in suffixes and int(file.stem) in bases]
        return sum(-(-file.stat().st_size // BLOCK_BYTES) * BLOCK_BYTES for file in files)

    assert log.size_bytes + 3 * 11 * BLOCK_BYTES <= log.disk_bytes
    assert files_bytes() <= log.disk_bytes <= files_bytes() + 2 * BLOCK_BYTES, "of the active segment the indexes too"
    log.close()
    assert log.disk_bytes == files_bytes()
    assert reopen(tmp_path / "t-0", log.config, clean=True)[0].disk_bytes == files_bytes()


def test_a_full_index_rolls_the_segment(tmp_path: Path) -> None:
    config = LogConfig(index_limits=(0, 40))
    log = new_log(tmp_path / "t-0", config)
    for _ in range(30):
        append(log, values(1))
    assert len(log.segments) > 3
    assert [offset for offset, _ in read_all(log)] == list(range(30))


def test_retention_by_size_moves_the_start_and_keeps_running_reads_alive(tmp_path: Path) -> None:
    """LOG-43, LOG-44."""
    config = SMALL._replace(retention=RetentionRules(retention_ms=-1, retention_bytes=4_500))
    log = new_log(tmp_path / "t-0", config)
    while len(log.segments) < 6:
        append(log, values(5))
    reading = log.read(0, 1_000, log.log_end_offset, min_one_batch=True)
    assert reading is not None
    before = reading.read()
    gone = log.apply_retention(log.log_end_offset, NOW_MS)
    assert gone
    assert all(Path(path).exists() for path in gone)
    assert log.log_start_offset == log.segments[0].base_offset > 0
    assert log.size_bytes <= 4_500 + 2_000
    assert reading.read() == before
    reading.release()
    assert read_all(log)[0][0] == log.log_start_offset
    log.check()


def test_retention_by_time_rolls_before_it_deletes_the_last_segment(tmp_path: Path) -> None:
    config = SMALL._replace(retention=RetentionRules(retention_ms=1_000))
    log = new_log(tmp_path / "t-0", config)
    for _ in range(40):
        append(log, values(5))
    assert log.apply_retention(log.log_end_offset, NOW_MS + 900) == []
    log.apply_retention(log.log_end_offset, NOW_MS + 1_000_000)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (200, 200, 0)
    log.close()
    again, _ = reopen(tmp_path / "t-0", config, clean=True)
    assert (again.log_start_offset, again.log_end_offset) == (200, 200)


def test_truncation_leaves_a_prefix(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", SMALL)
    for _ in range(60):
        append(log, values(5))
    kept = read_all(log)[:150]
    log.truncate_to(152, NOW_MS)
    log.check()
    assert log.log_end_offset == 150
    assert read_all(log) == kept
    assert append(log, values(1)) == 150


def test_a_flush_moves_the_recovery_point(tmp_path: Path) -> None:
    """LOG-19."""
    log = new_log(tmp_path / "t-0", SMALL)
    for _ in range(30):
        append(log, values(5))
    log.recovery_point = 0
    job = FlushJob(log)
    append(log, values(5))
    job.run()
    job.finish()
    assert log.recovery_point == 150
    assert needs_flush(log)


def test_descriptors_stay_within_their_limit(tmp_path: Path) -> None:
    files = OpenFiles(limit=4)
    logs = [new_log(tmp_path / f"t-{number}", files=files) for number in range(20)]
    for round_ in range(3):
        for log in logs:
            append(log, values(2))
            assert len(files) <= 4
            assert len(read_all(log)) == 2 * (round_ + 1)
    files.close_idle()
    assert files.close_idle() >= 0
    assert len(files) == 0


@pytest.mark.parametrize("interval", [0, 100, 4_096])
def test_index_lookups_never_pass_the_batch_a_scan_finds(tmp_path: Path, interval: int) -> None:
    """LOG-11."""
    log = new_log(tmp_path / "t-0", LogConfig(index_limits=(interval, 10_000)))
    for at in range(80):
        append(log, values(1 + at % 7, size=at * 3))
    segment = log.active
    scan = list(segment.headers(0))
    for offset in range(log.log_end_offset):
        position, header = next((p, h) for p, h in scan if h.last_offset >= offset)
        assert segment.offset_index.lookup(offset) <= position
        assert segment.locate(offset) == (position, header)
    shutil.rmtree(tmp_path / "t-0")


def test_bytes_between_two_offsets_are_those_of_all_segments_between(tmp_path: Path) -> None:
    """WIRE-27: a reader behind a long transaction waits for that many bytes."""
    log = new_log(tmp_path / "t-0", SMALL)
    for _ in range(12):
        append(log, values(2, size=300))
    assert len(log.segments) > 3

    positions = [log.find_position(offset) for offset in range(0, log.log_end_offset, 2)]
    sizes = [segment.size_bytes for segment in log.segments]
    places = [sum(sizes[:at]) + position for at, position in filter(None, positions)] + [sum(sizes)]

    for first in range(len(places)):
        for last in range(first, len(places)):
            assert log.bytes_between(2 * first, 2 * last) == places[last] - places[first]
