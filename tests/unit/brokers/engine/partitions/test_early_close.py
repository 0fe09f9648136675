"""A stopping broker closes logs that it no longer leads while it still serves requests (REP-34); no record is lost."""

from __future__ import annotations

from pathlib import Path

from brokers.engine.partitions.following import append_fetched
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.reports import RecoveryReport
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.storage.flushing import is_durable
from tests.unit.brokers.engine.partitions.test_table import NOW_MS, opened

TOPIC_ID = b"1" * 16
EPOCH = 3


def follow(table: PartitionTable, index: int, count: int) -> Partition:
    partition = table.become_follower(
        "t", index, TOPIC_ID, EPOCH, {}, now_ms=NOW_MS, role=PartitionRole((1, 2), (2,), 2)
    )
    for offset in range(count):
        data = build_batch([Record(NOW_MS, b"k", b"v")])
        layout.set_offset_and_epoch(data, offset, EPOCH)
        append_fetched(partition, memoryview(data), offset + 1, 0, NOW_MS)
    return partition


def lead(table: PartitionTable, index: int, leader_epoch: int = EPOCH) -> Partition:
    return table.become_leader("t", index, TOPIC_ID, leader_epoch, {}, now_ms=NOW_MS)


def append(partition: Partition) -> None:
    data = memoryview(build_batch([Record(NOW_MS, b"k", b"v")]))
    assert partition.append(data, NOW_MS, acks=1, produce_version=9).error_code == 0


def closed_early(table: PartitionTable, logs_max: int = 2) -> int:
    """Returns the number of rounds."""
    rounds = 0
    while (batch := table.flusher.plan_early_close(logs_max=logs_max)) is not None:
        batch.run()
        batch.finish()
        rounds += 1
    return rounds


def started(top: Path) -> tuple[PartitionTable, RecoveryReport]:
    table = PartitionTable(StorageSettings(roots=(top,), broker_id=1, cluster_id="c"))
    return table, table.recover(NOW_MS)


def test_followed_logs_are_flushed_early_and_led_logs_are_not(tmp_path: Path) -> None:
    table = opened(tmp_path)
    followed = [follow(table, index, 3) for index in range(5)]
    led = lead(table, 9)
    append(led)

    assert closed_early(table) == 3
    assert all(is_durable(partition.log) for partition in followed)
    assert not is_durable(led.log)

    append(led)
    table.close()
    again, report = started(tmp_path)
    assert report.clean
    in_order = sorted(again, key=lambda partition: partition.index)
    assert [partition.log_end_offset for partition in in_order] == [3, 3, 3, 3, 3, 2]
    again.close()


def test_a_log_that_is_written_to_after_it_was_closed_is_closed_once_more(tmp_path: Path) -> None:
    """Its leader stopped too, and this broker was the last that could lead."""
    table = opened(tmp_path)
    follow(table, 0, 3)
    assert closed_early(table) == 1
    append(lead(table, 0, EPOCH + 1))

    table.close()

    again, report = started(tmp_path)
    result = again.get("t", 0)
    assert result is not None
    assert report.clean
    assert (result.log_end_offset, result.log.epochs.latest) == (4, EPOCH + 1)
    assert result.log.recovery_point == 4
    assert result.log.segments[-1].max_timestamp == NOW_MS
    again.close()


def test_a_kill_between_the_two_leaves_all_that_was_there(tmp_path: Path) -> None:
    table = opened(tmp_path)
    follow(table, 0, 3)
    closed_early(table)
    for root in table._roots:
        root.unlock()

    again, report = started(tmp_path)

    result = again.get("t", 0)
    assert result is not None
    assert not report.clean
    assert result.log_end_offset == 3
    again.close()
