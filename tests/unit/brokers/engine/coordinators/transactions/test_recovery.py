"""Failover after each record of a transaction: the successor completes it with the same outcome (TXN-11, TXN-16,
TXN-19, DEC-16).
"""

from __future__ import annotations

from typing import Final

import pytest

from brokers.engine.coordinators.transactions.states import TransactionState
from brokers.engine.protocol.errors import ErrorCode
from tests.unit.brokers.engine.coordinators.fakes import FakeLog
from tests.unit.brokers.engine.coordinators.transactions.coordinator import A, B, Coordinator, Producer, brought_to


def whole_transaction(committed: bool) -> tuple[Coordinator, Producer]:
    """Run a transaction whose log holds: begun, first partition, second partition, decided, completed."""
    coordinator = Coordinator()
    producer = coordinator.begin()
    assert coordinator.add(producer, A) == 0
    assert coordinator.add(producer, B) == 0
    assert coordinator.end(producer, committed) == 0
    coordinator.write_markers()
    assert len(coordinator.log.batches) == 5
    return coordinator, producer


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("records", [4, 5])
def test_a_decision_outlives_its_coordinator(records: int, committed: bool) -> None:
    coordinator, producer = whole_transaction(committed)

    successor = coordinator.successor(records)

    if records == 4:
        (markers,) = successor.sent
        assert markers.partitions == {A, B}, "all of them again: nobody knows which were written"
        assert markers.committed is committed
        assert markers.coordinator_epoch == coordinator.log.leader_epoch + 1
        assert successor.end(producer, committed) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert successor.end(producer, not committed) == ErrorCode.INVALID_TXN_STATE
    successor.write_markers()
    assert successor.end(producer, committed) == 0
    assert successor.state() == ("CompleteCommit" if committed else "CompleteAbort")


@pytest.mark.parametrize("committed", [True, False])
def test_an_undecided_transaction_is_still_its_producers_to_decide(committed: bool) -> None:
    coordinator, producer = whole_transaction(True)

    successor = coordinator.successor(3)

    assert successor.sent == []
    assert successor.end(producer, committed) == 0
    assert successor.sent[0].committed is committed
    assert successor.sent[0].partitions == {A, B}


@pytest.mark.parametrize("records", [2, 3])
def test_a_transaction_its_producer_never_decides_is_aborted_in_time(records: int) -> None:
    coordinator, producer = whole_transaction(True)
    successor = coordinator.successor(records)

    successor.loop.advance(120_000)

    assert [(markers.committed, markers.producer_epoch) for markers in successor.sent] == [(False, 1)]
    assert successor.sent[0].partitions == ({A} if records == 2 else {A, B})
    assert successor.end(producer, committed=True) == ErrorCode.PRODUCER_FENCED


