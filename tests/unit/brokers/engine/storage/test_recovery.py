"""Recovery after a crash keeps a prefix of the log: every batch before the damage (LOG-34 to LOG-41)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.engine.storage.log import LogConfig
from tests.unit.brokers.engine.storage.logs import NOW_MS, append, new_log, read_all, reopen, values

SMALL = LogConfig(segment_bytes=1_500, index_limits=(150, 10_000))


def test_a_torn_write_at_every_byte_of_the_last_batch_is_cut(tmp_path: Path) -> None:
    """LOG-36."""
    log = new_log(tmp_path / "t-0")
    append(log, values(3))
    append(log, values(4))
    before = log.size_bytes
    append(log, values(5))
    file = tmp_path / "t-0" / "00000000000000000000.log"
    whole = file.read_bytes()
    for size in range(before, len(whole)):
        file.write_bytes(whole[:size])
        again, report = reopen(tmp_path / "t-0", clean=False)
        assert again.log_end_offset == 7
        assert report.truncated_bytes == size - before
        assert file.stat().st_size == before
        assert len(read_all(again)) == 7
    file.write_bytes(whole)
    assert reopen(tmp_path / "t-0", clean=False)[0].log_end_offset == 12


def test_a_flipped_bit_in_the_tail_ends_the_log_before_that_batch(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0")
    append(log, values(3))
    start = log.size_bytes
    append(log, values(4))
    file = tmp_path / "t-0" / "00000000000000000000.log"
    whole = file.read_bytes()
    for at in range(start, len(whole)):
        if start + 12 <= at < start + 16:
            continue  # no checksum covers the leader epoch
        damaged = bytearray(whole)
        damaged[at] ^= 0x10
        file.write_bytes(damaged)
        again, _ = reopen(tmp_path / "t-0", clean=False)
        if start <= at < start + 8 and again.log_end_offset != 3:
            # No checksum covers an increased base offset either: it leaves a hole, with offsets still increasing.
            assert again.log_end_offset > 7
            continue
        assert again.log_end_offset == 3, at
        assert len(read_all(again)) == 3


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 200)), min_size=1, max_size=25), st.data())
def test_a_file_cut_anywhere_leaves_a_prefix(shape: list[tuple[int, int]], data: st.DataObject) -> None:
    """Cuts any segment at any byte: batches before the damage survive and offsets stay increasing."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch) / "t-0"
        log = new_log(directory, SMALL)
        for count, size in shape:
            append(log, values(count, size=size))
        written = read_all(log)
        bounds = [(segment.base_offset, segment.size_bytes, list(segment.headers(0))) for segment in log.segments]
        victim = data.draw(st.integers(0, len(bounds) - 1))
        base, size, batches = bounds[victim]
        cut = data.draw(st.integers(0, size))
        with (directory / f"{base:020d}.log").open("r+b") as file:
            file.truncate(cut)
        complete = [header for position, header in batches if position + header.size_bytes <= cut]
        end = complete[-1].next_offset if complete else base
        if cut == size:
            end = log.log_end_offset
        again, _ = reopen(directory, SMALL, clean=False)
        again.check()
        if len(complete) == len(batches):
            end = log.log_end_offset
        assert read_all(again)[:end] == written[:end]
        assert again.log_end_offset >= end
        assert [offset for offset, _ in read_all(again)] == sorted({offset for offset, _ in read_all(again)})
        next_offset = again.log_end_offset
        assert append(again, values(2)) == next_offset
        assert again.log_end_offset == next_offset + 2


