"""Transactions in one partition: verification, markers and coordinator appends (TXN-14, TXN-27)."""

from __future__ import annotations

from brokers.engine.partitions import transactions, verification
from brokers.engine.partitions.partition import Partition
from brokers.engine.partitions.results import AppendResult
from brokers.engine.partitions.role import PartitionRole
from brokers.engine.partitions.table import PartitionTable
from brokers.engine.partitions.transactions import append_state
from brokers.engine.records import batch as layout
from brokers.engine.records import error_codes
from brokers.engine.records.builder import Record, build_batch
from brokers.engine.records.control import COMMIT, EndMarker, read_marker
from tests.unit.brokers.engine.partitions.transactional import (
    NOW_MS,
    TOPIC_ID,
    aborted,
    append,
    end,
    of_transaction,
    verified,
    write,
)

# -- verification ------------------------------------------------------------------------------------------------------


def test_a_batch_of_a_transaction_needs_a_transactional_id(partition: Partition) -> None:
    """REC-44; also when the transaction is open."""
    result = partition.append(of_transaction(7, 0), NOW_MS, acks=1, produce_version=9)
    assert result == AppendResult(error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    write(partition, 7, 0)
    assert partition.append(of_transaction(7, 1), NOW_MS, acks=1, produce_version=9).error_code == 53


def test_the_first_batch_of_a_transaction_must_be_verified_and_the_others_need_not(partition: Partition) -> None:
    """TXN-27."""
    assert append(partition, of_transaction(7, 0), verification.OPEN) == AppendResult(48, log_start_offset=0)
    assert append(partition, of_transaction(7, 0), 99).error_code == error_codes.INVALID_TXN_STATE
    assert append(partition, of_transaction(7, 0), verified(partition, 7)).error_code == 0
    assert verified(partition, 7, 1) == verification.OPEN
    assert append(partition, of_transaction(7, 1), verification.OPEN).base_offset == 1
    end(partition, 7, committed=True)
    assert append(partition, of_transaction(7, 2), verification.OPEN).error_code == error_codes.INVALID_TXN_STATE


def test_a_token_is_invalid_after_a_marker(partition: Partition) -> None:
    """The transaction ended between the coordinator's answer and the append, even if the next one is verified by
    now.
    """
    verification_token = verified(partition, 7)
    end(partition, 7, committed=False)
    assert append(partition, of_transaction(7, 0), verification_token).error_code == error_codes.INVALID_TXN_STATE
    later = verified(partition, 7)
    assert append(partition, of_transaction(7, 0), verification_token).error_code == error_codes.INVALID_TXN_STATE
    assert append(partition, of_transaction(7, 0), later).error_code == 0


def test_an_epoch_ahead_of_an_open_transaction_must_be_verified_or_no_marker_could_end_it(partition: Partition) -> None:
    write(partition, 7, 0)
    ahead = of_transaction(7, 0, epoch=9)
    assert append(partition, ahead, verification.OPEN).error_code == error_codes.INVALID_TXN_STATE
    state = build_batch([Record(NOW_MS, b"k", b"v")], attributes=layout.TRANSACTIONAL, producer_id=7, producer_epoch=9)
    assert (
        append_state(partition, bytearray(state), NOW_MS, verification.OPEN).error_code == error_codes.INVALID_TXN_STATE
    )
    assert verified(partition, 7, 0, epoch=9) > verification.OPEN
    assert append(partition, of_transaction(7, 1), verification.OPEN).error_code == 0, "it continues its transaction"
    assert end(partition, 7, committed=True).error_code == 0
    assert partition.last_stable_offset == partition.log_end_offset


def test_a_verified_later_epoch_continues_the_open_transaction(partition: Partition) -> None:
    write(partition, 7, 0)
    verification_token = verified(partition, 7, 0, epoch=1)
    assert append(partition, of_transaction(7, 0, epoch=1), verification_token).error_code == 0
    assert end(partition, 7, committed=False, epoch=1).error_code == 0
    assert (partition.last_stable_offset, aborted(partition)) == (3, [(7, 0)])


def test_concurrent_requests_share_a_token_and_none_overtakes_the_first(partition: Partition) -> None:
    first, second = verified(partition, 7, 0), verified(partition, 7, 1)
    assert first == second
    assert append(partition, of_transaction(7, 1), second).error_code == error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(partition, of_transaction(7, 0), first).error_code == 0
    assert append(partition, of_transaction(7, 1), second).error_code == 0


def test_no_verification_begins_if_it_is_off_or_the_append_is_refused_anyway(partition: Partition) -> None:
    assert append(partition, of_transaction(7, 0), verification.UNVERIFIED_OK).error_code == 0
    partition.resign()
    assert verified(partition, 8) == transactions.NOT_LED


def test_a_producer_with_an_open_transaction_cannot_write_outside_of_it(partition: Partition) -> None:
    """TXN-15, REC-28, REC-59; a wrong sequence and an old epoch are reported first."""
    write(partition, 7, 0, epoch=2)
    plain = [
        of_transaction(7, sequence, epoch=epoch, transactional=False) for sequence, epoch in ((1, 2), (5, 2), (1, 1))
    ]
    codes = [partition.append(data, NOW_MS, acks=1, produce_version=9).error_code for data in plain]
    assert codes == [48, 45, 47]
    end(partition, 7, committed=True, epoch=2)
    assert partition.append(plain[0], NOW_MS, acks=1, produce_version=9).error_code == 0


def test_a_repeated_batch_is_answered_with_its_offset_as_long_as_its_transaction_is_open(partition: Partition) -> None:
    write(partition, 7, 0, b"a", b"b")
    write(partition, 7, 2, b"c")
    again = append(partition, of_transaction(7, 0, b"a", b"b"), verification.OPEN)
    assert (again.error_code, again.base_offset, again.appended_bytes) == (0, 0, 0)
    end(partition, 7, committed=False)
    assert append(partition, of_transaction(7, 2, b"c"), verification.OPEN).base_offset == 2


def test_after_a_marker_of_another_epoch_sequences_start_again(partition: Partition) -> None:
    """The coordinator fences a producer with a marker of the next epoch (TXN-17)."""
    write(partition, 7, 0)
    end(partition, 7, committed=False, epoch=1)
    verification_token = verified(partition, 7, 1)
    assert append(partition, of_transaction(7, 1), verification_token).error_code == error_codes.INVALID_PRODUCER_EPOCH
    verification_token = verified(partition, 7, 5, epoch=1)
    assert (
        append(partition, of_transaction(7, 5, epoch=1), verification_token).error_code
        == error_codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    verification_token = verified(partition, 7, 0, epoch=1)
    assert append(partition, of_transaction(7, 0, epoch=1), verification_token).error_code == 0


# -- markers -----------------------------------------------------------------------------------------------------------


def test_a_marker_is_a_control_batch_of_the_producer(partition: Partition) -> None:
    """REC-27."""
    write(partition, 7, 0, epoch=3)
    result = end(partition, 7, committed=True, epoch=3, coordinator_epoch=12)
    assert (result.error_code, result.base_offset, result.last_offset) == (0, 1, 1)
    fetched = partition.read(1, 1 << 20, min_one_batch=True)
    assert fetched.slice is not None
    data = fetched.slice.read()
    fetched.slice.release()
    header = layout.read_header(data)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch, header.record_count) == (7, 3, 1)
    assert (header.leader_epoch, header.base_offset, layout.checksum(data)) == (3, 1, header.crc)
    assert read_marker(data) == EndMarker(COMMIT, 12)


def test_markers_of_zombies_are_refused_and_repeated_ones_do_no_harm(partition: Partition) -> None:
    """TXN-14."""
    write(partition, 7, 0, epoch=3)
    assert end(partition, 7, committed=False, epoch=2).error_code == error_codes.INVALID_PRODUCER_EPOCH
    assert end(partition, 7, committed=False, epoch=3, coordinator_epoch=5).error_code == 0
    fenced = end(partition, 7, committed=True, epoch=3, coordinator_epoch=4)
    assert fenced.error_code == error_codes.TRANSACTION_COORDINATOR_FENCED
    assert end(partition, 7, committed=False, epoch=3, coordinator_epoch=5).error_code == 0
    assert aborted(partition) == [(7, 0)]
    assert (partition.last_stable_offset, partition.log_end_offset) == (3, 3)


def test_a_marker_for_a_producer_without_a_transaction_lists_nothing(partition: Partition) -> None:
    assert end(partition, 9, committed=False).error_code == 0
    assert (partition.last_stable_offset, aborted(partition)) == (1, [])
    assert partition.log.active.aborted is None


def test_a_marker_needs_a_leader_with_enough_replicas(table: PartitionTable) -> None:
    partition = table.become_leader(
        "ins-a.orders", 0, TOPIC_ID, 3, {"min.insync.replicas": "2"}, now_ms=NOW_MS, role=PartitionRole((1, 2), (1,))
    )
    assert end(partition, 7, committed=True).error_code == error_codes.NOT_ENOUGH_REPLICAS
    partition.resign()
    assert end(partition, 7, committed=True).error_code == error_codes.NOT_LEADER_OR_FOLLOWER
    partition.fail()
    assert end(partition, 7, committed=True).error_code == error_codes.KAFKA_STORAGE_ERROR


# -- coordinators ------------------------------------------------------------------------------------------------------


def state(*, producer_id: int = -1, epoch: int = -1, size: int = 10) -> bytearray:
    attributes = layout.TRANSACTIONAL if producer_id >= 0 else 0
    record = Record(NOW_MS, b"k", b"v" * size)
    return build_batch([record], attributes=attributes, producer_id=producer_id, producer_epoch=epoch)


def test_coordinators_append_without_sequences_in_transactions_and_outside(partition: Partition) -> None:
    """TXN-9: one producer writes several batches without sequences."""
    assert append_state(partition, state(), NOW_MS).base_offset == 0
    assert append_state(partition, state(producer_id=7, epoch=1), NOW_MS).base_offset == 1
    assert append_state(partition, state(producer_id=7, epoch=1), NOW_MS).base_offset == 2
    assert partition.last_stable_offset == 1
    assert (
        append_state(partition, state(producer_id=7, epoch=0), NOW_MS).error_code == error_codes.INVALID_PRODUCER_EPOCH
    )
    end(partition, 7, committed=True, epoch=1)
    assert partition.last_stable_offset == 4


def test_a_coordinator_may_use_a_token(partition: Partition) -> None:
    refused = append_state(partition, state(producer_id=7, epoch=0), NOW_MS, verification.OPEN)
    assert refused.error_code == error_codes.INVALID_TXN_STATE
    verification_token = verified(partition, 7, -1)
    end(partition, 7, committed=False)
    assert (
        append_state(partition, state(producer_id=7, epoch=0), NOW_MS, verification_token).error_code
        == error_codes.INVALID_TXN_STATE
    )
    verification_token = verified(partition, 7, -1)
    assert append_state(partition, state(producer_id=7, epoch=0), NOW_MS, verification_token).error_code == 0


def test_coordinator_appends_have_size_limits_and_need_replicas(table: PartitionTable) -> None:
    config = {"max.message.bytes": "200", "min.insync.replicas": "2"}
    partition = table.become_leader("t", 0, TOPIC_ID, 0, config, now_ms=NOW_MS, role=PartitionRole((1, 2), (1, 2)))
    assert append_state(partition, state(size=300), NOW_MS).error_code == error_codes.MESSAGE_TOO_LARGE
    assert append_state(partition, state(), NOW_MS).error_code == 0
    partition.become_leader(0, (1, 2), (1,), 1, NOW_MS)
    assert append_state(partition, state(), NOW_MS).error_code == error_codes.NOT_ENOUGH_REPLICAS
