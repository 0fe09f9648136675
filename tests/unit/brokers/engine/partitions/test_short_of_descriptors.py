"""A shortage of descriptors or memory: clients get a retriable error, and no disk goes offline."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest

from brokers.engine.partitions.deletion import delete_before
from brokers.engine.partitions.following import append_fetched
from brokers.engine.partitions.listing import list_offsets
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records import batch as layout
from brokers.engine.records import error_codes
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.storage.files import StorageFailed
from tests.testkit.descriptors import RefusedOpens, exhausted_descriptors
from tests.unit.brokers.engine.partitions.transactional import NOW_MS, TOPIC_ID
from tests.unit.brokers.engine.storage.logs import read_all

CONFIG = {"segment.bytes": "1048576", "retention.ms": "-1", "file.delete.delay.ms": "0", "index.interval.bytes": "100"}


def produce(partition: Partition) -> int:
    batch = build_batch([Record(NOW_MS, b"k", b"x" * 80), Record(NOW_MS, b"k", b"y")])
    return partition.append(memoryview(batch), NOW_MS, acks=1, produce_version=9).error_code


def idle(table: PartitionTable) -> None:
    """Closes every file, as after a time without requests."""
    table.files.close_idle()
    table.files.close_idle()
    assert not len(table.files)


def test_a_produce_and_a_fetch_without_a_descriptor_are_retriable(table: PartitionTable, partition: Partition) -> None:
    assert produce(partition) == 0
    idle(table)
    with exhausted_descriptors():
        assert produce(partition) == error_codes.KAFKA_STORAGE_ERROR
        assert partition.read(0, 1_000, min_one_batch=True).error_code == error_codes.KAFKA_STORAGE_ERROR
        result = list_offsets(partition, NOW_MS, isolation=0, version=7)
        assert result.error_code == error_codes.KAFKA_STORAGE_ERROR
    assert not table.offline_directories
    assert not partition.offline
    assert table.files.shortages == 3
    assert "Too many open files" in table.files.shortage
    assert produce(partition) == 0
    found_again = partition.read(0, 10_000, min_one_batch=True)
    assert found_again.slice is not None
    found_again.slice.release()
    assert partition.log_end_offset == 4


def test_idle_files_are_closed_when_descriptors_are_needed(table: PartitionTable, partition: Partition) -> None:
    other = table.become_leader("ins-a.orders", 1, TOPIC_ID, 3, {}, now_ms=NOW_MS)
    assert produce(partition) == 0
    idle(table)
    below = os.open(os.devnull, os.O_RDONLY)
    assert produce(other) == 0
    os.close(below)  # closes what an earlier test left open, so that the files of `other` have higher descriptors
    with exhausted_descriptors():
        assert produce(partition) == 0
        assert produce(other) == 0
    assert not table.files.shortages


def scripted(table: PartitionTable, acked: list[int]) -> None:
    """Runs nearly every operation of a broker on a log; a refused one is repeated until it succeeds."""
    partition = insist(lambda: table.become_leader("t", 0, TOPIC_ID, 1, CONFIG, now_ms=NOW_MS))
    for lap in range(2):
        for _ in range(4):
            while code := produce(partition):
                assert code == error_codes.KAFKA_STORAGE_ERROR
            acked.append(partition.log_end_offset)
        partition.check()
        insist(lambda: partition.log.roll(NOW_MS))
        flush(table)
        idle(table)
        while delete_before(partition, 3 + 8 * lap).error_code:
            partition.check()
        for _ in range(3):
            batch = table.flusher.plan_start_offsets([partition.log.root])
            batch.run()
            batch.finish()
        watermarks = table.flusher.plan_high_watermarks()
        if watermarks is not None:
            watermarks.run()
            watermarks.finish()
        table.maintain(NOW_MS + lap * 1_000_000)
        partition.check()
    insist(lambda: table.become_leader("t", 0, TOPIC_ID, 4, CONFIG, now_ms=NOW_MS))
    while produce(partition):
        partition.check()
    acked.append(partition.log_end_offset)
    table.become_follower("t", 0, TOPIC_ID, 5, CONFIG, now_ms=NOW_MS, role=PartitionRole((1, 2), (1, 2), 2))
    end_offset = partition.log_end_offset - 1
    insist(lambda: table.truncate(partition, end_offset, NOW_MS))
    acked.pop()
    partition.check()
    follow(partition, acked)
    flush(table)
    flush(table)


def flush(table: PartitionTable) -> None:
    batch = table.flusher.plan_flush()
    batch.run()
    batch.finish()


def follow(partition: Partition, acked: list[int]) -> None:
    """Appends two batches of a leader, each of another epoch."""
    for epoch in (4, 5):
        batch = build_batch([Record(NOW_MS, b"k", b"x" * 80), Record(NOW_MS, b"k", b"y")])
        layout.set_offset_and_epoch(batch, partition.log_end_offset, epoch)
        wanted = partition.log_end_offset + 2
        while partition.log_end_offset < wanted:
            with contextlib.suppress(StorageFailed):
                append_fetched(partition, memoryview(batch), wanted, 0, NOW_MS)
            partition.check()
        acked.append(partition.log_end_offset)


def insist(work):  # type: ignore[no-untyped-def]
    while True:
        try:
            return work()
        except StorageFailed as failure:
            assert failure.is_transient


@pytest.mark.parametrize(("code", "count"), [(errno.EMFILE, 1), (errno.ENFILE, 2), (errno.ENOMEM, 1)])
def test_a_shortage_at_any_moment_takes_no_disk_offline_and_loses_no_record(
    tmp_path: Path, code: int, count: int
) -> None:
    step = 0
    while True:
        root = tmp_path / str(step)
        table = PartitionTable(StorageSettings(roots=(root,), broker_id=1, cluster_id="c"))
        table.recover(NOW_MS)
        acked: list[int] = []
        refused = RefusedOpens(step, count, code)
        with refused.at_work():
            scripted(table, acked)
        assert not table.offline_directories, f"{code} at attempt {step} to open a file gave the disk up"
        table.close()
        again = PartitionTable(StorageSettings(roots=(root,), broker_id=1, cluster_id="c"))
        report = again.recover(NOW_MS)
        assert report.clean, f"at {step}"
        assert not report.damages, f"at {step}: {report.damages}"
        partition = again.get("t", 0)
        assert partition is not None
        assert partition.log_end_offset == acked[-1], f"at {step}"
        assert [start for _, start in partition.log.epochs.entries] == sorted(
            {start for _, start in partition.log.epochs.entries}
        )
        assert partition.log.epochs.latest == 5
        assert partition.log_start_offset == 11
        again.close()
        if not refused.was_needed:
            break
        step += 1
    assert step > 30


@pytest.mark.parametrize("is_cut", [True, False])
def test_half_a_batch_stays_only_if_no_batch_follows_it(
    table: PartitionTable, partition: Partition, monkeypatch: pytest.MonkeyPatch, is_cut: bool
) -> None:
    """Otherwise the next batch would be written behind it."""
    assert produce(partition) == 0
    write = os.write

    def short(fd: int, data: bytes) -> int:
        if len(data) > 20:
            return write(fd, bytes(data)[:20])
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    def refused(*_: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", short)
        if not is_cut:
            patched.setattr(os, "ftruncate", refused)
        assert produce(partition) == error_codes.KAFKA_STORAGE_ERROR
    assert partition.offline != is_cut
    if is_cut:
        assert produce(partition) == 0
        assert [offset for offset, _ in read_all(partition.log)] == [0, 1, 2, 3]


def test_a_log_that_begins_within_a_batch_is_not_left_half_begun(tmp_path: Path) -> None:
    """LOG-46: the batch in which the leader's log starts begins below the follower's log start."""
    batch = build_batch([Record(NOW_MS, b"k", b"%d" % at) for at in range(5)])
    layout.set_offset_and_epoch(batch, 3, 1)
    step = 0
    while True:
        table = PartitionTable(StorageSettings(roots=(tmp_path / str(step),), broker_id=1, cluster_id="c"))
        table.recover(NOW_MS)
        partition = table.become_follower(
            "t", 0, TOPIC_ID, 1, CONFIG, now_ms=NOW_MS, role=PartitionRole((1, 2), (1, 2), 2)
        )
        table.truncate_fully_and_start_at(partition, 5, NOW_MS)
        idle(table)
        refused = RefusedOpens(step, 1, errno.EMFILE)
        with refused.at_work():
            for _ in range(3):
                if partition.log_end_offset < 8:
                    with contextlib.suppress(StorageFailed):
                        append_fetched(partition, memoryview(batch), 8, 5, NOW_MS)
                partition.check()
        assert not table.offline_directories, f"at {step}"
        log = partition.log
        assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (5, 8, 1), f"at {step}"
        table.close()
        if not refused.was_needed:
            break
        step += 1
    assert step
