"""Splitting of segments with offsets further from their base than an index can express (LOG-40, KAFKA-6264)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.engine.records import batch as layout
from brokers.engine.records.batch import TRANSACTIONAL
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.records.control import ABORT, end_marker
from brokers.engine.records.message_set import encode_message
from brokers.engine.storage.indexes import ABORTED_ENTRY, OFFSET_ENTRY, Aborted
from brokers.engine.storage.log import RELATIVE_OFFSET_MAX, Log, LogConfig
from brokers.engine.storage.segment import DELETED_SUFFIX
from tests.simulation.disk import Disk
from tests.simulation.log import open_table
from tests.simulation.matrix import Effort, crash_everywhere, quick_directory
from tests.unit.brokers.engine.inspect.sample import run as inspect
from tests.unit.brokers.engine.storage.logs import NOW_MS, append, read_all, reopen, values

FAR: Final = RELATIVE_OFFSET_MAX + 1
BASE: Final = 100
# Every batch has an index entry.
CONFIG: Final = LogConfig(index_limits=(0, 10_000))

# Distance between two batches of three records.
GAPS: Final = (0, 0, 0, 1, 1_000, FAR // 3, FAR - 6, FAR - 5, FAR - 4, FAR - 3, FAR, 2 * FAR + 1)

Found = list[tuple[int, Record]]


class Legacy(NamedTuple):
    """A segment as Kafka's cleaner left it: the base offsets of its batches, three records each."""

    directory: Path
    records: Found


def records_of(base: int) -> list[Record]:
    return [Record(NOW_MS + base % 1_000 + at, b"k", b"%d" % (base + at)) for at in range(3)]


def wrapped(number: int) -> int:
    """Returns the number truncated to 32 bits."""
    return (number + 2**31) % 2**32 - 2**31


def batch_at(base: int, codec: int = 0) -> bytes:
    data = build_batch(records_of(base), codec=codec)
    layout.set_offset_and_epoch(memoryview(data), base, 0)
    return bytes(data)


def write_segment(directory: Path, base: int, bases: list[int], *, indexed: bool = True) -> Legacy:
    """Writes the log and, unless it was never flushed, indexes with overflowed relative offsets."""
    directory.mkdir(parents=True, exist_ok=True)
    data, offsets, times, latest = b"", b"", b"", -1
    for number, at in enumerate(bases):
        batch = batch_at(at, number % 2)
        if number:
            offsets += OFFSET_ENTRY.pack(wrapped(at + 2 - base), len(data))
        if NOW_MS + at % 1_000 + 2 > latest:
            latest = NOW_MS + at % 1_000 + 2
            times += latest.to_bytes(8, "big") + (wrapped(at + 2 - base) % 2**32).to_bytes(4, "big")
        data += batch
    epochs = directory / "leader-epoch-checkpoint"
    if not epochs.exists():
        epochs.write_text(f"0\n1\n0 {base}\n")
    stem = directory / f"{base:020d}"
    stem.with_suffix(".log").write_bytes(data)
    if indexed:
        stem.with_suffix(".index").write_bytes(offsets)
        stem.with_suffix(".timeindex").write_bytes(times)
    return Legacy(directory, [(at + delta, record) for at in bases for delta, record in enumerate(records_of(at))])


def check_split(log: Log, expected: Found, *, end: int | None = None) -> None:
    """Checks that every record is readable from every offset, that indexes cover each segment, and that no file is left
    over.
    """
    log.check()
    assert read_all(log) == expected
    for number, (offset, _) in enumerate(expected):
        assert read_all(log, from_offset=offset, max_bytes=1) == expected[number:]
    assert log.log_end_offset == (expected[-1][0] + 1 if end is None else end)
    for segment in log.segments:
        headers = [header for _, header in segment.headers(0)]
        assert all(0 <= header.last_offset - segment.base_offset <= RELATIVE_OFFSET_MAX for header in headers)
        for held in range(len(segment.offset_index)):
            relative, position = OFFSET_ENTRY.unpack_from(segment.offset_index.entries, held * 8)
            result = next(header for _, header in segment.headers(position))
            assert result.last_offset == segment.base_offset + relative
    names = {path.name for path in Path(log.directory).iterdir()}
    assert not [name for name in names if name.endswith((".cleaned", ".swap", DELETED_SUFFIX))]
    assert {name for name in names if name.endswith(".log")} == {f"{s.base_offset:020d}.log" for s in log.segments}


