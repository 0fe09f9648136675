"""Log start offsets set by DeleteRecords, over crashes, clean stops and retention runs (LOG-7, LOG-43, LOG-46)."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokers.engine.partitions.deletion import delete_before
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.records.batch import read_header
from brokers.engine.storage import checkpoints
from tests.unit.brokers.engine.partitions.test_table import NOW_MS, opened, produce

CONFIG = {"segment.bytes": "20000", "retention.ms": "-1"}


def persist_log_start_offsets(table: PartitionTable) -> None:
    batch = table.flusher.plan_start_offsets(table.settings.roots)
    batch.run()
    batch.finish()


def led(table: PartitionTable) -> PartitionTable:
    table.become_leader("t", 0, b"1" * 16, 0, CONFIG, now_ms=NOW_MS)
    return table


def crash(table: PartitionTable) -> None:
    """Ends the process without further writes; its locks and descriptors are released."""
    for partition in table:
        for segment in partition.log.segments:
            segment.file.close()
    for root in table._roots:
        root.unlock()


@pytest.mark.parametrize("clean", [True, False])
def test_an_answered_log_start_offset_survives(tmp_path: Path, clean: bool) -> None:
    table = led(opened(tmp_path))
    produce(table, "t", 0, size=5_000, times=10)
    partition = table.get("t", 0)
    assert partition is not None
    assert delete_before(partition, 6) == (0, 6)
    persist_log_start_offsets(table)
    table.close() if clean else crash(table)

    table = led(opened(tmp_path))
    again = table.get("t", 0)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset, again.high_watermark) == (6, 10, 10)
    assert again.log.epochs.entries == [(0, 6)]
    table.close()


def test_segments_below_the_log_start_are_deleted_by_retention_after_the_delay(tmp_path: Path) -> None:
    table = led(opened(tmp_path))
    produce(table, "t", 0, size=5_000, times=10)
    partition = table.get("t", 0)
    assert partition is not None
    bases = [segment.base_offset for segment in partition.log.segments]
    assert len(bases) >= 3
    persist_log_start_offsets(table)
    delete_before(partition, bases[2] + 1)

    table.maintain(NOW_MS)

    assert partition.log.segments[0].base_offset == bases[2]
    assert partition.log_start_offset == bases[2] + 1
    assert len(list(tmp_path.glob("t-0/*.log.deleted"))) == 2
    table.maintain(NOW_MS + 60_000)
    assert not list(tmp_path.glob("t-0/*.deleted"))
    table.close()


def test_deleting_everything_leaves_an_empty_log_that_continues(tmp_path: Path) -> None:
    table = led(opened(tmp_path))
    produce(table, "t", 0, size=5_000, times=10)
    partition = table.get("t", 0)
    assert partition is not None
    delete_before(partition, -1)
    persist_log_start_offsets(table)
    crash(table)

    table = led(opened(tmp_path))
    produce(table, "t", 0)
    again = table.get("t", 0)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset) == (10, 11)
    table.close()


def test_a_plan_written_late_does_not_undo_a_later_one(tmp_path: Path) -> None:
    table = led(opened(tmp_path))
    produce(table, "t", 0, times=10)
    partition = table.get("t", 0)
    assert partition is not None
    delete_before(partition, 2)
    flush = table.flusher.plan_flush()
    delete_before(partition, 7)
    persist_log_start_offsets(table)
    flush.run()
    flush.finish()

    assert checkpoints.read_offsets(tmp_path / checkpoints.LOG_START_OFFSETS, tmp_path) == {("t", 0): 7}
    assert (tmp_path / checkpoints.LOG_START_OFFSETS).read_text() == "0\n1\nt 0 7\n"
    table.close()


def test_only_a_leader_on_a_disk_that_works_deletes(tmp_path: Path) -> None:
    table = led(opened(tmp_path))
    produce(table, "t", 0)
    partition = table.get("t", 0)
    assert partition is not None
    table.resign("t", 0)
    assert delete_before(partition, 1).error_code == 6
    led(table)
    partition.fail()
    assert delete_before(partition, 1).error_code == 56
    table.close()


STEP = st.one_of(
    st.tuples(st.just("produce"), st.integers(1, 4)),
    st.tuples(st.just("delete"), st.integers(-1, 30)),
    st.tuples(st.sampled_from(["retain", "flush", "restart", "crash"]), st.just(0)),
)


@settings(max_examples=150)
@given(steps=st.lists(STEP, max_size=12))
def test_the_log_start_offset_is_always_the_highest_answered_one(steps: list[tuple[str, int]]) -> None:
    """Compared with two numbers, start and end.

    After a crash of the process all flushed and read records are present.
    """
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        table = led(opened(root))
        start = end = 0
        now_ms = NOW_MS
        for what, number in steps:
            partition = table.get("t", 0)
            assert partition is not None
            if what == "produce":
                produce(table, "t", 0, size=5_000, times=number)
                end += number
            elif what == "delete":
                wanted = end if number == -1 else number
                answer = delete_before(partition, number)
                assert answer.error_code == (1 if wanted > end else 0)
                if wanted <= end:
                    start = max(start, wanted)
                    assert answer.low_watermark == start
                    persist_log_start_offsets(table)
            elif what == "retain":
                now_ms += 10**6
                table.maintain(now_ms)
            elif what == "flush":
                batch = table.flusher.plan_flush()
                batch.run()
                batch.finish()
            else:
                table.close() if what == "restart" else crash(table)
                table = led(opened(root))
            partition = table.get("t", 0)
            assert partition is not None
            partition.check()
            assert (partition.log_start_offset, partition.log_end_offset) == (start, end)
            if start < end:
                result = partition.read(start, 10**6, min_one_batch=True).slice
                assert result is not None
                assert read_header(result.read()).last_offset >= start
                result.release()
        table.close()


@pytest.mark.parametrize("away", [False, True])
def test_a_recreated_topic_does_not_get_the_old_log_start_offset(tmp_path: Path, away: bool) -> None:
    """Checkpoint files identify a log by name; after a crash they must not apply to another log of that name."""
    table = led(opened(tmp_path))
    produce(table, "t", 0, size=5_000, times=10)
    partition = table.get("t", 0)
    assert partition is not None
    delete_before(partition, 6)
    persist_log_start_offsets(table)
    batch = table.flusher.plan_flush()
    batch.run()
    batch.finish()
    table.delete("t", 0, now_ms=NOW_MS)
    if away:
        crash(table)
        table = opened(tmp_path)
    table.become_leader("t", 0, b"2" * 16, 0, CONFIG, now_ms=NOW_MS)
    produce(table, "t", 0, times=2)
    crash(table)

    assert ("t", 0) not in checkpoints.read_offsets(tmp_path / checkpoints.LOG_START_OFFSETS, tmp_path)
    assert ("t", 0) not in checkpoints.read_offsets(tmp_path / checkpoints.RECOVERY_POINTS, tmp_path)
    table = opened(tmp_path)
    again = table.get("t", 0)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset) == (0, 2)
    table.close()


@pytest.mark.parametrize("away", [False, True])
def test_a_recreated_topic_does_not_get_the_old_high_watermark(tmp_path: Path, away: bool) -> None:
    """A leader with it would serve uncommitted records.

    Between two flushes only that file has it (seed 10592 of the simulator).
    """
    table = led(opened(tmp_path))
    produce(table, "t", 0, times=10)
    batch = table.flusher.plan_high_watermarks()
    assert batch is not None
    batch.run()
    batch.finish()
    table.delete("t", 0, now_ms=NOW_MS)
    if away:
        crash(table)
        table = opened(tmp_path)
    table.become_leader("t", 0, b"2" * 16, 0, CONFIG, now_ms=NOW_MS)
    produce(table, "t", 0, times=2)
    crash(table)

    table = opened(tmp_path)
    again = table.get("t", 0)
    assert again is not None
    assert (again.high_watermark, again.log_end_offset) == (0, 2)
    table.close()
