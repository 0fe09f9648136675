"""Selection of logs to flush by topic settings (LOG-19)."""

from __future__ import annotations

from pathlib import Path

from brokers.engine.partitions.log_flusher import FLUSHED_LOGS_MAX
from brokers.engine.partitions.table import PartitionTable
from tests.unit.brokers.engine.partitions.test_table import NOW_MS, opened, produce

# No operator bounds: only topic settings apply.
UNBOUND = {"log.flush.interval.messages.min": "1", "log.flush.interval.ms.min": "0"}


def flushed(table: PartitionTable, now_ms: int) -> int:
    """Returns the number of logs that a round flushes."""
    batch = table.flusher.plan_due_flush(now_ms)
    if batch is None:
        return 0
    batch.run()
    batch.finish()
    return len(batch.jobs)


def test_a_log_is_flushed_after_flush_messages_records(tmp_path: Path) -> None:
    table = opened(tmp_path, defaults=UNBOUND)
    table.become_leader("t", 0, b"1" * 16, 0, {"flush.messages": "3"}, now_ms=NOW_MS)
    table.become_leader("u", 0, b"2" * 16, 0, {}, now_ms=NOW_MS)
    produce(table, "t", 0, times=2)
    produce(table, "u", 0, times=9)
    assert flushed(table, NOW_MS) == 0
    produce(table, "t", 0)
    assert flushed(table, NOW_MS) == 1
    assert flushed(table, NOW_MS + 10**9) == 0
    table.close()


def test_a_log_is_flushed_when_a_record_is_flush_ms_old(tmp_path: Path) -> None:
    table = opened(tmp_path, defaults=UNBOUND)
    table.become_leader("t", 0, b"1" * 16, 0, {"flush.ms": "5000"}, now_ms=NOW_MS)
    assert flushed(table, NOW_MS) == 0
    produce(table, "t", 0)
    assert [flushed(table, NOW_MS + after_ms) for after_ms in (1_000, 3_000, 5_999, 6_000)] == [0, 0, 0, 1]
    produce(table, "t", 0)
    assert [flushed(table, NOW_MS + after_ms) for after_ms in (7_000, 11_999, 12_000)] == [0, 0, 1]
    table.close()


def test_without_such_a_topic_no_log_is_checked(tmp_path: Path) -> None:
    table = opened(tmp_path, defaults=UNBOUND)
    table.become_leader("t", 0, b"1" * 16, 0, {}, now_ms=NOW_MS)
    produce(table, "t", 0, times=50)
    assert table.flusher.plan_due_flush(NOW_MS + 10**9) is None
    table.close()


def test_the_oldest_of_too_many_due_logs_are_flushed(tmp_path: Path) -> None:
    table = opened(tmp_path, defaults=UNBOUND)
    for number in range(FLUSHED_LOGS_MAX + 2):
        table.become_leader("t", number, b"1" * 16, 0, {"flush.ms": "1000"}, now_ms=NOW_MS)
    last = FLUSHED_LOGS_MAX + 1
    produce(table, "t", last)
    assert flushed(table, NOW_MS) == 0
    for number in range(last):
        produce(table, "t", number)
    assert flushed(table, NOW_MS + 500) == 0
    assert flushed(table, NOW_MS + 2_000) == FLUSHED_LOGS_MAX
    partition = table.get("t", last)
    assert partition is not None
    assert partition.log.recovery_point == 1
    assert flushed(table, NOW_MS + 3_000) == 2
    table.close()


def test_a_topic_flushes_no_more_often_than_the_operator_allows(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.become_leader("t", 0, b"1" * 16, 0, {"flush.ms": "0", "flush.messages": "1"}, now_ms=NOW_MS)
    produce(table, "t", 0)
    assert [flushed(table, NOW_MS + after_ms) for after_ms in (0, 29_999, 30_000)] == [0, 0, 1]
    table.close()
