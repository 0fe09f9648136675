"""Which logs are flushed because their topic asks for it (LOG-19)."""

from __future__ import annotations

from pathlib import Path

from brokers.engine.partitions.table import PartitionTable
from tests.brokers.engine.partitions.test_table import NOW_MS, opened, produce


def flushed(table: PartitionTable, now_ms: int) -> int:
    """How many logs a round flushes."""
    batch = table.plan_due_flush(now_ms)
    if batch is None:
        return 0
    batch.run()
    batch.finish()
    return len(batch.jobs)


def test_a_log_is_flushed_when_so_many_records_wait(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.become_leader("t", 0, b"1" * 16, 0, {"flush.messages": "3"}, now_ms=NOW_MS)
    table.become_leader("u", 0, b"2" * 16, 0, {}, now_ms=NOW_MS)
    produce(table, "t", 0, times=2)
    produce(table, "u", 0, times=9)
    assert flushed(table, NOW_MS) == 0
    produce(table, "t", 0)
    assert flushed(table, NOW_MS) == 1
    assert flushed(table, NOW_MS + 10**9) == 0
    table.close()


def test_a_log_is_flushed_when_a_record_waited_so_long(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.become_leader("t", 0, b"1" * 16, 0, {"flush.ms": "5000"}, now_ms=NOW_MS)
    assert flushed(table, NOW_MS) == 0
    produce(table, "t", 0)
    assert [flushed(table, NOW_MS + after_ms) for after_ms in (1_000, 3_000, 5_999, 6_000)] == [0, 0, 0, 1]
    produce(table, "t", 0)
    assert [flushed(table, NOW_MS + after_ms) for after_ms in (7_000, 11_999, 12_000)] == [0, 0, 1]
    table.close()


def test_without_such_a_topic_no_log_is_looked_at(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.become_leader("t", 0, b"1" * 16, 0, {}, now_ms=NOW_MS)
    produce(table, "t", 0, times=50)
    assert table.plan_due_flush(NOW_MS + 10**9) is None
    table.close()
