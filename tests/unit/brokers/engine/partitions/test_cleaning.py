"""Cleaning of a table's logs: due and excluded logs, and checkpoints over restarts and recreated topics."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from brokers.engine.inspect import verify
from brokers.engine.inspect.directories import find
from brokers.engine.partitions.cleaning import CHECKPOINT, Cleaner, LogToClean
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.partitions.transactions import append_marker
from brokers.engine.partitions.verification import UNVERIFIED_OK
from brokers.engine.records.batch import HEADER_BYTES, TRANSACTIONAL
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.storage.compaction.job import Cleaned, CleaningFailed, Event, Failed, Fault, Finished
from brokers.engine.storage.compaction.pacing import Pacer
from brokers.engine.storage.compaction.run import Run
from brokers.engine.storage.compaction.settings import CleanerSettings
from tests.testkit.descriptors import exhausted_descriptors
from tests.testkit.small_segments import SMALL_SEGMENTS
from tests.unit.brokers.engine.partitions.test_table import NOW_MS, opened
from tests.unit.brokers.engine.storage.logs import read_all

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "16384"}


def _lead(table: PartitionTable, topic: str, topic_id: bytes = b"1" * 16, **config: str) -> Partition:
    wanted = {**COMPACT, **{key.replace("_", "."): value for key, value in config.items()}}
    return table.become_leader(topic, 0, topic_id, 0, wanted, now_ms=NOW_MS)


def _produce(partition: Partition, records: int, *, keys: int = 5, at_ms: int = NOW_MS) -> None:
    for number in range(records):
        record = Record(at_ms, b"%d" % (number % keys), b"x" * 1_000)
        data = memoryview(build_batch([record]))
        assert partition.append(data, at_ms, acks=1, produce_version=9).error_code == 0


def _do(cleaner: Cleaner, work: LogToClean, now_ms: int = NOW_MS) -> Finished:
    events = _prepare(cleaner, work)
    *groups, last = events
    for group in groups:
        assert isinstance(group, Cleaned)
        assert cleaner.swap_in(work, group, now_ms)
    assert isinstance(last, Finished)
    cleaner.on_finished(work, last)
    cleaner.checkpoint(work.partition.log.root).write()
    return last


def _prepare(cleaner: Cleaner, work: LogToClean) -> list[Event]:
    """Runs the steps before the first swap and returns the event of the run."""
    work.flush_log()
    cleaner.finish_flush(work)
    if work.is_first:
        cleaner.checkpoint(work.partition.log.root).write()
    events: list[Event] = []
    Run(work.job, events.append, Pacer(0.0, lambda: 0.0, lambda _: None)).run()
    return events


def _planned(table: PartitionTable) -> tuple[Cleaner, LogToClean]:
    cleaner = Cleaner(table, CleanerSettings())
    work = cleaner.plan(NOW_MS)
    assert work is not None
    return cleaner, work


def test_only_compacted_topics_are_cleaned_and_the_dirtiest_first(tmp_path: Path) -> None:
    """CMP-9, CMP-13."""
    table = opened(tmp_path)
    _produce(_lead(table, "deleted", cleanup_policy="delete"), 100)
    some, most = _lead(table, "some", cleanup_policy="compact,delete"), _lead(table, "most")
    _produce(some, 60)
    cleaner = Cleaner(table, CleanerSettings())
    first = cleaner.plan(NOW_MS)
    assert first is not None
    assert first.partition is some
    assert cleaner.plan(NOW_MS) is None, "never two on one log"
    before = some.size_bytes
    _do(cleaner, first)
    assert some.size_bytes < before / 2
    assert cleaner.plan(NOW_MS) is None, "nothing is dirty enough"
    _produce(some, 40, keys=1_000)
    _produce(most, 60)
    order = [cleaner.plan(NOW_MS), cleaner.plan(NOW_MS), cleaner.plan(NOW_MS)]
    assert [work.partition if work else None for work in order] == [most, some, None]
    table.close()


def test_the_compaction_lags_delay_or_force_cleaning(tmp_path: Path) -> None:
    """CMP-2, CMP-12, CMP-14."""
    table = opened(tmp_path)
    lagging = _lead(table, "lagging", min_compaction_lag_ms="60000")
    forced = _lead(table, "forced", max_compaction_lag_ms="60000", min_cleanable_dirty_ratio="1")
    for partition in (lagging, forced):
        _produce(partition, 40)
    cleaner = Cleaner(table, CleanerSettings())
    assert cleaner.plan(NOW_MS + 59_999) is None
    later = [cleaner.plan(NOW_MS + 60_001), cleaner.plan(NOW_MS + 60_001)]
    assert {work.partition.topic for work in later if work} == {"lagging", "forced"}
    table.close()


def test_a_checkpoint_outlives_a_restart_but_not_its_topic(tmp_path: Path) -> None:
    """CMP-11, CMP-27."""
    table = opened(tmp_path)
    _produce(_lead(table, "t"), 60)
    cleaner, work = _planned(table)
    end_offset = _do(cleaner, work).end_offset
    assert (tmp_path / CHECKPOINT).read_text() == f"0\n1\nt 0 {end_offset}\n"
    table.close()

    table = opened(tmp_path)
    partition = _lead(table, "t")
    cleaner = Cleaner(table, CleanerSettings())
    assert cleaner.plan(NOW_MS) is None
    _produce(partition, 60)
    work = cleaner.plan(NOW_MS)
    assert work is not None
    assert work.job.first_dirty == end_offset
    cleaner.abandon(work)

    _produce(_lead(table, "t", b"2" * 16), 60)
    work = cleaner.plan(NOW_MS)
    assert work is not None
    assert work.job.first_dirty == 0
    table.close()


def _cut(table: PartitionTable, partition: Partition, offset: int) -> None:
    """Simulates an election of a leader without the records from `offset` on; then this broker leads again."""
    config = dict(COMPACT)
    table.become_follower("t", 0, b"1" * 16, 1, config, now_ms=NOW_MS, role=PartitionRole((1, 2), (2,), 2))
    table.truncate(partition, offset, NOW_MS)
    table.become_leader("t", 0, b"1" * 16, 2, config, now_ms=NOW_MS)


@pytest.mark.parametrize("when", ["between two runs", "under a run"])
def test_records_written_after_a_truncation_are_cleaned(tmp_path: Path, when: str) -> None:
    """CMP-27: otherwise keys that were written twice there would stay twice."""
    table = opened(tmp_path)
    partition = _lead(table, "t")
    _produce(partition, 60)
    cleaner, work = _planned(table)
    if when == "under a run":
        *groups, last = _prepare(cleaner, work)
        assert all(isinstance(group, Cleaned) and cleaner.swap_in(work, group, NOW_MS) for group in groups)
        _cut(table, partition, 20)
        assert isinstance(last, Finished)
        cleaner.on_finished(work, last)
        assert cleaner.checkpoint(tmp_path).offsets["t", 0] <= 20
    else:
        assert _do(cleaner, work).end_offset > 20
        _cut(table, partition, 20)
        assert cleaner.roots_to_checkpoint == {tmp_path}
    _produce(partition, 60, keys=1_000)
    work = cleaner.plan(NOW_MS)
    assert work is not None
    assert work.job.first_dirty <= 20
    cleaner.abandon(work)
    table.close()


def test_a_checkpoint_past_the_log_end_at_start_stays_ignored_when_the_log_grows(tmp_path: Path) -> None:
    """CMP-11."""
    table = opened(tmp_path)
    _produce(_lead(table, "t"), 20)
    table.close()
    (tmp_path / CHECKPOINT).write_text("0\n1\nt 0 30\n")
    table = opened(tmp_path)
    cleaner = Cleaner(table, CleanerSettings())
    _produce(_lead(table, "t"), 40)
    work = cleaner.plan(NOW_MS)
    assert (cleaner.ignored_checkpoints, work is not None and work.job.first_dirty) == ([("t", 0)], 0)
    table.close()


def test_a_damaged_log_is_excluded_until_the_next_start(tmp_path: Path) -> None:
    """CMP-15."""
    table = opened(tmp_path)
    _produce(_lead(table, "t"), 60)
    cleaner, work = _planned(table)
    (Path(work.job.directory) / "00000000000000000000.log.cleaned").touch()
    assert cleaner.on_failed(work, Failed("a batch is damaged", Fault.LOG), NOW_MS) is None
    assert not list(Path(work.job.directory).glob("*.cleaned"))
    assert cleaner.plan(NOW_MS) is None
    assert table.cleaned.uncleanable == 1
    assert Cleaner(table, CleanerSettings()).plan(NOW_MS) is not None
    table.close()


def test_a_log_that_is_truncated_during_a_run_is_cleaned_later(tmp_path: Path) -> None:
    """CMP-15, REP-15: segments that the run read ahead are missing, and no file is damaged."""
    table = opened(tmp_path)
    partition = _lead(table, "t")
    _produce(partition, 20)
    data = build_batch(
        [Record(NOW_MS, b"1", b"")], attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0
    )
    assert (
        partition.append(
            memoryview(data), NOW_MS, acks=1, produce_version=9, verification_token=UNVERIFIED_OK
        ).error_code
        == 0
    )
    partition.log.roll(NOW_MS)
    assert append_marker(partition, 7, 0, 0, True, NOW_MS).error_code == 0
    _produce(partition, 10)
    cleaner, work = _planned(table)
    table.truncate(partition, 24, NOW_MS)
    with pytest.raises(CleaningFailed) as failure:
        _prepare(cleaner, work)
    assert cleaner.on_failed(work, Failed(str(failure.value), Fault.LOG), NOW_MS) is None
    again = cleaner.plan(NOW_MS)
    assert again is not None
    _do(cleaner, again)
    table.close()


def test_the_delay_after_temporary_failures_doubles_up_to_a_maximum(tmp_path: Path) -> None:
    table = opened(tmp_path)
    _produce(_lead(table, "t"), 60)
    cleaner = Cleaner(table, CleanerSettings(backoff_ms=15_000))
    now_ms, waits = NOW_MS, []
    for _ in range(9):
        work = cleaner.plan(now_ms)
        assert work is not None
        wait_ms = cleaner.on_failed(work, Failed("killed", Fault.TRANSIENT), now_ms)
        assert wait_ms is not None
        assert cleaner.plan(now_ms + wait_ms - 1) is None
        waits.append(wait_ms)
        now_ms += wait_ms
    assert waits == [15_000, 30_000, 60_000, 120_000, 240_000, 480_000, 600_000, 600_000, 600_000]
    work = cleaner.plan(NOW_MS - 1)
    assert work is not None, "a clock that was set back makes no log wait longer"
    _do(cleaner, work)
    assert cleaner.retries == {}
    _produce(_lead(table, "t"), 60)
    work = cleaner.plan(now_ms)
    assert work is not None
    assert cleaner.on_failed(work, Failed("killed", Fault.TRANSIENT), now_ms) == 15_000
    table.close()


def test_a_broker_that_dies_between_swap_and_checkpoint_loses_nothing(tmp_path: Path) -> None:
    """Holes above the recovery point on disk come from compaction, not from a power cut: CMP-26, CMP-27, LOG-36."""
    table = opened(tmp_path)
    partition = _lead(table, "t")
    _produce(partition, 4)
    flush = table.flusher.plan_flush()
    flush.run()
    flush.finish()
    _produce(partition, 56, keys=4)
    cleaner, work = _planned(table)
    for group in _prepare(cleaner, work)[:-1]:
        assert isinstance(group, Cleaned)
        assert cleaner.swap_in(work, group, NOW_MS)
    left = read_all(partition.log)
    assert len(left) < 30
    for root in table._roots:
        root.unlock()

    again = opened(tmp_path)
    partition = _lead(again, "t")
    assert read_all(partition.log) == left
    assert partition.log.log_end_offset == 60
    work = Cleaner(again, CleanerSettings()).plan(NOW_MS)
    assert work is not None
    assert (work.job.first_dirty, work.is_first) == (0, False)
    again.close()


def test_a_recreated_log_does_not_wait_for_the_old_one(tmp_path: Path) -> None:
    table = opened(tmp_path)
    _produce(_lead(table, "t"), 60)
    cleaner, work = _planned(table)
    cleaner.on_failed(work, Failed("no room", Fault.TRANSIENT), NOW_MS)
    _produce(_lead(table, "t", b"2" * 16), 60)
    assert cleaner.plan(NOW_MS) is not None
    assert table.cleaned.waiting == 0
    table.close()


def test_an_error_in_the_swap_takes_the_directory_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LOG-3: the next start finishes or discards it (LOG-35)."""
    table = opened(tmp_path)
    partition = _lead(table, "t")
    _produce(partition, 60)
    cleaner, work = _planned(table)
    work.flush_log()
    cleaner.finish_flush(work)
    events: list[Event] = []
    Run(work.job, events.append, Pacer(0.0, lambda: 0.0, lambda _: None)).run()
    assert isinstance(events[0], Cleaned)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", full)
        assert not cleaner.swap_in(work, events[0], NOW_MS)
    assert partition.offline
    assert list(table.offline_directories) == [tmp_path]
    cleaner.abandon(work)
    assert cleaner.plan(NOW_MS) is None
    table.close()
    again = opened(tmp_path)
    assert len(_lead(again, "t").log.segments) == len(partition.log.segments)
    again.close()


