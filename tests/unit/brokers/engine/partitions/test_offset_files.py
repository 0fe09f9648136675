"""High watermarks between two flushes, and concurrent writers of a checkpoint file (LOG-6, LOG-25)."""

from __future__ import annotations

import shutil
from pathlib import Path

from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.storage import checkpoints
from tests.unit.brokers.engine.partitions.test_table import NOW_MS, opened, produce

OLD, YOUNG = b"1" * 16, b"2" * 16


def keep(table: PartitionTable) -> bool:
    """Runs one round; returns True if there was anything to write."""
    batch = table.flusher.plan_high_watermarks()
    if batch is None:
        return False
    batch.run()
    batch.finish()
    return True


def stored(root: Path) -> dict[tuple[str, int], int]:
    return checkpoints.read_offsets(root / checkpoints.HIGH_WATERMARKS, root)


def test_a_kill_loses_only_high_watermarks_since_the_last_round(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.become_leader("t", 0, OLD, 0, {}, now_ms=NOW_MS)
    produce(table, "t", 0, times=5)
    assert keep(table)
    produce(table, "t", 0, times=2)

    shutil.copytree(tmp_path, tmp_path.with_name("killed"))
    again = opened(tmp_path.with_name("killed"))

    result = again.get("t", 0)
    assert result is not None
    assert (result.high_watermark, result.log_end_offset) == (5, 7)
    again.close()
    table.close()


def test_nothing_is_written_without_a_change(tmp_path: Path) -> None:
    table = PartitionTable(StorageSettings(roots=(tmp_path / "a", tmp_path / "b"), broker_id=1, cluster_id="c"))
    table.recover(NOW_MS)
    for index in range(2):
        table.become_leader("t", index, OLD, 0, {}, now_ms=NOW_MS)
    assert keep(table)
    assert not keep(table)
    produce(table, "t", 0)
    moved = table.get("t", 0)
    assert moved is not None
    still = next(root for root in (tmp_path / "a", tmp_path / "b") if root != moved.log.root)
    (still / checkpoints.HIGH_WATERMARKS).unlink()
    assert keep(table)
    assert stored(moved.log.root) == {("t", 0): 1}
    assert not (still / checkpoints.HIGH_WATERMARKS).exists()
    table.close()


def test_values_that_a_flush_wrote_in_between_are_corrected(tmp_path: Path) -> None:
    """High watermarks are written again also if the flush found the values of an earlier round."""
    table = opened(tmp_path)
    partition = table.become_leader("t", 0, OLD, 0, {}, now_ms=NOW_MS)
    produce(table, "t", 0, times=3)
    assert keep(table)
    produce(table, "t", 0)
    flush = table.flusher.plan_flush()
    flush.run()
    flush.finish()
    assert stored(tmp_path) == {("t", 0): 4}
    partition.high_watermark = 3
    assert keep(table)
    assert stored(tmp_path) == {("t", 0): 3}
    table.close()


def test_a_plan_from_before_a_topic_was_recreated_is_not_written_after_it(tmp_path: Path) -> None:
    """Otherwise a crash would give its log the high watermark, or the recovery point, of the earlier topic."""
    table = opened(tmp_path)
    table.become_leader("t", 0, OLD, 0, {}, now_ms=NOW_MS)
    produce(table, "t", 0, times=5)
    late, flush = table.flusher.plan_high_watermarks(), table.flusher.plan_flush()
    assert late is not None
    table.delete("t", 0, now_ms=NOW_MS)
    table.become_leader("t", 0, YOUNG, 0, {}, now_ms=NOW_MS)
    for batch in (late, flush):
        batch.run()
        batch.finish()
    assert stored(tmp_path) == {}
    assert checkpoints.read_offsets(tmp_path / checkpoints.RECOVERY_POINTS, tmp_path) == {}
    table.close()


def test_a_disk_that_fails_to_store_high_watermarks_goes_offline(tmp_path: Path) -> None:
    """LOG-3."""
    table = opened(tmp_path / "a", tmp_path / "b")
    for index in range(2):
        table.become_leader("t", index, OLD, 0, {}, now_ms=NOW_MS)
    (tmp_path / "a" / f"{checkpoints.HIGH_WATERMARKS}.tmp").mkdir()
    assert keep(table)
    assert list(table.offline_directories) == [tmp_path / "a"]
    table.close()
