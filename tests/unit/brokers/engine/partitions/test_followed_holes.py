"""Holes in the log of a follower whose leader's log was compacted: a crash removes no records behind them (LOG-36,
REP-5).
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from brokers.engine.partitions import offset_files
from brokers.engine.partitions.following import append_fetched, has_holes
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.storage import checkpoints
from tests.unit.brokers.engine.partitions.test_table import NOW_MS, opened
from tests.unit.brokers.engine.storage.logs import read_all

OLD, YOUNG = b"1" * 16, b"2" * 16
COMPACTED = {"cleanup.policy": "compact"}
EPOCH = 5


def batch(offset: int, count: int = 1) -> bytes:
    """Returns a batch as a leader wrote it."""
    made = bytearray(build_batch([Record(NOW_MS, b"k", b"v") for _ in range(count)]))
    struct.pack_into(">q", made, 0, offset)
    struct.pack_into(">i", made, 12, EPOCH)
    return bytes(made)


def follow(table: PartitionTable, *offsets: int) -> Partition:
    """Appends like the fetcher."""
    partition = table.become_follower(
        "t", 0, OLD, EPOCH, COMPACTED, now_ms=NOW_MS, role=PartitionRole((1, 2), (1, 2), 2)
    )
    for offset in offsets:
        records, expected = memoryview(batch(offset)), partition.log_end_offset
        append_fetched(partition, records, offset + 1, 0, NOW_MS)
        if has_holes(records, expected):
            table.flusher.record_holes(partition)
    table.flusher.persist_holes()
    return partition


def flush(table: PartitionTable) -> None:
    planned = table.flusher.plan_flush()
    planned.run()
    planned.finish()


def after_a_kill(table: PartitionTable, directory: Path) -> Partition:
    """Returns the log as a start would load it, from a copy of the files."""
    copy = directory.with_name(f"{directory.name}-killed")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, copy)
    again = opened(copy)
    result = again.get("t", 0)
    assert result is not None
    again.close()
    return result


def named(directory: Path) -> dict[tuple[str, int], int]:
    return checkpoints.read_offsets(directory / checkpoints.RECOVERY_POINTS, directory)


def test_records_acknowledged_behind_holes_survive_a_kill(tmp_path: Path) -> None:
    """It followed, led when the other broker died, and dies before its next flush: no other replica has those
    records.
    """
    table = opened(tmp_path)
    follow(table, 0, 1, 2)
    flush(table)
    follow(table, 5, 9, 10)
    led = table.become_leader("t", 0, OLD, EPOCH + 1, COMPACTED, now_ms=NOW_MS, role=PartitionRole((1, 2), (1,)))
    mine = memoryview(build_batch([Record(NOW_MS, b"k", b"acknowledged")]))
    assert led.append(mine, NOW_MS, acks=-1, produce_version=9).base_offset == 11
    result = after_a_kill(table, tmp_path)
    assert (result.log_end_offset, result.log.epochs.latest) == (12, EPOCH + 1)
    table.close()


def test_a_log_with_holes_is_named_again_once_they_are_on_disk(tmp_path: Path) -> None:
    """From then on a kill truncates nothing, in this incarnation or the next."""
    table = opened(tmp_path)
    follow(table, 0, 1)
    flush(table)
    follow(table, 5)
    assert ("t", 0) not in named(tmp_path)
    flush(table)
    assert named(tmp_path) == {("t", 0): 6}
    follow(table, 6, 7)
    assert named(tmp_path) == {("t", 0): 6}, "no further hole"
    assert after_a_kill(table, tmp_path).log_end_offset == 8
    follow(table, 9)
    assert ("t", 0) not in named(tmp_path)
    assert after_a_kill(table, tmp_path).log_end_offset == 10
    table.close()


def test_the_incarnation_after_the_kill_knows_of_the_holes_that_are_not_flushed(tmp_path: Path) -> None:
    table = opened(tmp_path)
    follow(table, 0, 1)
    flush(table)
    follow(table, 5, 6)
    shutil.copytree(tmp_path, tmp_path.with_name("second"))
    table.close()

    second = opened(tmp_path.with_name("second"))
    second.become_leader("other", 0, YOUNG, 0, {}, now_ms=NOW_MS)
    second.flusher.checkpoint_recovery_points()  # triggered by another partition
    assert ("t", 0) not in named(tmp_path.with_name("second"))
    assert after_a_kill(second, tmp_path.with_name("second")).log_end_offset == 7
    second.close()


@pytest.mark.parametrize("order", [("longer", "shorter"), ("shorter", "longer")])
def test_the_holes_of_a_log_are_known_although_another_disk_has_a_shorter_one(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    longer, shorter = tmp_path / "longer", tmp_path / "shorter"
    for root, offsets in ((tmp_path / "a", (0, 1, 5, 6)), (tmp_path / "b", (0,))):
        table = opened(root)
        follow(table, *offsets)
        shutil.copytree(root, longer if len(offsets) > 1 else shorter)
        table.close()

    second = opened(*(tmp_path / name for name in order))
    second.become_leader("other", 0, YOUNG, 0, {}, now_ms=NOW_MS)
    second.flusher.checkpoint_recovery_points()  # triggered by another partition
    assert ("t", 0) not in named(longer)
    assert after_a_kill(second, longer).log_end_offset == 7
    second.close()


def test_a_flush_under_way_does_not_name_a_log_that_has_got_a_hole_since(tmp_path: Path) -> None:
    table = opened(tmp_path)
    follow(table, 0, 1, 5)
    planned = table.flusher.plan_flush()
    follow(table, 9)
    planned.run()
    planned.finish()
    assert ("t", 0) not in named(tmp_path)
    assert after_a_kill(table, tmp_path).log_end_offset == 10
    table.close()


def test_a_recreated_topic_is_named_from_its_first_flush_on(tmp_path: Path) -> None:
    table = opened(tmp_path)
    follow(table, 0, 5)
    table.delete("t", 0, now_ms=NOW_MS)
    table.become_leader("t", 0, YOUNG, 0, {}, now_ms=NOW_MS)
    flush(table)
    assert named(tmp_path) == {("t", 0): 0}
    table.close()


def test_many_logs_with_holes_cost_one_write_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = opened(tmp_path)
    followed = []
    for index in range(50):
        partition = table.become_follower(
            "t", index, OLD, EPOCH, COMPACTED, now_ms=NOW_MS, role=PartitionRole((1, 2), (1, 2), 2)
        )
        append_fetched(partition, memoryview(batch(5)), 6, 0, NOW_MS)
        followed.append(partition)
    written: list[Path] = []
    write = offset_files.write_atomically
    monkeypatch.setattr(
        offset_files, "write_atomically", lambda path, *rest, **how: (written.append(path), write(path, *rest, **how))
    )
    for partition in followed:
        table.flusher.record_holes(partition)
    table.flusher.persist_holes()
    table.flusher.persist_holes()
    assert written == [tmp_path / checkpoints.RECOVERY_POINTS]
    assert named(tmp_path) == {}
    table.close()


@pytest.mark.parametrize(
    ("batches", "expected", "found"),
    [
        ([(3, 1)], 3, False),
        ([(4, 1)], 3, True),
        ([(3, 4), (7, 1)], 3, False),
        ([(3, 4), (8, 1)], 3, True),
        ([(1, 4), (5, 2)], 3, False),
        ([], 3, False),
    ],
)
def test_a_hole_is_seen_before_and_between_batches(batches: list[tuple[int, int]], expected: int, found: bool) -> None:
    assert has_holes(memoryview(b"".join(batch(*span) for span in batches)), expected) is found


@pytest.mark.parametrize("before", [(0, 1), ()])
def test_a_hole_wider_than_an_index_can_name_begins_another_segment(tmp_path: Path, before: tuple[int, ...]) -> None:
    """LOG-16, LOG-17: one key was written once and another one three billion times since."""
    far = 3_000_000_000
    table = opened(tmp_path)
    partition = follow(table, *before, far, far + 1)
    assert partition.log.active.base_offset == far
    flush(table)
    ends = [partition.log_end_offset, after_a_kill(table, tmp_path).log_end_offset]
    table.close()
    table = opened(tmp_path)
    result = table.get("t", 0)
    assert result is not None
    assert [*ends, result.log_end_offset] == [far + 2] * 3
    assert [offset for offset, _ in read_all(result.log)] == [*before, far, far + 1]
    table.close()