def test_before_the_first_partition_there_is_nothing_to_end() -> None:
    coordinator, producer = whole_transaction(True)
    assert coordinator.successor(0).end(producer, True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.successor(1).end(producer, True) == ErrorCode.INVALID_TXN_STATE


def test_markers_of_an_uncommitted_decision_wait_until_it_cannot_be_lost() -> None:
    """Earlier markers would give partitions an outcome that the next coordinator might not know."""
    coordinator, producer = brought_to(TransactionState.PREPARE_COMMIT)
    log = FakeLog(leader_epoch=5)
    log.batches = coordinator.log.batches
    log.high_watermark = log.end_offset - 1

    successor = Coordinator(log=log)
    assert successor.sent == []
    assert successor.end(producer, committed=True) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert successor.end(producer, committed=False) == ErrorCode.CONCURRENT_TRANSACTIONS
    log.replicate()

    assert [markers.committed for markers in successor.sent] == [True]
    assert successor.end(producer, committed=False) == ErrorCode.INVALID_TXN_STATE


def test_nobody_is_judged_by_what_a_new_leader_is_not_sure_of() -> None:
    """A new leader's high watermark lags at first: a valid producer would be fenced and give up."""
    coordinator, producer = brought_to(TransactionState.ONGOING)
    log = FakeLog(leader_epoch=5)
    log.batches = coordinator.log.batches
    log.high_watermark = log.end_offset - 1

    successor = Coordinator(log=log)

    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    assert successor.add(producer, A) == busy
    assert successor.end(producer, committed=True) == busy
    assert successor.verify(producer, A) == {A: busy}
    assert successor.initialise(expected=producer.identity).error == busy
    assert successor.describe().error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert successor.list() == []
    log.replicate()
    assert successor.add(producer, A) == 0
    assert successor.verify(producer, A) == {A: 0}
    assert [listed.state for listed in successor.list()] == ["Ongoing"]


REFUSED_FOR_GOOD: Final = {
    "add with another epoch": lambda one, producer: one.add(producer._replace(producer_epoch=9), A),
    "add as another producer": lambda one, producer: one.add(producer._replace(producer_id=9), A),
    "add to an id that nobody uses": lambda one, producer: one.add(producer._replace(transactional_id="other"), A),
    "end with another epoch": lambda one, producer: one.end(producer._replace(producer_epoch=9), True),
    "end as another producer": lambda one, producer: one.end(producer._replace(producer_id=9), True),
    "end what did not begin": lambda one, producer: one.end(producer, True),
    "initialise as another producer": lambda one, _: one.initialise(expected=(9, 0)),
    "initialise with another epoch": lambda one, producer: one.initialise(expected=(producer.producer_id, 9)),
    "verify with another epoch": lambda one, producer: one.verify(producer._replace(producer_epoch=9), A),
    "verify as another producer": lambda one, producer: one.verify(producer._replace(producer_id=9), A),
    "verify what was not added": lambda one, producer: one.verify(producer, A),
}


@pytest.mark.parametrize("request_", REFUSED_FOR_GOOD)
def test_a_fatal_error_comes_only_from_a_confirmed_coordinator(request_: str) -> None:
    """A deposed coordinator may have missed a producer, an epoch or a transaction (decision 76)."""
    coordinator, producer = brought_to(TransactionState.EMPTY)
    coordinator.log.is_sole_in_sync_replica = False

    confirmed, deposed = (REFUSED_FOR_GOOD[request_](coordinator, producer) for _ in range(2))
    assert confirmed.replies == deposed.replies == []
    first, second = coordinator.log.asking
    first.completed(0)
    second.completed(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    assert confirmed.replies != [] and confirmed.replies != deposed.replies
    assert deposed.replies == [("failed", ErrorCode.NOT_COORDINATOR)]


def test_a_retriable_error_is_answered_at_once() -> None:
    """An open transaction is reported at once too: the leader that asks knows every marker and its writer."""
    coordinator, producer = brought_to(TransactionState.ONGOING)
    coordinator.log.is_sole_in_sync_replica = False

    assert coordinator.verify(producer, A) == {A: 0}
    assert coordinator.add(producer, A) == 0
    assert coordinator.end(producer, committed=True) == 0
    assert coordinator.verify(producer, A) == {A: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert coordinator.initialise(expected=producer.identity).error == ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_failover_in_the_middle_of_a_fence_leaves_the_zombie_fenced() -> None:
    coordinator, zombie = brought_to(TransactionState.ONGOING)
    coordinator.initialise()

    successor = coordinator.successor()
    successor.write_markers()

    assert successor.state() == "CompleteAbort"
    assert successor.end(zombie, committed=True) == ErrorCode.PRODUCER_FENCED
    assert successor.begin().producer_epoch == 2


def test_a_deleted_id_is_not_loaded() -> None:
    coordinator, producer = brought_to(TransactionState.COMPLETE_ABORT)
    coordinator.loop.advance(604_800_000 + 2 * 3_600_000)

    successor = coordinator.successor()

    assert len(successor.machine.registry) == 0
    assert successor.end(producer, committed=False) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_records_of_another_version_are_left_alone() -> None:
    coordinator, producer = brought_to(TransactionState.ONGOING)
    batch = coordinator.log.batches[0]
    (offset, key, value) = batch.records[0]
    strangers = [(offset, b"\0\x07strange", b"key"), (offset, b"\0\0\0\x01x", b"\0\x09strange value")]
    coordinator.log.batches[0] = batch._replace(records=[*strangers, (offset, key, value)])

    successor = coordinator.successor()

    assert successor.end(producer, committed=True) == 0
    assert [listed.transactional_id for listed in successor.list()] == ["tx"]


def test_a_coordinator_that_lost_its_leadership_answers_nobody_and_completes_nothing() -> None:
    coordinator, producer = brought_to(TransactionState.PREPARE_COMMIT)
    coordinator.log.is_led = False
    records = len(coordinator.records)

    coordinator.write_markers()

    assert coordinator.end(producer, committed=True) == ("failed", ErrorCode.NOT_COORDINATOR)
    assert len(coordinator.records) == records
