"""Results of an acks=-1 produce after changes of its partitions during the wait (REP-12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brokers.engine.handlers.produce.delayed_produce import error_of
from brokers.engine.partitions.delayed_operations import DelayedReplication
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.protocol.errors import ErrorCode
from brokers.engine.records.builder import Record, build_batch

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[PartitionTable]:
    table = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c"))
    table.recover(NOW_MS)
    yield table
    table.close()


def lead(table: PartitionTable, index: int, leader_epoch: int = 0, **config: str) -> Partition:
    """Returns a partition with the followers 2 and 3, all in sync."""
    return table.become_leader(
        "t", index, TOPIC_ID, leader_epoch, config, now_ms=NOW_MS, role=PartitionRole((1, 2, 3), (1, 2, 3))
    )


def append(partition: Partition) -> tuple[Partition, int]:
    batch = memoryview(build_batch([Record(NOW_MS, None, b"v")]))
    result = partition.append(batch, NOW_MS, acks=-1, produce_version=9)
    assert result.error_code == 0
    return partition, result.last_offset


def copied(partition: Partition) -> None:
    """Lets both followers catch up."""
    for replica in (2, 3):
        partition.update_follower_fetch_state(replica, 1, partition.log_end_offset, 0, NOW_MS)


def sent(meanwhile: Callable[[], object], *appended: tuple[Partition, int], in_time: bool = True) -> dict[int, int]:
    """Returns the error codes by partition index, after `meanwhile` ran during the wait."""
    woken: list[int] = []
    wait = DelayedReplication(lambda: woken.append(1))
    for partition, last_offset in appended:
        wait.watch(partition, last_offset)
    meanwhile()
    assert len(woken) == in_time
    wait.expire()
    assert len(woken) == 1
    return {partition.index: error_of(wait, partition, last_offset) for partition, last_offset in appended}


def test_a_record_on_every_replica_is_acknowledged(table: PartitionTable) -> None:
    first, second = lead(table, 0), lead(table, 1)
    appended = append(first), append(second)
    assert sent(lambda: (copied(second), copied(first)), *appended) == {0: 0, 1: 0}


def test_a_partition_not_copied_in_time_times_out_alone(table: PartitionTable) -> None:
    first, second = lead(table, 0), lead(table, 1)
    appended = append(first), append(second)
    codes = sent(lambda: copied(first), *appended, in_time=False)
    assert codes == {0: 0, 1: ErrorCode.REQUEST_TIMED_OUT}


def test_a_leadership_lost_and_won_again_acknowledges_nothing_of_before(table: PartitionTable) -> None:
    """Another broker led in between, and records appended here may have been truncated."""
    first, second = lead(table, 0), lead(table, 1)
    appended = append(first), append(second)

    def fail_over_and_back() -> None:
        table.resign("t", 0)
        copied(lead(table, 0, leader_epoch=2))
        copied(second)

    assert sent(fail_over_and_back, *appended) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER, 1: 0}


def test_too_few_in_sync_when_it_is_committed_is_said(table: PartitionTable) -> None:
    config = {"min.insync.replicas": "3"}
    partition = lead(table, 0, **config)
    appended = append(partition)

    def shrink() -> None:
        table.become_leader("t", 0, TOPIC_ID, 0, config, now_ms=NOW_MS, role=PartitionRole((1, 2, 3), (1, 2)))
        partition.update_follower_fetch_state(2, 1, partition.log_end_offset, 0, NOW_MS)

    assert sent(shrink, appended) == {0: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
