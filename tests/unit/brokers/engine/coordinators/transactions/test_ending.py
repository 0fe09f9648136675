"""A decided transaction: its markers, its completion and the replies to the client meanwhile (TXN-10…13)."""

from __future__ import annotations

import pytest

from brokers.contract import coordinator_limits
from brokers.engine.coordinators import limits
from brokers.engine.coordinators.transactions.states import TransactionState
from brokers.engine.protocol.errors import ErrorCode
from tests.unit.brokers.engine.coordinators.fakes import Call
from tests.unit.brokers.engine.coordinators.transactions.coordinator import A, B, Coordinator, brought_to

UNAVAILABLE = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)


@pytest.mark.parametrize("committed", [True, False])
def test_the_client_is_answered_when_the_outcome_is_durable_and_not_before(committed: bool) -> None:
    coordinator, producer = brought_to(TransactionState.ONGOING)
    coordinator.log.stops_committing()

    call = coordinator.end(producer, committed)

    assert isinstance(call, Call)
    assert (call.replies, coordinator.sent) == ([], [])
    coordinator.log.replicate()
    assert call.replies == [0]
    (markers,) = coordinator.sent
    assert markers.partitions == {A, B}
    assert markers.committed is committed
    assert markers.producer_epoch == producer.producer_epoch


def test_markers_carry_the_epoch_of_the_coordinator() -> None:
    coordinator, producer = brought_to(TransactionState.ONGOING)
    successor = coordinator.successor()

    successor.end(producer, committed=True)

    assert successor.sent[0].coordinator_epoch == coordinator.log.leader_epoch + 1


def test_a_transaction_completes_with_its_last_marker_and_never_before() -> None:
    """TXN-12, TXN-13, TXN-29: a partition whose leader does not answer delays no other partition's marker."""
    coordinator, producer = brought_to(TransactionState.PREPARE_COMMIT)
    (markers,) = coordinator.sent

    assert coordinator.written(markers, [A]) is True
    assert coordinator.state() == "PrepareCommit"
    assert coordinator.describe().partitions == [B], "those that still wait"
    assert coordinator.written(markers, [A]) is True, "twice is once"
    assert coordinator.written(markers, [B]) is True

    assert coordinator.state() == "CompleteCommit"
    assert coordinator.end(producer, committed=True) == 0
    assert coordinator.add(producer, A) == 0, "the next transaction may begin"
    assert coordinator.describe().partitions == [A]


def test_markers_that_come_too_late_change_nothing() -> None:
    coordinator, producer = brought_to(TransactionState.COMPLETE_COMMIT)
    old = coordinator.successor(records=3).sent[0]
    coordinator.add(producer, A)
    coordinator.end(producer, committed=False)
    records = len(coordinator.records)

    assert coordinator.written(old, [A, B]) is False, "it was about another outcome"
    assert coordinator.written(coordinator.sent[-1]._replace(coordinator_epoch=99), [A]) is False
    assert coordinator.written(coordinator.sent[-1]._replace(transactional_id="gone"), [A]) is False
    assert coordinator.state() == "PrepareAbort"
    assert len(coordinator.records) == records


@pytest.mark.parametrize("committed", [True, False])
def test_markers_written_for_one_outcome_do_not_count_for_the_next(committed: bool) -> None:
    """The next transaction has the same producer and epoch."""
    coordinator, producer = brought_to(TransactionState.ONGOING)
    coordinator.end(producer, committed)
    (old,) = coordinator.sent
    coordinator.write_markers()
    coordinator.add(producer, A)
    coordinator.end(producer, not committed)

    assert coordinator.written(old, [A, B]) is False
    assert coordinator.state() == ("PrepareAbort" if committed else "PrepareCommit")


def test_a_transaction_without_partitions_completes_too() -> None:
    """Kafka accepts an AddPartitionsToTxn without partitions."""
    coordinator = Coordinator()
    producer = coordinator.begin()
    assert coordinator.add(producer) == 0
    assert coordinator.state() == "Ongoing"

    assert coordinator.end(producer, committed=True) == 0
    coordinator.write_markers()

    assert coordinator.state() == "CompleteCommit"


def test_a_completion_that_cannot_be_appended_is_tried_again() -> None:
    coordinator, _ = brought_to(TransactionState.PREPARE_ABORT)
    coordinator.log.refuses = int(ErrorCode.NOT_ENOUGH_REPLICAS)
    coordinator.write_markers()
    assert coordinator.state() == "PrepareAbort"
    coordinator.loop.advance(5 * limits.COMPLETION_RETRY_MS)
    assert coordinator.state() == "PrepareAbort"

    coordinator.log.refuses = 0
    coordinator.loop.advance(2 * limits.COMPLETION_RETRY_MS)

    assert coordinator.state() == "CompleteAbort"


@pytest.mark.parametrize(
    ("refused_with", "sent"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD),
    ],
)
def test_a_refused_append_decides_nothing_and_has_a_coordinators_error_code(
    refused_with: ErrorCode, sent: ErrorCode
) -> None:
    coordinator, producer = brought_to(TransactionState.ONGOING)
    coordinator.log.refuses = int(refused_with)

    assert coordinator.end(producer, committed=True) == sent
    assert coordinator.add(producer, ("c", 1)) == sent
    assert coordinator.initialise("new").error == sent
    assert coordinator.sent == []
    coordinator.log.refuses = 0
    assert coordinator.state() == "Ongoing"
    assert coordinator.end(producer, committed=False) == 0, "the other outcome is still possible"


