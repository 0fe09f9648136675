"""Reads with isolation level read_committed, through restarts and on followers (TXN-20 to TXN-24, IDE-10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokers.engine.partitions import verification
from brokers.engine.partitions.delayed_operations import DelayedCommittedRead
from brokers.engine.partitions.following import append_fetched
from brokers.engine.partitions.listing import list_offsets
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.producers import known_producers
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.records import batch as layout
from brokers.engine.records import error_codes
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.storage.producer_state import PRODUCER_EXPIRATION_MS, PRODUCERS_MAX, ProducerState
from tests.unit.brokers.engine.partitions.transactional import (
    NOW_MS,
    TOPIC_ID,
    aborted,
    append,
    committed_records,
    end,
    of_transaction,
    write,
)


def fetched(partition: Partition, offset: int) -> None:
    partition.update_follower_fetch_state(2, 1, offset, 0, NOW_MS)


def reopened(table: PartitionTable, root: Path, *, clean: bool) -> tuple[PartitionTable, Partition]:
    """Returns the partition of the same directory under a restarted broker."""
    if clean:
        table.close()
    else:
        for held in table:
            for segment in held.log.segments:
                segment.file.close()
        for log_root in table._roots:
            log_root.unlock()
    again = PartitionTable(table.settings)
    again.recover(NOW_MS)
    return again, again.become_leader("ins-a.orders", 0, TOPIC_ID, 4, {}, now_ms=NOW_MS)


# -- the last stable offset --------------------------------------------------------------------------------------------


def test_the_earliest_open_transaction_limits_the_last_stable_offset(partition: Partition) -> None:
    """TXN-20, TXN-23: records of other producers wait too."""
    plain = memoryview(build_batch([Record(NOW_MS, None, b"plain")]))
    write(partition, 7, 0, b"a")
    write(partition, 8, 0, b"b")
    partition.append(plain, NOW_MS, acks=1, produce_version=9)
    assert (partition.last_stable_offset, partition.high_watermark) == (0, 3)
    assert committed_records(partition) == []
    end(partition, 8, committed=True)
    assert (partition.last_stable_offset, committed_records(partition)) == (0, [])
    end(partition, 7, committed=False)
    assert (partition.last_stable_offset, partition.high_watermark) == (5, 5)
    assert committed_records(partition) == [(1, b"b"), (2, b"plain")]


def test_an_ended_transaction_limits_readers_until_its_marker_is_replicated(replicated: Partition) -> None:
    write(replicated, 7, 0)
    write(replicated, 8, 0)
    end(replicated, 8, committed=True)
    end(replicated, 7, committed=True)
    stable = []
    for offset in range(5):
        fetched(replicated, offset)
        stable.append((replicated.high_watermark, replicated.last_stable_offset))
    assert stable == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 4)]


def test_the_order_of_markers_does_not_matter_for_readers(replicated: Partition) -> None:
    write(replicated, 7, 0)
    write(replicated, 8, 0)
    end(replicated, 7, committed=True)
    end(replicated, 8, committed=True)
    stable = []
    for offset in range(5):
        fetched(replicated, offset)
        stable.append(replicated.last_stable_offset)
    assert stable == [0, 0, 0, 1, 4]


def test_a_transaction_that_began_in_deleted_records_limits_readers_to_the_log_start(partition: Partition) -> None:
    write(partition, 7, 0, b"a", b"b", b"c")
    write(partition, 7, 3, b"d")
    partition.log.advance_start(3)
    assert (partition.last_stable_offset, partition.log_start_offset) == (3, 3)


def test_latest_is_the_last_stable_offset_for_readers_of_committed_data(partition: Partition) -> None:
    """LOG-25, LOG-26 with isolation 1."""
    write(partition, 7, 0, b"a")
    end(partition, 7, committed=True)
    write(partition, 7, 1, b"b")
    latest = [list_offsets(partition, -1, isolation=isolation, version=5).offset for isolation in (0, 1)]
    by_time = [list_offsets(partition, NOW_MS, isolation=isolation, version=5).offset for isolation in (0, 1)]
    late = [list_offsets(partition, -3, isolation=isolation, version=7).offset for isolation in (0, 1)]
    assert (latest, by_time, late) == ([3, 2], [0, 0], [0, 0])


def test_a_read_uncommitted_reader_gets_all_records_and_markers(replicated: Partition) -> None:
    """TXN-22: open and aborted records up to the high watermark are included; clients filter the markers."""
    write(replicated, 7, 0, b"aborted")
    end(replicated, 7, committed=False)
    write(replicated, 8, 0, b"open")
    write(replicated, 9, 0, b"not replicated")
    fetched(replicated, 3)

    result = replicated.read(0, 1 << 20, min_one_batch=True)

    assert result.slice is not None
    headers = [header for _, header in layout.scan_headers(result.slice.read())]
    result.slice.release()
    assert (replicated.high_watermark, replicated.last_stable_offset) == (3, 2)
    assert [(header.base_offset, header.producer_id, header.is_control) for header in headers] == [
        (0, 7, False),
        (1, 7, True),
        (2, 8, False),
    ]


# -- aborted transactions ----------------------------------------------------------------------------------------------


def test_readers_get_the_aborted_transactions_of_their_records(partition: Partition) -> None:
    """TXN-21, as observed: the transaction is listed up to the offset of its marker, not behind it."""
    write(partition, 7, 0, b"a")
    write(partition, 8, 0, b"b")
    end(partition, 7, committed=False)
    end(partition, 8, committed=True)
    write(partition, 7, 1, b"c")
    end(partition, 7, committed=False)
    assert [aborted(partition, offset) for offset in range(7)] == [
        [(7, 0), (7, 4)],
        [(7, 0), (7, 4)],
        [(7, 0), (7, 4)],
        [(7, 4)],
        [(7, 4)],
        [(7, 4)],
        None,
    ]
    assert committed_records(partition) == [(1, b"b")]


def test_the_index_lists_aborts_as_kafka_writes_them(partition: Partition) -> None:
    """LOG-12: the last stable offset at that time is the first offset of the earliest other open transaction."""
    write(partition, 7, 0)
    write(partition, 8, 0)
    write(partition, 9, 0)
    end(partition, 8, committed=False)
    end(partition, 7, committed=False)
    end(partition, 9, committed=False)
    index = partition.log.active.aborted
    assert index is not None
    assert [tuple(index.entry(number)) for number in range(len(index))] == [(8, 1, 3, 0), (7, 0, 4, 2), (9, 2, 5, 6)]
    partition.log.roll(NOW_MS)
    content = Path(index.path).read_bytes()
    assert content[:34] == b"\0\0" + b"".join(number.to_bytes(8, "big") for number in (8, 1, 3, 0))
    assert len(content) == 3 * 34


def test_a_transaction_over_several_segments_is_found_from_its_beginning(partition: Partition) -> None:
    write(partition, 7, 0, b"a")
    partition.log.roll(NOW_MS)
    write(partition, 7, 1, b"b")
    partition.log.roll(NOW_MS)
    end(partition, 7, committed=False)
    assert [aborted(partition, offset) for offset in range(3)] == [[(7, 0)]] * 3
    assert committed_records(partition) == []


def test_the_index_is_deleted_with_its_segment_and_truncated_with_the_log(
    table: PartitionTable, partition: Partition
) -> None:
    for number in range(3):
        write(partition, 7, number)
        end(partition, 7, committed=False)
    first = partition.log.active.aborted
    assert first is not None
    partition.log.roll(NOW_MS)
    write(partition, 8, 0)
    end(partition, 8, committed=False)
    partition.become_follower(4, (1, 2), (1, 2), 2)
    table.truncate(partition, 3, NOW_MS)
    assert [first.entry(number).marker_offset for number in range(len(first))] == [1]
    assert (partition.log_end_offset, partition.last_stable_offset) == (3, min(2, partition.high_watermark))
    partition.become_leader(5, (1,), (1,), 1, NOW_MS)
    end(partition, 7, committed=False)
    partition.log.roll(NOW_MS)
    partition.log.advance_start(4)
    gone = partition.log.apply_retention(4, NOW_MS)
    assert any(path.endswith("00000000000000000000.txnindex.deleted") for path in gone)


# -- restarts and followers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("rolled", [True, False])
def test_a_restart_preserves_open_and_aborted_transactions(
    table: PartitionTable, partition: Partition, tmp_path: Path, clean: bool, rolled: bool
) -> None:
    """IDE-10, LOG-39: open and aborted transactions, and the sequences."""
    write(partition, 7, 0, b"a")
    write(partition, 8, 0, b"b")
    end(partition, 7, committed=False, coordinator_epoch=4)
    if rolled:
        partition.log.roll(NOW_MS)
    write(partition, 9, 0, b"c")
    end(partition, 8, committed=False)
    write(partition, 7, 1, b"d")
    before = known_producers(partition), [aborted(partition, offset) for offset in range(4)]
    again, partition = reopened(table, tmp_path, clean=clean)
    assert sorted(known_producers(partition)) == sorted(before[0])
    assert [aborted(partition, offset) for offset in range(4)] == before[1]
    assert (partition.last_stable_offset, partition.high_watermark) == (3, 6)
    assert append(partition, of_transaction(7, 2), verification.OPEN).error_code == 0
    assert (
        end(partition, 7, committed=True, coordinator_epoch=3).error_code == error_codes.TRANSACTION_COORDINATOR_FENCED
    )
    end(partition, 9, committed=False)
    end(partition, 7, committed=True, coordinator_epoch=4)
    assert committed_records(partition) == [(5, b"d"), (6, b"v")]
    again.close()


def test_a_follower_has_the_same_state_as_its_leader(table: PartitionTable, partition: Partition) -> None:
    """IDE-9: the follower appends the same batches and answers alike once it leads."""
    follower = table.become_follower(
        "ins-a.orders", 1, TOPIC_ID, 3, {}, now_ms=NOW_MS, role=PartitionRole((2, 1), (2, 1), 2)
    )
    write(partition, 7, 0, b"a")
    write(partition, 8, 0, b"b")
    end(partition, 7, committed=False, coordinator_epoch=2)
    write(partition, 9, 0, b"c")
    result = partition.read(0, 1 << 20, min_one_batch=True)
    assert result.slice is not None
    append_fetched(follower, memoryview(result.slice.read()), 2, 0, NOW_MS)
    result.slice.release()
    assert known_producers(follower) == known_producers(partition)
    assert (follower.high_watermark, follower.last_stable_offset) == (2, 0)
    append_fetched(follower, memoryview(b""), 4, 0, NOW_MS)
    assert follower.last_stable_offset == 1
    follower.become_leader(4, (1,), (1,), 1, NOW_MS)
    assert append(follower, of_transaction(8, 1), verification.OPEN).error_code == 0
    end(follower, 8, committed=True)
    end(follower, 9, committed=True)
    assert committed_records(follower) == [(1, b"b"), (3, b"c"), (4, b"v")]
    assert aborted(follower) == [(7, 0)]


def test_truncated_transactions_leave_no_trace(table: PartitionTable, partition: Partition) -> None:
    write(partition, 7, 0, b"a")
    end(partition, 7, committed=True)
    write(partition, 8, 0, b"b")
    end(partition, 8, committed=False)
    partition.become_follower(4, (1, 2), (1, 2), 2)
    table.truncate(partition, 3, NOW_MS)
    partition.become_leader(5, (1,), (1,), 1, NOW_MS)
    assert partition.last_stable_offset == 2
    partition.become_follower(6, (1, 2), (1, 2), 2)
    table.truncate(partition, 2, NOW_MS)
    partition.become_leader(7, (1,), (1,), 1, NOW_MS)
    assert (partition.last_stable_offset, committed_records(partition)) == (2, [(0, b"a")])
    assert [known.producer_id for known in known_producers(partition)] == [7]


def test_a_producer_with_an_open_transaction_is_never_evicted() -> None:
    state = ProducerState()
    state.update_in_transaction(1, 0, 0, 0, 0, NOW_MS)
    last = PRODUCERS_MAX + 2
    for producer_id in range(2, last + 1):
        state.update(producer_id, 0, 0, 0, producer_id, NOW_MS)
    assert len(state.producers) == PRODUCERS_MAX
    assert {1, 4, last} <= state.producers.keys()
    assert not {2, 3} & state.producers.keys()
    assert state.has_open_transaction(1, 0)
    state.expire(NOW_MS + PRODUCER_EXPIRATION_MS)
    assert list(state.producers) == [1]


def test_the_producer_that_was_idle_for_longest_is_evicted_first() -> None:
    """A producer that came first and still writes is kept; also after a load from a snapshot."""
    state = ProducerState()
    for producer_id in range(1, PRODUCERS_MAX + 1):
        state.update(producer_id, 0, 0, 0, producer_id, NOW_MS)
    for round in range(2):
        at = PRODUCERS_MAX + 10 * (round + 1)
        state.update(1, 0, round + 1, 0, at, NOW_MS)
        state.update(at, 0, 0, 0, at + 1, NOW_MS)
    state.update(4, 0, 1, 0, PRODUCERS_MAX + 50, NOW_MS)
    restored = ProducerState()
    assert restored.restore(state.to_bytes(), PRODUCERS_MAX + 51)
    for producers in (state, restored):
        assert not {2, 3} & producers.producers.keys()
        producers.update(PRODUCERS_MAX + 100, 0, 0, 0, PRODUCERS_MAX + 100, NOW_MS)
        assert {1, 4, 6} <= producers.producers.keys()
        assert 5 not in producers.producers
        assert producers.check_sequence(1, 0, 3, 0) == 0
        assert producers.check_sequence(1, 0, 5, 0) == error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_producer_that_ended_a_transaction_last_is_evicted_last() -> None:
    """Also after a load from a snapshot."""
    state = ProducerState()
    for producer_id in range(1, PRODUCERS_MAX + 1):
        state.update_in_transaction(producer_id, 0, 0, 0, producer_id, NOW_MS)
    state.update(PRODUCERS_MAX + 1, 0, 0, 0, 0, NOW_MS)
    assert len(state.producers) == PRODUCERS_MAX + 1, "no producer could be evicted"
    for producer_id in (3, 1, 2):
        state.end_transaction(producer_id, 0, 0, PRODUCERS_MAX + 10, NOW_MS)
    successor = ProducerState()
    assert successor.restore(state.to_bytes(), 7)

    for producers in (state, successor):
        gone = set(producers.producers)
        for added in range(3):
            producers.update_in_transaction(PRODUCERS_MAX + 2 + added, 0, 0, 0, added, NOW_MS)
        assert gone - set(producers.producers) == {PRODUCERS_MAX + 1, 3, 1}


def test_a_snapshot_brings_open_transactions_back_in_their_order() -> None:
    """LOG-13."""
    state = ProducerState()
    for producer_id, offset in ((5, 10), (3, 20), (9, 30)):
        state.update_in_transaction(producer_id, 0, 0, 1, offset + 1, NOW_MS)
    state.end_transaction(5, 0, 7, 40, NOW_MS)
    state.update_in_transaction(5, 0, 2, 0, 41, NOW_MS)
    again = ProducerState()
    assert again.restore(state.to_bytes(), 42)
    assert again.transactions.first_unstable_offset == 20
    assert [again.transactions.first_offset_of(producer_id) for producer_id in (5, 3, 9, 4)] == [41, 20, 30, -1]
    assert again.producers[5].coordinator_epoch == 7
    assert again.to_bytes() == state.to_bytes()


# -- delayed reads -----------------------------------------------------------------------------------------------------


class Sleeper:
    def __init__(self, partition: Partition, missing_bytes: int = 1) -> None:
        self.woken = 0
        self.wait = DelayedCommittedRead(self.wake, missing_bytes)
        self.wait.watch(partition)

    def wake(self) -> None:
        self.woken += 1


def test_a_reader_of_committed_data_is_woken_by_the_marker_and_not_by_the_data(partition: Partition) -> None:
    reader = Sleeper(partition)
    write(partition, 7, 0)
    write(partition, 8, 0)
    assert reader.woken == 0
    end(partition, 8, committed=True)
    assert reader.woken == 0
    end(partition, 7, committed=True)
    assert reader.woken == 1


def test_a_reader_that_arrives_during_a_transaction_is_woken_by_its_end(partition: Partition) -> None:
    write(partition, 7, 0, b"a" * 500)
    reader = Sleeper(partition, 600)
    end(partition, 7, committed=False)
    assert reader.woken == 1, "the data that was there before counts"


def test_a_reader_of_committed_data_is_woken_by_plain_data_at_once(partition: Partition) -> None:
    data = memoryview(build_batch([Record(NOW_MS, None, b"v" * 100)]))
    reader = Sleeper(partition, len(data) * 2)
    partition.append(data, NOW_MS, acks=1, produce_version=9)
    assert reader.woken == 0
    data[:8] = bytes(8)
    partition.append(data, NOW_MS, acks=1, produce_version=9)
    assert reader.woken == 1


def test_only_committed_bytes_before_an_open_transaction_count(replicated: Partition) -> None:
    plain = build_batch([Record(NOW_MS, None, b"v" * 100)])
    replicated.append(memoryview(plain), NOW_MS, acks=1, produce_version=9)
    write(replicated, 7, 0, b"x" * 1_000)
    reader, more = Sleeper(replicated, len(plain)), Sleeper(replicated, len(plain) + 1)
    fetched(replicated, 2)
    assert (reader.woken, more.woken) == (1, 0)


def test_a_reader_waits_for_the_marker_to_be_replicated(replicated: Partition) -> None:
    write(replicated, 7, 0)
    reader = Sleeper(replicated)
    end(replicated, 7, committed=True)
    fetched(replicated, 1)
    assert reader.woken == 0
    fetched(replicated, 2)
    assert reader.woken == 1
