"""Appends on a follower: batches exactly as the leader wrote them, and none that cannot follow the log (REP-7 to REP-9,
REP-17).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from brokers.engine.partitions.following import CorruptFetch, append_fetched
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records import batch as layout
from brokers.engine.records import error_codes
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.storage import checkpoints
from brokers.engine.storage.files import StorageFailed

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))
SEGMENT_BYTES = 300
EPOCH = 4


def opened(directory: Path) -> PartitionTable:
    table = PartitionTable(StorageSettings(roots=(directory,), broker_id=2, cluster_id="c"))
    table.recover(NOW_MS)
    return table


@pytest.fixture
def table(tmp_path: Path) -> Iterator[PartitionTable]:
    table = opened(tmp_path)
    yield table
    for partition in table:
        partition.check()
    table.close()


def follow(table: PartitionTable, *, in_small_segments: bool = False) -> Partition:
    partition = table.become_follower("t", 0, TOPIC_ID, EPOCH, {}, now_ms=NOW_MS, role=PartitionRole((1, 2), (1, 2), 1))
    if in_small_segments:
        partition.log.config = partition.log.config._replace(segment_bytes=SEGMENT_BYTES)
    return partition


def stored(base_offset: int, count: int = 1, epoch: int = EPOCH, **more: int) -> bytes:
    """Returns a batch as it is stored in a leader's log."""
    data = build_batch([Record(NOW_MS + at, None, b"v%d" % (base_offset + at)) for at in range(count)], **more)
    layout.set_offset_and_epoch(data, base_offset, epoch)
    return bytes(data)


def take(partition: Partition, *batches: bytes, high_watermark: int = 0, start: int = 0) -> int:
    return append_fetched(partition, memoryview(bytearray(b"".join(batches))), high_watermark, start, NOW_MS)


def bytes_of(partition: Partition) -> bytes:
    return b"".join(segment.batch_at(0, segment.size_bytes) for segment in partition.log.segments)


def test_batches_are_stored_unchanged(table: PartitionTable) -> None:
    partition = follow(table)
    batches = [stored(0, 2, epoch=1), stored(2, epoch=3), stored(7, 3)]  # the records between were compacted away

    assert take(partition, *batches, high_watermark=3) == sum(map(len, batches))

    assert bytes_of(partition) == b"".join(batches)
    assert (partition.log_end_offset, partition.high_watermark) == (10, 3)
    assert partition.log.epochs.entries == [(1, 0), (3, 2), (EPOCH, 7)]
    assert partition.last_fetched_epoch == EPOCH


def test_a_response_of_many_batches_fills_several_segments(table: PartitionTable) -> None:
    partition = follow(table, in_small_segments=True)
    batches = [stored(number) for number in range(30)]

    take(partition, *batches[:20])
    take(partition, *batches[20:])

    assert bytes_of(partition) == b"".join(batches)
    assert len(partition.log.segments) > 5
    for segment in partition.log.segments:
        assert segment.size_bytes <= SEGMENT_BYTES


def test_the_high_watermark_is_the_leaders_up_to_the_log_end(table: PartitionTable) -> None:
    """REP-7."""
    partition = follow(table)
    take(partition, stored(0), high_watermark=9)
    assert partition.high_watermark == 1
    take(partition, stored(1), high_watermark=0)
    assert partition.high_watermark == 1
    take(partition, high_watermark=2)
    assert partition.high_watermark == 2


def test_the_log_start_follows_the_leaders_once_it_is_committed(table: PartitionTable) -> None:
    """REP-8."""
    partition = follow(table)
    take(partition, stored(0), stored(1), high_watermark=1, start=2)
    assert partition.log_start_offset == 0
    take(partition, high_watermark=2, start=2)
    assert partition.log_start_offset == 2


@pytest.mark.parametrize(
    ("faulty", "why"),
    [
        (stored(0), "where 1 or more was expected"),
        (stored(1, epoch=EPOCH + 1), "of leader epoch"),
        (stored(1, epoch=0), "of leader epoch"),
        (stored(1)[:-1] + b"?", "checksum"),
        (stored(1)[:16] + b"\x01" + stored(1)[17:], "no batch"),
        (stored(1)[:8] + b"\x00\x00\x00\x05" + stored(1)[12:], "no batch"),
    ],
)
def test_a_batch_that_cannot_follow_is_refused_and_the_good_ones_before_it_stay(
    table: PartitionTable, faulty: bytes, why: str
) -> None:
    partition = follow(table)

    with pytest.raises(CorruptFetch, match=why):
        take(partition, stored(0, epoch=2), faulty, stored(2))

    assert bytes_of(partition) == stored(0, epoch=2)


def test_an_incomplete_batch_at_the_end_is_left_to_the_next_response(table: PartitionTable) -> None:
    partition = follow(table)
    assert take(partition, stored(0), stored(1)[:-1]) == len(stored(0))
    with pytest.raises(CorruptFetch, match="without a whole batch"):
        take(partition, stored(1)[:-1])
    assert take(partition, stored(1)) == len(stored(1))


def test_a_leader_appends_no_fetched_records(table: PartitionTable) -> None:
    partition = table.become_leader("t", 0, TOPIC_ID, 1, {}, now_ms=NOW_MS)
    with pytest.raises(CorruptFetch, match="leads"):
        take(partition, stored(0))


