"""Topic settings that change while a log is open apply at once (LOG-16, CMP-2, CMP-12 to CMP-14, CMP-20)."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers.engine.partitions.cleaning import Cleaner, LogToClean
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.partitions.topic_config import INDEX_BYTES_MIN
from brokers.engine.records import batch as layout
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.storage.compaction.job import Cleaned, Event, Finished
from brokers.engine.storage.compaction.pacing import Pacer
from brokers.engine.storage.compaction.run import Run
from brokers.engine.storage.compaction.settings import CleanerSettings
from brokers.engine.storage.indexes import OFFSET_ENTRY
from tests.unit.brokers.engine.partitions.test_table import NOW_MS, opened

TOPIC, TOPIC_ID = "ins-a.orders", b"1" * 16
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "16384"}


def lead(table: PartitionTable, config: dict[str, str]) -> Partition:
    return table.become_leader(TOPIC, 0, TOPIC_ID, 0, config, now_ms=NOW_MS)


def produce(partition: Partition, key: bytes, value: bytes | None, at_ms: int = NOW_MS, times: int = 1) -> None:
    for _ in range(times):
        data = memoryview(build_batch([Record(at_ms, key, value)]))
        assert partition.append(data, at_ms, acks=1, produce_version=9).error_code == 0


def run(cleaner: Cleaner, work: LogToClean, now_ms: int) -> None:
    work.flush_log()
    cleaner.finish_flush(work)
    events: list[Event] = []
    Run(work.job, events.append, Pacer(0.0, lambda: 0.0, lambda _: None)).run()
    for event in events:
        if isinstance(event, Cleaned):
            assert cleaner.swap_in(work, event, now_ms)
        elif isinstance(event, Finished):
            cleaner.on_finished(work, event)


def is_due(table: PartitionTable, cleaner: Cleaner, now_ms: int, **config: str) -> bool:
    """Returns True if the log would be cleaned with these settings, which stay set."""
    table.update_config(TOPIC, COMPACT | {key.replace("_", "."): value for key, value in config.items()})
    work = cleaner.plan(now_ms)
    if work is not None:
        cleaner.abandon(work)
    return work is not None


def test_a_segment_rolls_when_its_index_reaches_the_current_maximum(tmp_path: Path) -> None:
    """segment.index.bytes, raised or lowered; a value below the minimum counts as the minimum."""
    table = opened(tmp_path)
    every_batch = {"index.interval.bytes": "0"}
    partition = lead(table, every_batch)
    entries = INDEX_BYTES_MIN // OFFSET_ENTRY.size
    produce(partition, b"k", b"v", times=entries + 10)
    assert len(partition.log.segments) == 1

    table.update_config(TOPIC, every_batch | {"segment.index.bytes": "16"})
    produce(partition, b"k", b"v", times=2)
    assert len(partition.log.segments) == 2
    produce(partition, b"k", b"v", times=entries // 2)
    assert len(partition.log.segments) == 2

    table.update_config(TOPIC, every_batch | {"segment.index.bytes": str(4 * INDEX_BYTES_MIN)})
    produce(partition, b"k", b"v", times=entries)
    assert len(partition.log.segments) == 2
    table.close()


def test_the_minimum_lag_delays_cleaning_once_it_is_set(tmp_path: Path) -> None:
    """min.compaction.lag.ms."""
    table = opened(tmp_path)
    partition = lead(table, COMPACT)
    produce(partition, b"k", b"x" * 1_000, times=40)
    cleaner = Cleaner(table, CleanerSettings())
    now_ms = NOW_MS + MINUTE_MS

    assert is_due(table, cleaner, now_ms)
    assert not is_due(table, cleaner, now_ms, min_compaction_lag_ms=str(HOUR_MS))
    assert is_due(table, cleaner, now_ms + HOUR_MS, min_compaction_lag_ms=str(HOUR_MS))
    assert is_due(table, cleaner, now_ms, min_compaction_lag_ms=str(MINUTE_MS))
    table.close()


def test_the_maximum_lag_forces_cleaning_and_rolls_the_active_segment(tmp_path: Path) -> None:
    """max.compaction.lag.ms: records in the active segment are cleaned in time too."""
    table = opened(tmp_path)
    partition = lead(table, COMPACT | {"min.cleanable.dirty.ratio": "1"})
    produce(partition, b"k", b"x" * 1_000, times=5)
    cleaner = Cleaner(table, CleanerSettings())
    later_ms = NOW_MS + MINUTE_MS + 1
    produce(partition, b"k", b"v", later_ms)
    assert len(partition.log.segments) == 1

    assert not is_due(table, cleaner, later_ms, min_cleanable_dirty_ratio="1", max_compaction_lag_ms=str(MINUTE_MS))
    produce(partition, b"k", b"v", later_ms)
    assert len(partition.log.segments) == 2
    forced = {"min_cleanable_dirty_ratio": "1", "max_compaction_lag_ms": str(MINUTE_MS)}
    assert is_due(table, cleaner, later_ms, **forced)
    assert not is_due(table, cleaner, NOW_MS + MINUTE_MS, **forced)
    assert not is_due(table, cleaner, later_ms, min_cleanable_dirty_ratio="1")
    table.close()


def test_the_current_minimum_dirty_share_applies(tmp_path: Path) -> None:
    """min.cleanable.dirty.ratio, with a log that is half clean."""
    table = opened(tmp_path)
    partition = lead(table, COMPACT)
    cleaner = Cleaner(table, CleanerSettings())
    for key in range(30):
        produce(partition, b"%d" % key, b"x" * 1_000)
    partition.log.roll(NOW_MS)
    work = cleaner.plan(NOW_MS)
    assert work is not None
    run(cleaner, work, NOW_MS)
    for key in range(30):
        produce(partition, b"%d" % key, b"y" * 1_000)
    partition.log.roll(NOW_MS)

    assert not is_due(table, cleaner, NOW_MS, min_cleanable_dirty_ratio="0.6")
    assert is_due(table, cleaner, NOW_MS, min_cleanable_dirty_ratio="0.4")
    assert not is_due(table, cleaner, NOW_MS, min_cleanable_dirty_ratio="0.5")
    table.close()


@pytest.mark.parametrize("retention_ms", [0, HOUR_MS])
def test_a_tombstone_stays_for_the_retention_set_when_its_time_begins(tmp_path: Path, retention_ms: int) -> None:
    """delete.retention.ms; it was one day when the topic was created."""
    table = opened(tmp_path)
    partition = lead(table, COMPACT | {"min.cleanable.dirty.ratio": "0"})
    produce(partition, b"k", b"v")
    produce(partition, b"k", None)
    partition.log.roll(NOW_MS)
    cleaner = Cleaner(table, CleanerSettings())
    table.update_config(TOPIC, COMPACT | {"min.cleanable.dirty.ratio": "0", "delete.retention.ms": str(retention_ms)})

    work = cleaner.plan(NOW_MS)
    assert work is not None
    run(cleaner, work, NOW_MS)
    ((_, marker),) = partition.log.segments[0].headers(0)
    assert marker.attributes & layout.DELETE_HORIZON
    assert marker.base_timestamp == NOW_MS + retention_ms

    for now_ms, left in ((NOW_MS + retention_ms - 1, 1), (NOW_MS + retention_ms, 0)):
        produce(partition, b"other", b"v")
        partition.log.roll(NOW_MS)
        work = cleaner.plan(now_ms)
        assert work is not None
        run(cleaner, work, now_ms)
        offsets = [header.base_offset for segment in partition.log.segments for _, header in segment.headers(0)]
        assert offsets.count(1) == left
    table.close()


def test_files_grow_as_they_are_written(tmp_path: Path) -> None:
    """preallocate: the only value that may be set is the one that applies (decision 53)."""
    table = opened(tmp_path)
    partition = lead(table, {"segment.bytes": str(1 << 30)})
    table.update_config(TOPIC, {"segment.bytes": str(1 << 30), "preallocate": "false"})
    produce(partition, b"k", b"v")
    partition.log.roll(NOW_MS)
    produce(partition, b"k", b"v")

    files = [file.stat() for file in (tmp_path / f"{TOPIC}-0").iterdir()]
    assert sum(file.st_size for file in files) < 4_096
    assert sum(file.st_blocks for file in files) * 512 < 64 * 1024
    table.close()