def test_a_log_is_cleaned_later_if_no_descriptor_is_left(tmp_path: Path) -> None:
    table = opened(tmp_path)
    _produce(_lead(table, "t"), 60)
    cleaner = Cleaner(table, CleanerSettings())
    for _ in range(2):
        table.files.close_idle()
    with exhausted_descriptors():
        assert cleaner.plan(NOW_MS) is None
    assert not table.offline_directories
    assert table.cleaned.waiting == 1
    assert cleaner.plan(NOW_MS + 600_000) is not None
    table.close()


def test_nothing_is_swapped_into_a_log_that_was_deleted(tmp_path: Path) -> None:
    """CMP-30."""
    table = opened(tmp_path)
    _produce(_lead(table, "t"), 60)
    cleaner, work = _planned(table)
    events: list[Event] = []
    Run(work.job, events.append, Pacer(0.0, lambda: 0.0, lambda _: None)).run()
    cleaner.finish_flush(work)
    table.delete("t", 0, now_ms=NOW_MS)
    assert isinstance(events[0], Cleaned)
    assert not cleaner.swap_in(work, events[0], NOW_MS)
    cleaner.abandon(work)
    table.close()


def test_a_run_ends_when_the_topic_is_no_longer_compacted(tmp_path: Path) -> None:
    """CMP-30: from then on the tenant requires every record to be kept, even if a run is unfinished."""
    table = opened(tmp_path)
    partition = _lead(table, "t")
    _produce(partition, 60)
    cleaner, work = _planned(table)
    group = _prepare(cleaner, work)[0]
    assert isinstance(group, Cleaned)
    table.update_config("t", {**COMPACT, "cleanup.policy": "delete"})
    assert not cleaner.swap_in(work, group, NOW_MS)
    cleaner.abandon(work)
    assert [offset for offset, _ in read_all(partition.log)] == list(range(60))
    table.update_config("t", COMPACT)
    again = cleaner.plan(NOW_MS)
    assert again is not None
    _do(cleaner, again)
    assert partition.log.size_bytes < 60_000
    table.close()