def bases_of(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("indexed", [True, False])
def test_the_last_segment_is_split_and_every_record_is_read(tmp_path: Path, clean: bool, indexed: bool) -> None:
    bases = [BASE, BASE + 3, BASE + FAR - 1, BASE + FAR + 50, BASE + 3 * FAR]
    legacy = write_segment(tmp_path / "t-0", BASE, bases, indexed=indexed)

    log, report = reopen(legacy.directory, CONFIG, clean=clean, recovery_point=BASE + 3 * FAR + 3)

    assert (report.split_segments, report.truncated_bytes) == (1, 0)
    assert bases_of(log) == [BASE, BASE + FAR - 1, BASE + 3 * FAR]
    check_split(log, legacy.records)
    assert (log.log_start_offset, report.clean) == (BASE, clean)
    append(log, values(2))
    assert [offset for offset, _ in read_all(log)][-2:] == [BASE + 3 * FAR + 3, BASE + 3 * FAR + 4]
    log.close()
    again, report = reopen(legacy.directory, CONFIG, clean=True, recovery_point=BASE + 3 * FAR + 5)
    assert (report.split_segments, report.damages, len(read_all(again))) == (0, (), len(legacy.records) + 2)


@pytest.mark.parametrize("clean", [True, False])
def test_a_closed_segment_is_split_and_its_neighbours_stay(tmp_path: Path, clean: bool) -> None:
    directory = tmp_path / "t-0"
    before = write_segment(directory, BASE - 50, [BASE - 50, BASE - 20])
    legacy = write_segment(directory, BASE, [BASE, BASE + FAR, BASE + FAR + 3])
    after = write_segment(directory, BASE + FAR + 6, [BASE + FAR + 6])
    modified_ns = (directory / f"{BASE:020d}.log").stat().st_mtime_ns
    log, report = reopen(directory, CONFIG, clean=clean, recovery_point=0 if clean else BASE + FAR + 9)
    assert (report.split_segments, report.truncated_bytes) == (1, 0)
    assert bases_of(log) == [BASE - 50, BASE, BASE + FAR, BASE + FAR + 6]
    check_split(log, [*before.records, *legacy.records, *after.records])
    for segment in log.segments[1:3]:
        assert Path(segment.file.path).stat().st_mtime_ns == modified_ns


def test_a_hole_before_the_next_segment_is_no_reason_to_split(tmp_path: Path) -> None:
    """A follower closes its segment where compaction on the leader made a hole that no index can express."""
    directory = tmp_path / "t-0"
    near = write_segment(directory, BASE, [BASE, BASE + FAR - 3])
    further = write_segment(directory, BASE + 5 * FAR, [BASE + 5 * FAR])
    log, report = reopen(directory, CONFIG, clean=True)
    assert (report.split_segments, report.damages, bases_of(log)) == (0, (), [BASE, BASE + 5 * FAR])
    check_split(log, near.records + further.records)


def test_a_log_without_batches_in_range_of_its_base_keeps_its_start(tmp_path: Path) -> None:
    """A consumer that waits at the base stays within the log."""
    legacy = write_segment(tmp_path / "t-0", BASE, [BASE + 2 * FAR, BASE + 2 * FAR + 3])
    log, report = reopen(legacy.directory, CONFIG, clean=False)
    assert report.split_segments == 1
    assert (bases_of(log), log.log_start_offset) == ([BASE, BASE + 2 * FAR], BASE)
    check_split(log, legacy.records)


def far_transactions(directory: Path, at: int = BASE) -> list[Aborted]:
    """Writes three transactions aborted in one segment: in range of the first offset `at`, across its end, and beyond
    it.
    """
    directory.mkdir(parents=True)
    lines = ((7, at, at + 1), (8, at + 2, at + FAR), (9, at + FAR + 1, at + FAR + 9))
    data = b""
    for producer, first, marker in lines:
        record = [Record(NOW_MS, b"k", b"aborted")]
        batch = build_batch(
            record, attributes=TRANSACTIONAL, base_offset=first, producer_id=producer, producer_epoch=0, base_sequence=0
        )
        end = bytearray(
            end_marker(ABORT, timestamp_ms=NOW_MS, producer_id=producer, producer_epoch=0, coordinator_epoch=0)
        )
        layout.set_offset_and_epoch(memoryview(end), marker, 0)
        data += bytes(batch) + bytes(end)
    listed = [Aborted(producer, first, marker, marker + 1) for producer, first, marker in lines]
    (directory / f"{BASE:020d}.log").write_bytes(data)
    (directory / f"{BASE:020d}.txnindex").write_bytes(b"".join(ABORTED_ENTRY.pack(0, *entry) for entry in listed))
    return listed


def aborted_of(log: Log) -> dict[int, list[Aborted]]:
    indexes = {segment.base_offset: segment.aborted for segment in log.segments}
    return {base: [index.entry(at) for at in range(len(index))] for base, index in indexes.items() if index is not None}


@pytest.mark.parametrize("recovery_point", [0, BASE + FAR + 10])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", [b"", b"\1", bytes(34)])
def test_aborted_transactions_stay_aborted(tmp_path: Path, clean: bool, recovery_point: int, damage: bytes) -> None:
    """Also with a damaged transaction index, which is rebuilt from the batches."""
    directory = tmp_path / "t-0"
    listed = far_transactions(directory)
    list_file = directory / f"{BASE:020d}.txnindex"
    list_file.write_bytes(list_file.read_bytes() + damage)
    log, report = reopen(directory, CONFIG, clean=clean, recovery_point=recovery_point)
    assert (report.split_segments, report.truncated_bytes) == (1, 0)
    kept = [entry[:3] for part in aborted_of(log).values() for entry in part]
    assert kept == [entry[:3] for entry in listed]
    assert list(aborted_of(log)) == [BASE, BASE + FAR]
    assert log.may_have_aborts


@pytest.mark.parametrize("clean", [True, False])
def test_a_part_without_batches_lists_no_transactions(tmp_path: Path, clean: bool) -> None:
    far_transactions(tmp_path / "t-0", BASE + 2 * FAR)
    log, _ = reopen(tmp_path / "t-0", CONFIG, clean=clean, recovery_point=BASE + 3 * FAR + 10)
    assert {base: len(listed) for base, listed in aborted_of(log).items()} == {BASE + 2 * FAR: 1, BASE + 3 * FAR: 2}


@pytest.mark.parametrize("cut", [1, 70])
def test_a_torn_end_is_truncated_after_the_last_intact_batch(tmp_path: Path, cut: int) -> None:
    legacy = write_segment(tmp_path / "t-0", BASE, [BASE, BASE + FAR, BASE + FAR + 3, BASE + FAR + 6], indexed=False)
    path = legacy.directory / f"{BASE:020d}.log"
    path.write_bytes(path.read_bytes()[:-cut])
    log, report = reopen(legacy.directory, CONFIG, clean=False)
    assert report.split_segments == 1
    assert report.truncated_bytes == len(batch_at(BASE + FAR + 6, 1)) - cut
    check_split(log, legacy.records[:-3])


def test_nothing_is_split_if_the_distant_batches_are_damaged(tmp_path: Path) -> None:
    """Recovery truncates the log before the damage and reports it."""
    legacy = write_segment(tmp_path / "t-0", BASE, [BASE, BASE + FAR], indexed=False)
    path = legacy.directory / f"{BASE:020d}.log"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    log, report = reopen(legacy.directory, CONFIG, clean=False)
    assert (report.split_segments, report.truncated_bytes) == (0, len(batch_at(BASE + FAR, 1)))
    check_split(log, legacy.records[:3])


def test_offsets_that_go_back_are_damage_and_not_a_reason_to_split(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    legacy = write_segment(directory, BASE, [BASE, BASE + FAR + 10, BASE + FAR], indexed=False)
    log, report = reopen(directory, CONFIG, clean=False)
    assert report.split_segments == 0
    check_split(log, legacy.records[:3])


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("recovery_point", [0, BASE + 6, BASE + FAR + 6])
@pytest.mark.parametrize("bit", [31, 32, 40, 62])
def test_a_flipped_bit_in_the_last_offset_splits_nothing(
    tmp_path: Path, bit: int, clean: bool, recovery_point: int
) -> None:
    """No checksum covers the last offset; at the end of the log it cannot be distinguished from a distant one."""
    bases = [BASE, BASE + 3] if recovery_point < FAR else [BASE, BASE + FAR, BASE + FAR + 3]
    legacy = write_segment(tmp_path / "t-0", BASE, [*bases, bases[-1] + 3 + 2**bit], indexed=False)
    log, report = reopen(legacy.directory, CONFIG, clean=clean, recovery_point=recovery_point)
    assert report.split_segments == (recovery_point > FAR)
    check_split(log, legacy.records[:-3])


def test_a_distant_batch_below_the_recovery_point_is_accepted(tmp_path: Path) -> None:
    legacy = write_segment(tmp_path / "t-0", BASE, [BASE, BASE + FAR], indexed=False)
    log, report = reopen(legacy.directory, CONFIG, clean=False, recovery_point=BASE + FAR + 3)
    assert (report.split_segments, report.truncated_bytes) == (1, 0)
    check_split(log, legacy.records)


def test_messages_of_an_old_format_are_split_as_they_are_rewritten(tmp_path: Path) -> None:
    offsets = [BASE, BASE + 1, BASE + FAR, BASE + FAR + 1, BASE + 4 * FAR]
    (tmp_path / "t-0").mkdir()
    messages = [encode_message(1, offset, NOW_MS, b"k", b"%d" % offset) for offset in offsets]
    (tmp_path / "t-0" / f"{BASE:020d}.log").write_bytes(b"".join(messages))
    log, report = reopen(tmp_path / "t-0", CONFIG, clean=True)
    assert (report.rewritten_segments, report.split_segments) == (1, 0)
    assert bases_of(log) == [BASE, BASE + FAR, BASE + 4 * FAR]
    check_split(log, [(offset, Record(NOW_MS, b"k", b"%d" % offset)) for offset in offsets])


def test_the_tool_reports_in_advance_which_segments_a_start_would_split(tmp_path: Path) -> None:
    legacy = write_segment(tmp_path / "t-0", BASE, [BASE, BASE + FAR, BASE + FAR + 3])
    path = legacy.directory / f"{BASE:020d}.log"
    content = path.read_bytes()
    rows = inspect("recover", tmp_path)[1]
    assert [row["file"] for row in rows if row["row"] == "split"] == [path.name]
    assert not [row for row in rows if row["row"] in ("truncate", "rebuild")]
    assert [row["log_end_offset"] for row in rows if row["row"] == "would_recover"] == [BASE + FAR + 6]
    assert path.read_bytes() == content
    assert inspect("recover", tmp_path, "--yes")[1]
    check_split(reopen(legacy.directory, CONFIG, clean=True)[0], legacy.records)


@st.composite
def segments(draw: st.DrawFn) -> list[int]:
    """Draws the bases of a segment's batches, with gaps about as wide as the range of an index."""
    at, result = BASE + draw(st.sampled_from((0, 0, 5, FAR - 4, FAR, 3 * FAR))), []
    for _ in range(draw(st.integers(1, 10))):
        result.append(at)
        at += 3 + draw(st.sampled_from(GAPS))
    return result


@given(bases=segments(), clean=st.booleans(), indexed=st.booleans(), is_closed=st.booleans())
@settings(max_examples=150)
def test_every_record_is_readable_with_any_gaps(
    tmp_path_factory: pytest.TempPathFactory, bases: list[int], clean: bool, indexed: bool, is_closed: bool
) -> None:
    directory = tmp_path_factory.mktemp("log") / "t-0"
    expected = write_segment(directory, BASE, bases, indexed=indexed).records
    if is_closed:
        expected = expected + write_segment(directory, bases[-1] + 10, [bases[-1] + 10]).records
    log, report = reopen(directory, CONFIG, clean=clean, recovery_point=expected[-1][0] + 1)
    assert report.split_segments == (bases[-1] + 2 - BASE > RELATIVE_OFFSET_MAX)
    assert report.truncated_bytes == 0
    check_split(log, expected)


@pytest.mark.parametrize("first", [2 * FAR, 3 * FAR])
def test_a_crash_at_any_step_leaves_every_record(first: int) -> None:
    """Two segments are split: one with aborted transactions, one whose first part has batches or none."""
    with quick_directory() as home:
        directory = home / "run" / "t-0"
        far_transactions(directory)
        write_segment(directory, 2 * FAR, [first, first + 2 * FAR, first + 2 * FAR + 3])
        write_segment(directory, first + 2 * FAR + 10, [first + 2 * FAR + 10])
        shutil.copytree(directory, home / "whole" / "t-0")
        whole = read_all(reopen(home / "whole" / "t-0", CONFIG, clean=False)[0])
        assert [offset for offset, _ in whole][-3:] == [first + 2 * FAR + 10 + at for at in range(3)]
        assert len(whole) == 6 + 12

        disk = Disk(home / "run")
        with disk.recording():
            open_table(home / "run")
        disk.end_process()

        def check(left: Path, step: int, power_lost: bool) -> None:
            del step, power_lost
            partition = open_table(left).get("t", 0)
            assert partition is not None
            check_split(partition.log, whole)
            assert [entry.producer_id for part in aborted_of(partition.log).values() for entry in part] == [7, 8, 9]
            partition.log.close()

        tried = crash_everywhere(home, disk, check, Effort(2, 2, 10), lambda _: None)
        assert tried.starts > 60


@pytest.mark.parametrize("closed", [False, True])
def test_a_segment_that_will_be_split_is_no_fault_for_log_verify(tmp_path: Path, closed: bool) -> None:
    directory = tmp_path / "t-0"
    write_segment(directory, BASE, [BASE, BASE + FAR, BASE + FAR + 3])
    if closed:
        write_segment(directory, BASE + FAR + 6, [BASE + FAR + 6])
    code, rows = inspect("verify", tmp_path, "--compacted")
    assert code == 0, rows
    notes = [row["what"] for row in rows if row["row"] == "note" and row["file"] == f"{BASE:020d}.log"]
    assert notes == ["holds offsets too far from its base for an index to name; the next start splits it"]
    log, report = reopen(directory, CONFIG, clean=False)
    assert report.split_segments == 1
    log.close()
    code, rows = inspect("verify", tmp_path, "--compacted")
    assert not [row for row in rows if row["row"] == "note" and "splits" in row["what"]]


@pytest.mark.parametrize("bit", [31, 40])
def test_a_distant_batch_that_a_start_does_not_accept_is_a_fault(tmp_path: Path, bit: int) -> None:
    write_segment(tmp_path / "t-0", BASE, [BASE, BASE + 3, BASE + 3 + 2**bit], indexed=False)
    code, rows = inspect("verify", tmp_path, "--compacted")
    faults = [row for row in rows if row["row"] == "fault"]
    assert code == 1
    assert [row["what"] for row in faults] == ["offset is too far from the segment's base"]
    assert faults[0]["offset"] == BASE + 3 + 2**bit