def test_a_commit_that_takes_too_long_is_not_known_and_comes_all_the_same() -> None:
    """The decision in the log stands; the client retries until the outcome is known."""
    coordinator, producer = brought_to(TransactionState.ONGOING)
    coordinator.log.stops_committing()
    call = coordinator.end(producer, committed=True)

    coordinator.loop.advance(5_001)

    assert call.replies == [UNAVAILABLE]
    assert coordinator.sent == []
    assert coordinator.end(producer, committed=True) == ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.log.replicate()
    assert len(coordinator.sent) == 1
    coordinator.log.replicate()
    coordinator.write_markers()
    coordinator.log.replicate()
    again = coordinator.end(producer, committed=True)
    assert again.replies == []
    coordinator.log.replicate()
    assert again.replies == [0]


@pytest.mark.parametrize("state", [TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT])
def test_a_deposed_coordinator_does_not_take_the_end_of_one_transaction_for_that_of_the_next(
    state: TransactionState,
) -> None:
    """TXN-10: a deposed coordinator does not know the transaction that its successor began in the same epoch. It gives
    no reply that needs a record it cannot replicate.
    """
    coordinator, producer = brought_to(state)
    coordinator.log.stops_committing()

    call = coordinator.end(producer, committed=state is TransactionState.COMPLETE_COMMIT)

    assert isinstance(call, Call)
    assert call.replies == []
    coordinator.log.lose()
    assert call.replies == [("failed", int(ErrorCode.NOT_COORDINATOR))]


def test_a_waiting_end_is_sent_elsewhere_when_the_leadership_goes() -> None:
    coordinator, producer = brought_to(TransactionState.ONGOING)
    coordinator.log.stops_committing()
    call = coordinator.end(producer, committed=True)

    coordinator.log.lose()

    assert call.replies == [("failed", ErrorCode.NOT_COORDINATOR)]
    assert coordinator.sent == []
    assert coordinator.end(producer, committed=True) == ("failed", ErrorCode.NOT_COORDINATOR)


def test_partitions_of_a_transaction_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PARTITIONS_PER_TRANSACTION_MAX", 3)
    coordinator, producer = brought_to(TransactionState.ONGOING)

    assert coordinator.add(producer, ("c", 0)) == 0
    assert coordinator.add(producer, ("c", 1)) == ErrorCode.POLICY_VIOLATION
    assert coordinator.add(producer, ("c", 0)) == 0, "it is in"
    assert len(coordinator.describe().partitions) == 3


def test_partitions_of_an_instances_open_transactions_are_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limit also holds after a failover; completed transactions do not count, other instances are not affected."""
    monkeypatch.setattr(coordinator_limits, "OPEN_PARTITIONS_PER_INSTANCE_MAX", 3)
    monkeypatch.setattr(coordinator_limits, "OPEN_PARTITIONS_FLOOR", 1)
    coordinator = Coordinator()
    first, second = coordinator.begin("ins-aaaaaaaa.one"), coordinator.begin("ins-aaaaaaaa.two")
    assert coordinator.add(first, A, B) == 0
    assert coordinator.add(second, A) == 0
    for now in (coordinator, coordinator.successor()):
        assert now.add(second, B) == ErrorCode.POLICY_VIOLATION
        assert now.add(second, A) == 0, "it is in"
        assert now.add(now.begin("ins-bbbbbbbb.one"), ("ins-bbbbbbbb.x", 0)) == 0
    coordinator.end(first, committed=True)
    coordinator.write_markers()
    assert coordinator.add(second, B) == 0


def test_transactions_are_listed_by_their_instance() -> None:
    coordinator = Coordinator()
    for name in ("ins-aaaaaaaa.one", "ins-bbbbbbbb.one", "ins-aaaaaaaa.two"):
        coordinator.begin(name)
    result = [listed.transactional_id for listed in coordinator.list(instance="ins-aaaaaaaa")]
    assert result == ["ins-aaaaaaaa.one", "ins-aaaaaaaa.two"]
    assert coordinator.list(instance="ins-cccccccc") == []
    assert len(coordinator.list()) == 3


def test_the_record_of_a_transaction_fits_into_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_BYTES_MAX", 400)
    coordinator, producer = brought_to(TransactionState.ONGOING)

    assert coordinator.add(producer, ("x" * 249, 0)) == 0
    assert coordinator.add(producer, ("y" * 249, 0)) == ErrorCode.POLICY_VIOLATION


def test_a_clock_that_was_set_back_makes_no_record_older_than_the_one_before() -> None:
    coordinator, producer = brought_to(TransactionState.ONGOING)
    coordinator.loop.now_ms -= 50_000

    coordinator.end(producer, committed=True)

    times = [record.last_update_ms for _, record in coordinator.records if record is not None]
    assert times == sorted(times)
