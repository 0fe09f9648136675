"""Timer-driven work of the coordinator: transaction time-outs and the expiry of ids (TXN-17, TXN-18)."""

from __future__ import annotations

import pytest

from brokers.engine.coordinators import limits
from brokers.engine.coordinators.settings import TransactionSettings
from brokers.engine.coordinators.transactions.states import TransactionState
from brokers.engine.protocol.errors import ErrorCode
from tests.unit.brokers.engine.coordinators.transactions.coordinator import A, Coordinator, brought_to

SCAN_MS = 10_000
WEEK_MS = 604_800_000
HOUR_MS = 3_600_000


def test_a_transaction_open_for_too_long_is_aborted_under_another_epoch() -> None:
    coordinator = Coordinator()
    producer = coordinator.begin(timeout_ms=15_000)
    coordinator.add(producer, A)

    coordinator.loop.advance(SCAN_MS + 1_000)
    assert coordinator.state() == "Ongoing", "it has time until 15 s"
    coordinator.loop.advance(SCAN_MS)

    assert coordinator.state() == "PrepareAbort"
    (markers,) = coordinator.sent
    assert (markers.committed, markers.producer_epoch) == (False, producer.producer_epoch + 1)
    assert coordinator.end(producer, committed=True) == ErrorCode.PRODUCER_FENCED
    coordinator.write_markers()
    assert coordinator.state() == "CompleteAbort"


def test_the_clock_of_a_transaction_starts_with_its_first_partition() -> None:
    """TXN-7: neither InitProducerId nor a second partition moves it."""
    coordinator = Coordinator()
    producer = coordinator.begin(timeout_ms=15_000)
    coordinator.loop.advance(30_000)
    coordinator.add(producer, A)
    started_ms = coordinator.describe().start_ms
    coordinator.loop.advance(9_000)
    coordinator.add(producer, ("b", 1))

    assert coordinator.describe().start_ms == started_ms == coordinator.loop.now().wall_ms - 9_000
    coordinator.loop.advance(6_001 + SCAN_MS)
    assert coordinator.state() == "PrepareAbort"


def test_a_transaction_that_is_decided_or_at_rest_never_times_out() -> None:
    states = (
        TransactionState.EMPTY,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    )
    for state in states:
        coordinator, producer = brought_to(state)
        records = len(coordinator.records)
        coordinator.loop.advance(24 * HOUR_MS)
        assert len(coordinator.records) == records, state
        assert coordinator.describe().producer_epoch == producer.producer_epoch


def test_a_change_on_its_way_is_not_interrupted_by_the_time_out() -> None:
    coordinator, producer = brought_to(TransactionState.ONGOING)
    coordinator.log.stops_committing()
    coordinator.end(producer, committed=True)

    coordinator.loop.advance(900_000)
    coordinator.log.replicate()

    assert [markers.committed for markers in coordinator.sent] == [True]
    assert coordinator.state() == "PrepareCommit"


def test_a_time_out_that_cannot_be_written_down_comes_with_a_later_round() -> None:
    coordinator, _ = brought_to(TransactionState.ONGOING)
    coordinator.log.refuses = int(ErrorCode.NOT_ENOUGH_REPLICAS)
    coordinator.loop.advance(3 * 60_000)
    assert (coordinator.state(), coordinator.sent) == ("Ongoing", [])

    coordinator.log.refuses = 0
    coordinator.loop.advance(2 * SCAN_MS)

    assert coordinator.state() == "PrepareAbort"
    assert coordinator.describe().producer_epoch == 1, "one epoch, however often it was tried"


def test_many_overdue_transactions_are_aborted_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECORDS_PER_ROUND_MAX", 2)
    coordinator = Coordinator()
    for name in range(5):
        coordinator.add(coordinator.begin(f"tx-{name}", timeout_ms=1_000), A)
    before = len(coordinator.log.batches)

    coordinator.loop.advance(SCAN_MS + 1_000)

    assert [len(batch.records) for batch in coordinator.log.batches[before:]] == [2, 2, 1]
    assert {markers.transactional_id for markers in coordinator.sent} == {f"tx-{name}" for name in range(5)}


def test_rounds_end_when_nothing_is_left_to_do() -> None:
    """An idle coordinator runs at most once per interval."""
    coordinator, _ = brought_to(TransactionState.PREPARE_ABORT)
    turns = []
    ring = coordinator.machine.on_timer

    def counted(key: object, now: object) -> object:
        turns.append(key)
        return ring(key, now)  # type: ignore[arg-type]

    coordinator.machine.on_timer = counted  # type: ignore[method-assign,assignment]
    coordinator.loop.advance(HOUR_MS)

    assert len(turns) <= HOUR_MS // SCAN_MS + 1


def test_an_id_at_rest_for_a_week_is_forgotten() -> None:
    coordinator, producer = brought_to(TransactionState.COMPLETE_COMMIT)
    coordinator.loop.advance(WEEK_MS - 2 * HOUR_MS)
    assert coordinator.state() == "CompleteCommit"

    coordinator.loop.advance(3 * HOUR_MS)

    assert coordinator.describe().error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert coordinator.records[-1] == ("tx", None)
    assert coordinator.end(producer, committed=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.begin().producer_id != producer.producer_id
    assert len(coordinator.machine.registry) == 1


@pytest.mark.parametrize(
    "state", [TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT]
)
def test_a_transaction_that_is_not_at_rest_does_not_expire(state: TransactionState) -> None:
    settings = TransactionSettings(timeout_check_interval_ms=2 * WEEK_MS)
    coordinator, _ = brought_to(state, Coordinator(settings=settings))

    coordinator.loop.advance(WEEK_MS + 2 * HOUR_MS)

    assert coordinator.describe().error == 0


def test_a_forgotten_id_is_busy_until_it_is_known_to_be_forgotten() -> None:
    settings = TransactionSettings(id_expiration_ms=10_000, id_expiration_check_interval_ms=1_000)
    coordinator, producer = brought_to(TransactionState.EMPTY, Coordinator(settings=settings))
    coordinator.log.stops_committing()
    coordinator.loop.advance(12_000)

    assert coordinator.initialise().error == ErrorCode.CONCURRENT_TRANSACTIONS
    assert coordinator.add(producer, A) == ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.log.replicate()
    assert coordinator.add(producer, A) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_the_ids_of_a_deleted_instance_go_with_the_next_round() -> None:
    coordinator = Coordinator()
    coordinator.begin("ins-aaaaaaaa.tx")
    coordinator.begin("ins-bbbbbbbb.tx")
    coordinator.begin("the-clusters-own")
    coordinator.living.remove("ins-aaaaaaaa")

    coordinator.loop.advance(HOUR_MS + SCAN_MS)

    assert sorted(listed.transactional_id for listed in coordinator.list()) == ["ins-bbbbbbbb.tx", "the-clusters-own"]
