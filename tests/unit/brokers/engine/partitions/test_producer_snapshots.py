"""Producer state outlives the segments it was built from (LOG-13, LOG-39, IDE-10)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.producers import known_producers
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.storage.producer_state import SNAPSHOT_SUFFIX
from tests.unit.brokers.engine.partitions.transactional import NOW_MS, TOPIC_ID, end, write

TOPIC, PRODUCER, OTHER = "ins-a.orders", 6, 5
CONFIG = {"file.delete.delay.ms": "0"}


def opened(root: Path) -> PartitionTable:
    table = PartitionTable(StorageSettings(roots=(root,), broker_id=1, cluster_id="c"))
    table.recover(NOW_MS)
    return table


def led(table: PartitionTable, epoch: int) -> Partition:
    return table.become_leader(TOPIC, 0, TOPIC_ID, epoch, CONFIG, now_ms=NOW_MS)


def flush(table: PartitionTable) -> None:
    batch = table.flusher.plan_flush()
    batch.run()
    batch.finish()


def crash(table: PartitionTable) -> None:
    for held in table:
        for segment in held.log.segments:
            segment.file.close()
    for root in table._roots:
        root.unlock()


def snapshots(partition: Partition) -> list[Path]:
    return sorted(Path(partition.log.directory).glob(f"*{SNAPSHOT_SUFFIX}"))


def remembered(partition: Partition) -> dict[int, tuple[int, int]]:
    """Returns producer id -> its last sequence number and the first offset of its open transaction (-1: none)."""
    return {
        producer.producer_id: (producer.last_sequence, producer.transaction_first_offset)
        for producer in known_producers(partition)
    }


def whole(path: Path) -> None:
    pass


def gone(path: Path) -> None:
    path.unlink()


def noise(path: Path) -> None:
    path.write_bytes(b"\0" * 40)


@pytest.mark.parametrize("is_flushed", [True, False])
@pytest.mark.parametrize("harm", [whole, gone, noise])
def test_a_crash_behind_a_roll_leaves_a_snapshot_where_the_segment_begins(
    tmp_path: Path, harm: Callable[[Path], None], is_flushed: bool
) -> None:
    """Otherwise the producer would be forgotten once its segment is deleted and the log is truncated to the next
    base.
    """
    table = opened(tmp_path)
    partition = led(table, 1)
    assert end(partition, PRODUCER, committed=False).error_code == 0
    assert write(partition, PRODUCER, 0, b"a", b"b", b"c").error_code == 0
    partition.log.roll(NOW_MS)
    if is_flushed:
        flush(table)
    harm(snapshots(partition)[-1])
    crash(table)

    table = opened(tmp_path)
    partition = led(table, 2)
    assert remembered(partition) == {PRODUCER: (2, 1)}
    assert end(partition, PRODUCER, committed=True).error_code == 0
    partition.log.advance_start(partition.log_end_offset)
    table.maintain(NOW_MS)
    assert len(partition.log.segments) == 1
    assert write(partition, OTHER, 0).error_code == 0
    partition.become_follower(2, (1, 2), (1, 2), 2)
    table.truncate(partition, 5, NOW_MS)
    partition = led(table, 3)
    assert remembered(partition) == {PRODUCER: (2, -1)}
    assert write(partition, PRODUCER, 3).error_code == 0
    table.close()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the paths that were fsynced."""
    result: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        result.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    return result


def test_a_flush_makes_the_snapshots_durable_at_which_segments_begin(tmp_path: Path, synced: list[str]) -> None:
    """Also if all records were flushed before the roll; and only once."""
    table = opened(tmp_path)
    partition = led(table, 1)
    assert write(partition, PRODUCER, 0).error_code == 0
    flush(table)
    assert not snapshots(partition)
    partition.log.roll(NOW_MS)
    for expected in (1, 0):
        synced.clear()
        flush(table)
        assert synced.count(str(snapshots(partition)[-1])) == expected
    table.close()


def test_a_flush_makes_a_snapshot_durable_that_a_clean_stop_had_left_where_a_segment_then_begins(
    tmp_path: Path, synced: list[str]
) -> None:
    table = opened(tmp_path)
    assert write(led(table, 1), PRODUCER, 0).error_code == 0
    table.close()
    table = opened(tmp_path)
    partition = led(table, 2)
    (left,) = snapshots(partition)
    partition.log.roll(NOW_MS)
    for expected in (1, 0):
        synced.clear()
        flush(table)
        assert synced.count(str(left)) == expected
    table.close()
