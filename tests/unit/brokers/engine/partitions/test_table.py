"""The partition table over restarts, deletions, recreated topics, retention and flushes."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records.builder import Record, build_batch
from tests.testkit.small_segments import SMALL_SEGMENTS

NOW_MS = 1_700_000_000_000


def opened(*roots: Path, **more: object) -> PartitionTable:
    settings = StorageSettings(roots=roots, broker_id=1, cluster_id="c", defaults=SMALL_SEGMENTS)
    table = PartitionTable(replace(settings, **more))  # type: ignore[arg-type]
    table.recover(NOW_MS)
    return table


def produce(table: PartitionTable, topic: str, index: int, *, size: int = 10, times: int = 1) -> None:
    partition = table.get(topic, index)
    assert partition is not None
    for _ in range(times):
        data = memoryview(build_batch([Record(NOW_MS, None, b"x" * size)]))
        assert partition.append(data, NOW_MS, acks=1, produce_version=9).error_code == 0


def test_partitions_spread_over_the_roots_and_return_after_a_restart(tmp_path: Path) -> None:
    """LOG-3."""
    roots = (tmp_path / "a", tmp_path / "b")
    table = opened(*roots)
    for index in range(6):
        table.become_leader("ins-a.x", index, b"1" * 16, 0, {}, now_ms=NOW_MS)
    produce(table, "ins-a.x", 4, times=5)
    for root in roots:
        assert len([path for path in root.iterdir() if path.is_dir()]) == 3
    assert table.size_bytes() > 0
    table.close(broker_epoch=7)
    assert (roots[0] / ".kafka_cleanshutdown").read_text() == '{"version": 0, "brokerEpoch": 7}'
    table = opened(*roots)
    assert len(table) == 6
    partition = table.get("ins-a.x", 4)
    assert partition is not None
    assert not partition.is_leader
    assert (partition.log_end_offset, partition.high_watermark, partition.topic_id) == (5, 5, b"1" * 16)
    table.close()


def test_a_recreated_topic_starts_empty(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.become_leader("t", 0, b"1" * 16, 0, {}, now_ms=NOW_MS)
    produce(table, "t", 0)
    partition = table.become_leader("t", 0, b"2" * 16, 0, {}, now_ms=NOW_MS)
    assert (partition.log_end_offset, partition.topic_id) == (0, b"2" * 16)
    table.close()


def test_a_deleted_partition_is_removed_at_once_and_its_files_later(tmp_path: Path) -> None:
    """LOG-47."""
    table = opened(tmp_path, defaults={"file.delete.delay.ms": "5000"})
    partition = table.become_leader("t", 0, b"1" * 16, 0, {}, now_ms=NOW_MS)
    produce(table, "t", 0)
    reading = partition.read(0, 1_000, min_one_batch=True).slice
    assert reading is not None
    table.delete("t", 0, now_ms=NOW_MS)
    assert table.get("t", 0) is None
    (left,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert left.name.endswith("-delete")
    table.maintain(NOW_MS + 4_999)
    assert left.exists()
    table.maintain(NOW_MS + 5_000)
    assert not left.exists()
    assert len(reading.read()) == reading.length
    reading.release()
    table.close()


def test_retention_runs_with_maintenance(tmp_path: Path) -> None:
    table = opened(tmp_path)
    config = {"retention.bytes": "40000", "segment.bytes": "20000"}
    partition = table.become_leader("t", 0, b"1" * 16, 0, config, now_ms=NOW_MS)
    produce(table, "t", 0, size=5_000, times=30)
    table.maintain(NOW_MS)
    assert partition.log_start_offset > 0
    assert partition.size_bytes <= 60_000
    table.maintain(NOW_MS + 60_000)
    assert not list(tmp_path.glob("t-0/*.deleted"))
    table.update_config("t", {"retention.bytes": "0"})
    table.maintain(NOW_MS + 400_000)
    assert partition.log_start_offset == partition.log_end_offset == 30
    table.close()
    table = opened(tmp_path)
    again = table.get("t", 0)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset) == (30, 30)
    table.close()


def test_flushes_take_turns_and_move_the_checkpoint(tmp_path: Path) -> None:
    table = opened(tmp_path)
    for index in range(5):
        table.become_leader("t", index, b"1" * 16, 0, {}, now_ms=NOW_MS)
        produce(table, "t", index)
    for _ in range(3):
        batch = table.flusher.plan_flush(logs_max=2)
        batch.run()
        batch.finish()
    assert {partition.log.recovery_point for partition in table} == {1}
    assert not table.flusher.plan_flush().jobs
    assert "t 3 1\n" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert "t 3 1\n" in (tmp_path / "replication-offset-checkpoint").read_text()
    table.close()


def test_a_partition_deleted_under_a_running_flush_does_not_fail_the_disk(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.become_leader("t", 0, b"1" * 16, 0, {}, now_ms=NOW_MS)
    produce(table, "t", 0)
    batch = table.flusher.plan_flush()
    table.delete("t", 0, now_ms=NOW_MS)
    table.maintain(NOW_MS + 10**6)
    batch.run()
    batch.finish()
    assert not table.offline_directories
    assert len(table.files) == 0
    table.close()


def test_an_idle_partition_has_no_descriptor_and_few_files(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.become_leader("t", 0, b"1" * 16, 0, {}, now_ms=NOW_MS)
    assert len(table.files) == 0
    assert {path.name for path in (tmp_path / "t-0").iterdir()} == {"partition.metadata"}
    produce(table, "t", 0)
    assert len(table.files) == 1
    table.maintain(NOW_MS)
    table.maintain(NOW_MS)
    assert len(table.files) == 0
    produce(table, "t", 0)
    table.close()


def test_a_partition_that_is_always_in_use_keeps_no_index_of_its_closed_segments_in_memory(tmp_path: Path) -> None:
    """EFF-2: a log of terabytes under constant load has gigabytes of indexes."""
    table = opened(tmp_path)
    partition = table.become_leader("t", 0, b"1" * 16, 0, {"segment.bytes": "16384"}, now_ms=NOW_MS)
    for _ in range(4):
        produce(table, "t", 0, size=5_000, times=10)
        table.maintain(NOW_MS)
    log = partition.log
    assert log.active.file.fd >= 0
    assert len(log.segments) > 10
    older = [index for segment in log.segments[:5] for index in segment.indexes()]
    assert [index._entries for index in older] == [None] * 10
    reading = partition.read(1, 10_000, min_one_batch=True).slice
    assert reading is not None
    reading.release()
    table.close()


def test_a_log_of_records_without_timestamps_is_trusted_after_a_clean_stop(tmp_path: Path) -> None:
    """LOG-14: written by the oldest clients; a start does not read the whole log."""
    table = opened(tmp_path)
    partition = table.become_leader("t", 0, b"1" * 16, 0, {"segment.bytes": "16384"}, now_ms=NOW_MS)
    for _ in range(8):
        data = memoryview(build_batch([Record(-1, None, b"x" * 5_000)]))
        assert partition.append(data, NOW_MS, acks=1, produce_version=9).error_code == 0
    table.close()
    table = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c", defaults=SMALL_SEGMENTS))
    report = table.recover(NOW_MS)
    assert (report.damages, report.scanned_bytes) == ([], 0)
    table.close()


def test_snapshots_of_clean_stops_do_not_pile_up(tmp_path: Path) -> None:
    """LOG-39."""
    for _ in range(4):
        table = opened(tmp_path)
        table.become_leader("t", 0, b"1" * 16, 0, {"segment.bytes": "16384"}, now_ms=NOW_MS)
        produce(table, "t", 0, size=5_000, times=4)
        table.close()
    bases = {int(path.stem) for path in (tmp_path / "t-0").glob("*.log")}
    kept = {int(path.stem) for path in (tmp_path / "t-0").glob("*.snapshot")}
    assert bases == {0, 3, 6, 9, 12, 15}
    assert kept == {*bases - {0}, 16}


def test_becoming_the_leader_twice_changes_nothing(tmp_path: Path) -> None:
    table = opened(tmp_path)
    first = table.become_leader("t", 0, b"1" * 16, 4, {}, now_ms=NOW_MS)
    produce(table, "t", 0)
    again = table.become_leader("t", 0, b"1" * 16, 4, {"retention.ms": "5"}, now_ms=NOW_MS)
    assert again is first
    assert again.log.epochs.entries == [(4, 0)]
    assert again.config.log.retention.retention_ms == 5
    table.close()


def test_an_unwritable_root_is_refused_when_it_is_the_only_one(tmp_path: Path) -> None:
    from brokers.engine.partitions.table import NoUsableDirectory

    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(NoUsableDirectory):
        opened(file / "below")
    table = opened(file / "below", tmp_path / "good")
    assert list(table.offline_directories) == [file / "below"]
    table.become_leader("t", 0, b"1" * 16, 0, {}, now_ms=NOW_MS)
    table.close()


@pytest.mark.parametrize(("device", "flags"), [("/dev/full", os.O_WRONLY), ("/dev/null", os.O_RDONLY)])
def test_a_full_or_read_only_disk_takes_only_its_own_partitions(tmp_path: Path, device: str, flags: int) -> None:
    """LOG-3."""
    table = opened(tmp_path / "a", tmp_path / "b")
    for index in range(4):
        table.become_leader("t", index, b"1" * 16, 0, {}, now_ms=NOW_MS)
        produce(table, "t", index)
    broken = table.get("t", 0)
    assert broken is not None
    file = broken.log.active.file
    os.dup2(os.open(device, flags), file.open())

    data = memoryview(build_batch([Record(NOW_MS, None, b"x")]))
    assert broken.append(data, NOW_MS, acks=1, produce_version=9).error_code == 56

    assert [partition.offline for partition in table] == [partition.log.root == broken.log.root for partition in table]
    states = {state.path: state for state in table.directories()}
    assert states[broken.log.root].offline_reason
    assert {state.partitions for state in states.values()} == {2}
    for partition in table:
        if not partition.offline:
            produce(table, "t", partition.index)
    table.maintain(NOW_MS)
    batch = table.flusher.plan_flush()
    batch.run()
    batch.finish()
    table.close()
    # The working disk was stopped cleanly, the other one was no longer written to.
    assert {root.name for root in tmp_path.iterdir() if (root / ".kafka_cleanshutdown").exists()} == {
        root.name for root in states if root != broken.log.root
    }


def test_a_partition_that_is_created_when_a_disk_fails_is_created_on_the_next_one(tmp_path: Path) -> None:
    """LOG-3: nothing would retry, and the documents say that it is led here."""
    roots = tmp_path / "a", tmp_path / "b"
    table = opened(*roots)
    roots[0].rename(tmp_path / "gone")
    roots[0].write_text("")

    made = [table.become_leader("t", index, b"t" * 16, 0, {}, now_ms=0) for index in range(2)]

    assert list(table.offline_directories) == [roots[0]]
    assert [(partition.log.root, partition.is_leader, partition.offline) for partition in made] == [
        (roots[1], True, False)
    ] * 2


def test_a_known_partition_waits_for_its_disk(tmp_path: Path) -> None:
    roots = (tmp_path / "a", tmp_path / "b")
    table = opened(*roots)
    for index in range(2):
        table.become_leader("t", index, b"1" * 16, 0, {}, now_ms=NOW_MS, role=PartitionRole(is_known=True))
        produce(table, "t", index)
    held = {partition.index: partition.log.root for partition in table}
    table.close()
    roots[1].rename(tmp_path / "away")
    roots[1].write_text("no directory")

    table = opened(*roots)
    for index in range(2):
        table.become_leader("t", index, b"1" * 16, 1, {}, now_ms=NOW_MS, role=PartitionRole(is_known=True))
    states = [(partition.offline, partition.log_end_offset) for partition in sorted(table, key=lambda p: p.index)]
    assert states == [(root == roots[1], int(root == roots[0])) for _, root in sorted(held.items())]
    table.become_leader("t", 2, b"1" * 16, 0, {}, now_ms=NOW_MS)
    produce(table, "t", 2)
    table.close()

    roots[1].unlink()
    (tmp_path / "away").rename(roots[1])
    table = opened(*roots)
    assert {(partition.index, partition.log_end_offset) for partition in table} == {(0, 1), (1, 1), (2, 1)}
    table.close()