def test_only_segments_from_the_recovery_point_on_are_read_again(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", SMALL)
    while len(log.segments) < 6:
        append(log, values(3))
    point = log.segments[4].base_offset + 1
    unflushed = log.segments[4].size_bytes + log.segments[5].size_bytes
    again, report = reopen(tmp_path / "t-0", SMALL, clean=False, recovery_point=point)
    assert report.scanned_bytes == unflushed
    assert len(read_all(again)) == log.log_end_offset


def test_a_segment_that_ends_at_the_recovery_point_is_read_again_for_its_indexes(tmp_path: Path) -> None:
    """The segment was flushed before it was closed, and its time index got its last entry after that."""
    log = new_log(tmp_path / "t-0", SMALL)
    for at in range(40):
        append(log, values(1, stamp_ms=NOW_MS + at))
    first, second = log.segments[:2]
    whole = first.time_index.last
    file = tmp_path / "t-0" / "00000000000000000000.timeindex"
    file.write_bytes(file.read_bytes()[:-12])
    again, report = reopen(tmp_path / "t-0", SMALL, clean=False, recovery_point=second.base_offset)
    assert report.scanned_bytes == log.size_bytes
    assert again.segments[0].time_index.last == whole
    assert again.segments[0].max_timestamp == NOW_MS + second.base_offset - 1


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "odd", "insane"])
def test_a_bad_index_is_rebuilt(tmp_path: Path, suffix: str, damage: str) -> None:
    """LOG-14."""
    log = new_log(tmp_path / "t-0", SMALL)
    while len(log.segments) < 3:
        append(log, values(3))
    log.close()
    file = tmp_path / "t-0" / f"00000000000000000000{suffix}"
    good = file.read_bytes()
    assert good
    if damage == "missing":
        file.unlink()
    elif damage == "odd":
        file.write_bytes(good + b"x")
    else:
        file.write_bytes(
            good[: -len(good) % 4 or None] + (-1).to_bytes(4, "big", signed=True) * (3 if "time" in suffix else 2)
        )
    again, _ = reopen(tmp_path / "t-0", SMALL, clean=True, recovery_point=log.log_end_offset)
    assert len(read_all(again, max_bytes=100)) == log.log_end_offset


def test_debris_of_a_crash_is_removed(tmp_path: Path) -> None:
    """LOG-35."""
    log = new_log(tmp_path / "t-0", SMALL)
    append(log, values(3))
    log.close()
    for name in ("00000000000000000009.index", "00000000000000000000.log.deleted", "leader-epoch-checkpoint.tmp"):
        (tmp_path / "t-0" / name).write_bytes(b"x")
    again, _ = reopen(tmp_path / "t-0", SMALL, clean=True)
    names = {path.name for path in (tmp_path / "t-0").iterdir()}
    assert not {name for name in names if name.endswith((".deleted", ".tmp"))}
    assert "00000000000000000009.index" not in names
    assert again.log_end_offset == 3


def test_foreign_files_are_reported_and_ignored(tmp_path: Path) -> None:
    """A copy or a note of a person disturbs neither a start nor a swap that a crash interrupted."""
    directory = tmp_path / "t-0"
    log = new_log(directory, SMALL)
    append(log, values(3))
    log.close()
    (directory / "00000000000000000000.log").rename(directory / "00000000000000000000.log.swap")
    files, directories = ("copy.log", "notes.tmp", "old.log.deleted"), ("saved.tmp", "00000000000000000007.log")
    for name in files:
        (directory / name).write_bytes(b"x")
    for name in directories:
        (directory / name).mkdir()
    again, report = reopen(directory, SMALL, clean=True)
    assert again.log_end_offset == 3
    assert sorted(damage.file for damage in report.damages) == sorted(
        str(directory / name) for name in files + directories
    )
    assert all("ignored" in damage.description for damage in report.damages)
    assert {file.name for file in directory.iterdir()} > {*files, *directories}


def test_a_log_below_its_checkpointed_start_restarts_there(tmp_path: Path) -> None:
    """LOG-38."""
    log = new_log(tmp_path / "t-0", SMALL)
    append(log, values(3))
    log.close()
    again, _ = reopen(tmp_path / "t-0", SMALL, clean=True, start_offset=50)
    assert (again.log_start_offset, again.log_end_offset) == (50, 50)
    assert append(again, values(1)) == 50


def test_epochs_are_rebuilt_from_the_batches(tmp_path: Path) -> None:
    log = new_log(tmp_path / "t-0", SMALL)
    for epoch in (0, 0, 3, 5):
        append(log, values(2), epoch=epoch)
    again, _ = reopen(tmp_path / "t-0", SMALL, clean=False)
    assert again.epochs.entries == [(0, 0), (3, 4), (5, 6)]
    assert again.epochs.end_offset(0, again.log_end_offset) == (0, 4)