def test_a_new_leader_has_the_producer_state(table: PartitionTable) -> None:
    """IDE-9."""
    partition = follow(table, in_small_segments=True)
    more = {"producer_id": 9, "producer_epoch": 0}
    take(partition, *(stored(number, base_sequence=number, **more) for number in range(6)))
    table.become_leader("t", 0, TOPIC_ID, EPOCH + 1, {}, now_ms=NOW_MS)

    def produce(sequence: int) -> tuple[int, int]:
        data = build_batch([Record(NOW_MS, None, b"v")], base_sequence=sequence, **more)
        result = partition.append(memoryview(data), NOW_MS, acks=1, produce_version=9)
        return result.error_code, result.base_offset

    assert produce(5) == (0, 5)
    assert produce(6) == (0, 6)
    assert produce(9)[0] == error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_fetched_records_survive_a_crash(tmp_path: Path) -> None:
    partition = follow(opened(tmp_path), in_small_segments=True)
    take(partition, *(stored(number, epoch=number // 4) for number in range(12)), high_watermark=12)
    expected = bytes_of(partition)

    result = _recovered(tmp_path)

    assert bytes_of(result) == expected
    assert result.log.epochs.entries == [(0, 0), (1, 4), (2, 8)]


def test_a_truncated_log_continues_at_its_new_end(table: PartitionTable, tmp_path: Path) -> None:
    """REP-15: lower the recovery point before other records are written there."""
    partition = follow(table, in_small_segments=True)
    take(partition, *(stored(number, epoch=1) for number in range(10)))
    flush = table.flusher.plan_flush()
    flush.run()
    flush.finish()
    assert checkpoints.read_offsets(tmp_path / checkpoints.RECOVERY_POINTS, tmp_path) == {("t", 0): 10}

    table.truncate(partition, 4, NOW_MS)

    assert (partition.log_end_offset, partition.last_fetched_epoch) == (4, 1)
    assert checkpoints.read_offsets(tmp_path / checkpoints.RECOVERY_POINTS, tmp_path) == {("t", 0): 4}
    take(partition, stored(4, 3, epoch=2))
    assert bytes_of(partition) == b"".join([stored(number, epoch=1) for number in range(4)] + [stored(4, 3, epoch=2)])


def test_truncating_committed_records_is_logged_as_an_error(table: PartitionTable) -> None:
    """REP-17."""
    partition = follow(table)
    take(partition, stored(0), stored(1), high_watermark=2)

    with structlog.testing.capture_logs() as written:
        table.truncate(partition, 1, NOW_MS)

    assert [line["event"] for line in written if line["log_level"] == "error"] == ["committed_records_truncated"]
    assert partition.high_watermark == partition.log_end_offset == 1
    table.update_config("t", {"unclean.leader.election.enable": "true"})
    with structlog.testing.capture_logs() as written:
        table.truncate(partition, 0, NOW_MS)
    lost = [(line["event"], line["log_level"]) for line in written]
    assert lost == [("committed_records_truncated", "warning")], "its owner allows that"


def test_records_behind_damage_are_removed_by_a_truncation(table: PartitionTable, tmp_path: Path) -> None:
    """Otherwise these records would follow, with their old offsets, the records that are fetched next."""
    partition = follow(table)
    batches = [stored(number, epoch=1) for number in range(6)]
    take(partition, *batches)
    file = Path(partition.log.segments[0].file.path)
    content = bytearray(file.read_bytes())
    content[2 * len(batches[0]) + 16] = 7  # the magic of the third batch
    file.write_bytes(content)
    partition.log.free_memory()

    with structlog.testing.capture_logs() as written:
        table.truncate(partition, 4, NOW_MS)

    assert [(line["event"], line["position"]) for line in written] == [("log_damage_met", 2 * len(batches[0]))]
    assert partition.log_end_offset == 2
    fetched = [stored(number, epoch=2) for number in range(2, 5)]
    take(partition, *fetched)
    expected = b"".join(batches[:2] + fetched)
    assert bytes_of(partition) == expected
    assert bytes_of(_recovered(tmp_path)) == expected


def test_an_epoch_without_records_is_removed_by_a_truncation_to_the_log_end(table: PartitionTable) -> None:
    partition = follow(table)
    take(partition, stored(0, epoch=1))
    partition.log.epochs.assign(3, 1)

    table.truncate(partition, 1, NOW_MS)

    assert partition.last_fetched_epoch == 1
    assert partition.log_end_offset == 1


def test_a_restarted_log_has_no_earlier_records(table: PartitionTable, tmp_path: Path) -> None:
    """REP-9."""
    partition = follow(table, in_small_segments=True)
    take(partition, *(stored(number, producer_id=3, base_sequence=number) for number in range(10)), high_watermark=10)

    table.truncate_fully_and_start_at(partition, 50, NOW_MS)

    log = partition.log
    assert (log.log_start_offset, log.log_end_offset, partition.high_watermark) == (50, 50, 50)
    assert (log.epochs.entries, log.producers.producers) == ([], {})
    left = sorted(path.name for path in Path(log.directory).iterdir() if not path.name.endswith(".deleted"))
    assert left == ["00000000000000000050.log", "leader-epoch-checkpoint", "partition.metadata"]
    take(partition, stored(50, 2))
    assert bytes_of(partition) == stored(50, 2)
    table.maintain(NOW_MS + 3_600_000)
    assert not list(Path(log.directory).glob("*.deleted"))


def test_a_failed_disk_takes_its_partitions_offline(table: PartitionTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """LOG-3."""
    partition = follow(table)

    def fail(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr("os.write", fail)
        with pytest.raises(StorageFailed):
            take(partition, stored(0))

    assert partition.offline
    assert table.offline_directories


def _recovered(directory: Path) -> Partition:
    """Returns the partition as another process would load it, from a copy of the files."""
    copy = directory.with_name(directory.name + "-after")
    shutil.copytree(directory, copy)
    (copy / ".lock").unlink(missing_ok=True)
    result = opened(copy).get("t", 0)
    assert result is not None
    return result
