"""Segments of message formats 0 and 1 become record batches when their log is opened (REC-5 to REC-12, REC-30)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from brokers.engine.partitions.listing import list_offsets
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records.builder import Record, build_batch, read_records
from brokers.engine.records.message_set import compress_old, encode_message
from brokers.engine.storage.files import OpenFiles
from brokers.engine.storage.log import Log, LogConfig
from brokers.engine.storage.recovery import LoadReport, LogCheckpoint, load_log
from brokers.engine.storage.rewriting import OldFormat
from tests.unit.brokers.engine.inspect.sample import run as inspect

NOW_MS = 1_700_000_000_000
LOG_APPEND_TIME = 8
GZIP = 1

Stored = list[tuple[int, int, bytes | None, bytes | None]]


def file_of(root: Path, base: int = 0) -> Path:
    directory = root / "t-0"
    directory.mkdir(exist_ok=True)
    return directory / f"{base:020d}.log"


def load(root: Path, *, clean: bool = True) -> tuple[Log, LoadReport]:
    return load_log(
        str(root / "t-0"),
        root,
        ("t", 0),
        OpenFiles(),
        LogConfig(),
        LogCheckpoint(0, 0, clean),
        now_ms=NOW_MS,
    )


def stored(log: Log) -> Stored:
    result = []
    for segment in log.segments:
        for position, header in segment.headers(0):
            data = segment.batch_at(position, header.size_bytes)
            result += [(offset, record.timestamp_ms, record.key, record.value) for offset, record in read_records(data)]
        segment.file.close()
    return result


def wrapper(magic: int, messages: Stored, codec: int, attributes: int = 0) -> bytes:
    """Returns a compressed wrapper as brokers stored it: last offset outside; inside relative (format 1) or absolute
    ones.
    """
    first, last = messages[0][0], messages[-1][0]
    inner = b"".join(
        encode_message(magic, offset - first if magic else offset, time_ms, key, value)
        for offset, time_ms, key, value in messages
    )
    time_ms = max(message[1] for message in messages)
    return encode_message(magic, last, time_ms, None, compress_old(codec, inner, magic), codec | attributes)


FIELD = st.none() | st.binary(max_size=40)


@st.composite
def segments(draw: st.DrawFn) -> tuple[int, list[tuple[int, Stored]]]:
    """Draws (format, entries): each entry has a codec and its messages, with gaps as compaction leaves them."""
    magic = draw(st.sampled_from((0, 1)))
    times = st.integers(-1, 2**45) if magic else st.just(-1)
    offset, result = draw(st.integers(0, 3)), []
    for _ in range(draw(st.integers(1, 12))):
        codec = draw(st.sampled_from((0, 0, 1, 2, 3)))
        messages: Stored = []
        for _ in range(draw(st.integers(1, 5)) if codec else 1):
            messages.append((offset, draw(times), draw(FIELD), draw(FIELD)))
            offset += draw(st.sampled_from((1, 1, 1, 7)))
        result.append((codec, messages))
    return magic, result


@given(given_=segments(), clean=st.booleans())
@settings(max_examples=150)
def test_offsets_times_keys_and_values_stay(tmp_path_factory: Any, given_: Any, clean: bool) -> None:
    root = tmp_path_factory.mktemp("log")
    magic, content = given_
    whole: Stored = []
    data = b""
    for codec, messages in content:
        whole += messages
        data += wrapper(magic, messages, codec) if codec else encode_message(magic, *messages[0])
    file_of(root).write_bytes(data)
    modified = file_of(root).stat().st_mtime_ns

    log, report = load(root, clean=clean)

    assert report.rewritten_segments == 1
    assert report.truncated_bytes == 0
    assert stored(log) == whole
    assert log.log_end_offset == whole[-1][0] + 1
    log.check()
    assert file_of(root).stat().st_mtime_ns == modified
    again, report = load(root)
    assert (report.rewritten_segments, stored(again)) == (0, whole)
    assert not [file for file in (root / "t-0").iterdir() if file.suffix in (".cleaned", ".swap", ".deleted")]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_segments_of_another_implementation_are_readable(tmp_path: Path, magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    expected = []
    for offset in range(50):
        time_ms = NOW_MS + offset if magic else -1
        builder.append(offset, timestamp=time_ms if magic else None, key=b"k%d" % offset, value=b"v" * offset)
        expected.append((offset, time_ms, b"k%d" % offset, b"v" * offset))
    data = bytearray(builder.build())
    if codec:
        data[:8] = (49).to_bytes(8, "big")  # the broker writes the last offset into a wrapper
    file_of(tmp_path).write_bytes(data)
    assert stored(load(tmp_path)[0]) == expected


def test_log_append_time_of_old_messages_is_preserved(tmp_path: Path) -> None:
    """REC-12: all messages in such a wrapper have its timestamp."""
    behind = [(0, 5, b"k", b"a"), (1, 6, b"k", b"b")]
    data = wrapper(1, behind, GZIP, LOG_APPEND_TIME)
    data += encode_message(1, 2, 8, b"k", b"c", LOG_APPEND_TIME) + encode_message(1, 3, 9, b"k", b"d", LOG_APPEND_TIME)
    data += encode_message(1, 4, 9, b"k", b"e")
    file_of(tmp_path).write_bytes(data)
    log, _ = load(tmp_path)
    assert [(offset, time_ms) for offset, time_ms, _, _ in stored(log)] == [(0, 6), (1, 6), (2, 8), (3, 9), (4, 9)]
    kinds = [header.attributes for _, header in log.active.headers(0)]
    assert kinds == [GZIP | LOG_APPEND_TIME, LOG_APPEND_TIME, LOG_APPEND_TIME, 0]


def test_segments_in_turn_and_batches_behind_them_make_one_log(tmp_path: Path) -> None:
    file_of(tmp_path, 0).write_bytes(b"".join(encode_message(1, at, NOW_MS + at, None, b"old") for at in range(3_000)))
    mixed = encode_message(1, 3_000, NOW_MS, None, b"last") + build_batch(
        [Record(NOW_MS, None, b"a")], base_offset=3_001
    )
    file_of(tmp_path, 3_000).write_bytes(mixed)
    file_of(tmp_path, 3_002).write_bytes(build_batch([Record(NOW_MS, None, b"b")], base_offset=3_002))
    table = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c"))
    report = table.recover(NOW_MS)
    assert (report.refused, report.rewritten_segments, report.truncated_bytes) == ([], 2, 0)
    partition = table.become_leader("t", 0, b"i" * 16, 1, {}, now_ms=NOW_MS)
    assert [offset for offset, _, _, _ in stored(partition.log)] == list(range(3_003))
    result = partition.read(2_500, 200, min_one_batch=True)
    assert result.slice is not None
    result.slice.release()
    assert list_offsets(partition, NOW_MS + 2_000, isolation=0, version=9).offset == 2_000
    table.close()


@pytest.mark.parametrize("failing", range(12))
def test_a_crash_on_the_way_leaves_the_old_or_the_rewritten_segment(
    tmp_path: Path, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"".join(encode_message(1, at, NOW_MS, None, b"%d" % at) for at in range(20))
    file_of(tmp_path).write_bytes(content)
    steps = iter(range(100))

    class Crash(BaseException):
        pass

    def until_crash(real: Any) -> Any:
        def step(*arguments: Any, **named: Any) -> Any:
            if next(steps) == failing:
                raise Crash
            return real(*arguments, **named)

        return step

    with monkeypatch.context() as patched:
        for name in ("rename", "replace", "fsync", "write"):
            patched.setattr(os, name, until_crash(getattr(os, name)))
        with contextlib.suppress(Crash):
            load(tmp_path, clean=False)
    log, _ = load(tmp_path, clean=False)
    assert [value for _, _, _, value in stored(log)] == [b"%d" % at for at in range(20)]


@pytest.mark.parametrize("kept_bytes", [0, 8, 12, 17, 40])
def test_the_rest_of_a_first_batch_after_a_power_cut_is_no_old_message(tmp_path: Path, kept_bytes: int) -> None:
    """A zero byte at the position of the format does not make an old message: the torn batch is truncated as usual."""
    torn = bytes(build_batch([Record(NOW_MS, None, b"a" * 100)]))
    file_of(tmp_path).write_bytes(torn[:kept_bytes] + bytes(len(torn) - kept_bytes))
    log, report = load(tmp_path, clean=False)
    assert (log.log_end_offset, report.truncated_bytes, report.rewritten_segments) == (0, len(torn), 0)


@pytest.mark.parametrize("cut", [1, 13, 30])
def test_a_torn_old_segment_is_left_to_an_operator(tmp_path: Path, cut: int) -> None:
    content = encode_message(1, 0, NOW_MS, None, b"a") + encode_message(1, 1, NOW_MS, None, b"b")[:-cut]
    file_of(tmp_path).write_bytes(content)
    with pytest.raises(OldFormat, match="nothing was changed"):
        load(tmp_path)
    assert list((tmp_path / "t-0").iterdir()) == [file_of(tmp_path)]
    assert file_of(tmp_path).read_bytes() == content


def test_the_tool_reports_in_advance_which_segments_a_start_would_rewrite(tmp_path: Path) -> None:
    content = b"".join(encode_message(0, at, -1, None, b"v") for at in range(3))
    file_of(tmp_path).write_bytes(content)
    rows = inspect("recover", tmp_path)[1]
    assert [row["file"] for row in rows if row["row"] == "rewrite"] == [file_of(tmp_path).name]
    assert [row["log_end_offset"] for row in rows if row["row"] == "would_recover"] == [3]
    assert file_of(tmp_path).read_bytes() == content
    assert inspect("recover", tmp_path, "--yes")[1]
    assert [offset for offset, _, _, _ in stored(load(tmp_path)[0])] == [0, 1, 2]
