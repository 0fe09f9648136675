"""A partition as request handlers use it: produce, fetch, offsets, waits, refusals (B.7, LOG-22 to LOG-28, REP-11 to
REP-14).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers.engine.partitions.delayed_operations import DelayedRead, DelayedReplication
from brokers.engine.partitions.listing import list_offsets
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import AppendResult, ListedOffset, ReadResult
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable, StorageSettings
from brokers.engine.records import batch as layout
from brokers.engine.records import error_codes
from brokers.engine.records.builder import Record, build_batch
from tests.unit.brokers.engine.partitions.transactional import NOW_MS, TOPIC_ID


def batch(count: int = 3, **more: int) -> memoryview:
    return memoryview(build_batch([Record(NOW_MS + at, None, b"v" * 10) for at in range(count)], **more))


def produce(partition: Partition, data: memoryview | None = None, *, acks: int = 1, version: int = 9) -> AppendResult:
    return partition.append(data if data is not None else batch(), NOW_MS, acks=acks, produce_version=version)


def test_an_append_rewrites_the_header_in_place_and_returns_the_offset(partition: Partition) -> None:
    """REC-21, REC-64."""
    produce(partition)
    data = batch()
    assert produce(partition, data) == (0, 3, -1, 0, None, len(data), 5, ())
    header = layout.read_header(data)
    assert (header.base_offset, header.leader_epoch) == (3, 3)
    assert (partition.log_end_offset, partition.high_watermark, partition.last_stable_offset) == (6, 6, 6)
    assert partition.size_bytes == 2 * len(data)


def test_a_read_returns_the_written_bytes(partition: Partition) -> None:
    data = batch()
    produce(partition, data)
    answer = partition.read(0, 1 << 20, min_one_batch=True)
    assert answer[:4] == (0, 3, 3, 0)
    assert answer.slice is not None
    assert answer.slice.read() == bytes(data)
    answer.slice.release()
    assert partition.read(3, 1 << 20, min_one_batch=True) == ReadResult(0, 3, 3, 0)


def test_shape_errors_omit_the_log_start_offset_and_others_include_it(table: PartitionTable) -> None:
    """Observed: -1 with 2, 10, 18, 53, 76 and shape 87; the real value with 45, 32 and 87 found in the records."""
    partition = table.become_leader("t", 0, TOPIC_ID, 0, {"max.message.bytes": "200"}, now_ms=NOW_MS)
    corrupt = batch()
    corrupt[70] ^= 1
    assert produce(partition, corrupt) == AppendResult(error_codes.CORRUPT_MESSAGE)
    assert produce(partition, memoryview(bytearray(5))) == AppendResult(error_codes.INVALID_RECORD)
    assert produce(partition, batch(20)) == AppendResult(error_codes.MESSAGE_TOO_LARGE)
    assert produce(partition, acks=2) == AppendResult(error_codes.INVALID_REQUIRED_ACKS)
    assert produce(partition, batch(codec=4), version=3) == AppendResult(error_codes.UNSUPPORTED_COMPRESSION_TYPE)
    lying = batch()
    lying[57:61] = (9).to_bytes(4, "big")
    layout.write_crc(lying)
    assert produce(partition, lying) == AppendResult(error_codes.INVALID_RECORD, log_start_offset=0)
    without_transactional_id = batch(attributes=layout.TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0)
    assert produce(partition, without_transactional_id) == AppendResult(
        error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    assert partition.log_end_offset == 0


def test_duplicates_answer_the_cached_offset_and_gaps_are_refused(partition: Partition) -> None:
    """IDE-6, IDE-7, REC-64 as observed: a duplicate returns the maximum timestamp of the batch."""

    def sent(sequence: int) -> AppendResult:
        return produce(partition, batch(producer_id=9, producer_epoch=0, base_sequence=sequence), acks=-1)

    for number in range(6):
        assert sent(number * 3).base_offset == number * 3
    assert sent(15) == AppendResult(0, 15, NOW_MS + 2, 0, None, 0, 17)
    assert sent(3).base_offset == 3
    assert sent(0) == AppendResult(error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER, log_start_offset=0)
    assert sent(21) == AppendResult(error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER, log_start_offset=0)
    assert sent(18).base_offset == 18


def test_idempotence_survives_a_clean_and_an_unclean_restart(tmp_path: Path) -> None:
    """IDE-10."""
    for clean in (True, False):
        home = tmp_path / str(clean)

        def opened(home: Path = home) -> PartitionTable:
            table = PartitionTable(StorageSettings(roots=(home,), broker_id=1, cluster_id="c"))
            table.recover(NOW_MS)
            return table

        table = opened()
        partition = table.become_leader("t", 0, TOPIC_ID, 0, {}, now_ms=NOW_MS)
        for number in range(3):
            produce(partition, batch(producer_id=9, producer_epoch=0, base_sequence=number * 3))
        if clean:
            table.close()
        else:
            for root in table._roots:
                root.unlock()
        table = opened()
        partition = table.become_leader("t", 0, TOPIC_ID, 1, {}, now_ms=NOW_MS)
        assert partition.log_end_offset == partition.high_watermark == 9
        assert produce(partition, batch(producer_id=9, producer_epoch=0, base_sequence=6)).base_offset == 6
        assert produce(partition, batch(producer_id=9, producer_epoch=0, base_sequence=9)).base_offset == 9
        assert partition.log.epochs.entries == [(0, 0), (1, 9)]
        table.close()


def test_log_append_time_is_answered(table: PartitionTable) -> None:
    partition = table.become_leader("t", 0, TOPIC_ID, 0, {"message.timestamp.type": "LogAppendTime"}, now_ms=NOW_MS)
    assert produce(partition).log_append_time_ms == NOW_MS


def test_a_reader_with_another_epoch_gets_the_error_for_the_outdated_side(partition: Partition) -> None:
    """LOG-32."""
    assert (
        partition.read(0, 1, min_one_batch=True, current_leader_epoch=2).error_code == error_codes.FENCED_LEADER_EPOCH
    )
    assert (
        partition.read(0, 1, min_one_batch=True, current_leader_epoch=4).error_code == error_codes.UNKNOWN_LEADER_EPOCH
    )
    assert partition.read(0, 1, min_one_batch=True, current_leader_epoch=3).error_code == 0


@pytest.mark.parametrize("offset", [-1, 4, 2**62])
def test_an_offset_outside_the_log_is_out_of_range(partition: Partition, offset: int) -> None:
    produce(partition)
    assert partition.read(offset, 1, min_one_batch=True) == ReadResult(error_codes.OFFSET_OUT_OF_RANGE)


@pytest.mark.parametrize(
    ("timestamp", "version", "answer"),
    [
        (-1, 1, ListedOffset(0, -1, 6, -1)),
        (-1, 4, ListedOffset(0, -1, 6, 3)),
        (-2, 4, ListedOffset(0, -1, 0, 3)),
        (-3, 7, ListedOffset(0, NOW_MS + 2, 2, 3)),
        (-3, 6, ListedOffset(error_codes.UNSUPPORTED_VERSION)),
        (-4, 8, ListedOffset(0, -1, 0, 3)),
        (-5, 9, ListedOffset(0)),
        (-5, 8, ListedOffset(error_codes.UNSUPPORTED_VERSION)),
        (-6, 9, ListedOffset(error_codes.UNSUPPORTED_VERSION)),
        (0, 4, ListedOffset(0, NOW_MS, 0, 3)),
        (NOW_MS + 1, 4, ListedOffset(0, NOW_MS + 1, 1, 3)),
        (NOW_MS + 3, 4, ListedOffset(0)),
    ],
)
def test_offsets_are_listed_by_time(partition: Partition, timestamp: int, version: int, answer: ListedOffset) -> None:
    """LOG-25, LOG-26."""
    produce(partition)
    produce(partition)
    assert list_offsets(partition, timestamp, isolation=0, version=version) == answer


def test_a_fetch_is_woken_once_by_enough_bytes(table: PartitionTable, partition: Partition) -> None:
    other = table.become_leader("ins-a.orders", 1, TOPIC_ID, 0, {}, now_ms=NOW_MS)
    woken: list[int] = []
    wait = DelayedRead(lambda: woken.append(1), missing_bytes=2 * len(batch()))
    wait.watch(partition)
    wait.watch(other)
    produce(partition)
    assert not woken
    produce(other)
    produce(other)
    wait.expire()
    assert woken == [1]
    assert not wait.expired
    wait.leave()
    assert not partition.delayed_operations
    assert not other.delayed_operations


def test_losing_the_leadership_ends_pending_operations(partition: Partition) -> None:
    woken: list[str] = []
    fetch = DelayedRead(lambda: woken.append("fetch"), missing_bytes=1)
    fetch.watch(partition)
    cancelled = DelayedRead(lambda: woken.append("cancelled"), missing_bytes=1)
    cancelled.watch(partition)
    cancelled.cancel()
    partition.resign()
    assert woken == ["fetch"]
    assert produce(partition) == AppendResult(error_codes.NOT_LEADER_OR_FOLLOWER)
    assert partition.read(0, 1, min_one_batch=True) == ReadResult(error_codes.NOT_LEADER_OR_FOLLOWER)


def test_acks_all_waits_for_the_in_sync_replicas(table: PartitionTable) -> None:
    """REP-3, REP-11, REP-12: the same path with more than one replica."""
    partition = table.become_leader("t", 0, TOPIC_ID, 0, {}, now_ms=NOW_MS, role=PartitionRole((1, 2, 3), (1, 2, 3)))
    done: list[int] = []
    result = produce(partition, acks=-1)
    assert partition.high_watermark == 0
    assert partition.read(0, 1 << 20, min_one_batch=True).slice is None
    wait = DelayedReplication(lambda: done.append(1))
    wait.watch(partition, result.last_offset)
    partition.update_follower_fetch_state(2, 1, 3, 0, NOW_MS)
    assert not done
    partition.update_follower_fetch_state(3, 1, 2, 0, NOW_MS)
    assert (partition.high_watermark, done) == (2, [])
    partition.update_follower_fetch_state(3, 1, 3, 0, NOW_MS)
    assert (partition.high_watermark, done) == (3, [1])


def test_too_few_in_sync_replicas_refuse_acks_all_only(table: PartitionTable) -> None:
    """REC-45, REP-13."""
    config = {"min.insync.replicas": "2"}
    partition = table.become_leader("t", 0, TOPIC_ID, 0, config, now_ms=NOW_MS, role=PartitionRole((1, 2), (1,)))
    assert produce(partition, acks=-1) == AppendResult(error_codes.NOT_ENOUGH_REPLICAS, log_start_offset=0)
    assert produce(partition, acks=1).error_code == 0
    single = table.become_leader("u", 0, TOPIC_ID, 0, config, now_ms=NOW_MS)
    assert produce(single, acks=-1).error_code == 0


def test_a_failing_disk_is_a_storage_error_for_everything_on_it(
    table: PartitionTable, partition: Partition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LOG-3."""
    other = table.become_leader("ins-a.orders", 1, TOPIC_ID, 0, {}, now_ms=NOW_MS)
    produce(partition)
    woken: list[int] = []
    DelayedRead(lambda: woken.append(1), missing_bytes=1).watch(other)
    with monkeypatch.context() as broken:

        def fail(*_: object) -> int:
            raise OSError(5, "Input/output error")

        broken.setattr("os.write", fail)
        assert produce(partition) == AppendResult(error_codes.KAFKA_STORAGE_ERROR)
    assert produce(other) == AppendResult(error_codes.KAFKA_STORAGE_ERROR)
    assert other.read(0, 1, min_one_batch=True) == ReadResult(error_codes.KAFKA_STORAGE_ERROR)
    assert woken == [1]
    assert list(table.offline_directories) == [tmp_path]
    assert partition.log_end_offset == 3


def test_sequences_count_whatever_a_producer_waits_for_and_each_partition_has_its_own(
    table: PartitionTable, partition: Partition
) -> None:
    """IDE-3, IDE-13: only clients require acks=all with idempotence."""
    other = table.become_leader(partition.topic, 1, TOPIC_ID, 3, {}, now_ms=NOW_MS)
    for target in (partition, other):
        for acks, sequence in ((1, 0), (-1, 2)):
            for _ in range(2):
                records = batch(2, producer_id=9, producer_epoch=0, base_sequence=sequence)
                assert produce(target, records, acks=acks).base_offset == sequence
        assert target.log_end_offset == 4