def test_a_segment_with_only_a_producers_last_sequence_is_no_damage(tmp_path: Path) -> None:
    """CMP-23: neither for the next clean start nor for `log verify`."""
    table = opened(tmp_path)
    partition = _lead(table, "t")
    for sequence in range(17):
        record = Record(NOW_MS + sequence, b"0", b"x" * 1_000)
        data = memoryview(build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence))
        assert partition.append(data, NOW_MS, acks=1, produce_version=9).error_code == 0
    _produce(partition, 60, keys=1)
    cleaner, work = _planned(table)
    _do(cleaner, work)
    assert [held.size_bytes for held in partition.log.segments].count(HEADER_BYTES) == 1
    table.maintain(NOW_MS + 60_000)
    table.close()
    assert verify.run(find(tmp_path), lambda _: None).faults == 0
    table = PartitionTable(StorageSettings(roots=(tmp_path,), broker_id=1, cluster_id="c", defaults=SMALL_SEGMENTS))
    assert table.recover(NOW_MS).damages == []
    table.close()


def test_replaced_files_are_unlinked_after_the_delay(tmp_path: Path) -> None:
    table = opened(tmp_path)
    partition = _lead(table, "t")
    _produce(partition, 60)
    cleaner, work = _planned(table)
    _do(cleaner, work)
    assert list(Path(work.job.directory).glob("*.log.deleted"))
    table.maintain(NOW_MS + 60_000)
    assert not list(Path(work.job.directory).glob("*.deleted"))
    assert len(list(Path(work.job.directory).glob("*.snapshot"))) <= len(partition.log.segments)
    table.close()
