"""InitProducerId with a transactional id: epochs, fencing, retries (TXN-5, TXN-6, TXN-26)."""

from __future__ import annotations

import pytest

from brokers.contract import coordinator_limits
from brokers.engine.coordinators.limits import FULL_INSTANCE_EXPIRATION_MS
from brokers.engine.coordinators.settings import TransactionSettings
from brokers.engine.coordinators.transactions.metadata import EPOCH_MAX
from brokers.engine.coordinators.transactions.replies import NEEDS_PRODUCER_ID, InitProducerIdReply
from brokers.engine.coordinators.transactions.states import TransactionState
from brokers.engine.protocol.errors import ErrorCode
from tests.unit.brokers.engine.coordinators.transactions.coordinator import A, Coordinator, Producer, brought_to

FENCED = InitProducerIdReply(int(ErrorCode.PRODUCER_FENCED))
BUSY = InitProducerIdReply(int(ErrorCode.CONCURRENT_TRANSACTIONS))


def test_a_new_id_gets_a_producer_id_of_its_own_and_epoch_zero() -> None:
    coordinator = Coordinator()

    assert coordinator.initialise("one") == InitProducerIdReply(0, 1000, 0)
    assert coordinator.initialise("two") == InitProducerIdReply(0, 1001, 0)


def test_a_producer_id_is_asked_for_before_anything_is_decided() -> None:
    coordinator = Coordinator()

    reply = coordinator.ask(lambda machine, now, _: machine.init_producer_id("tx", 1_000, None, None, now))

    assert reply is NEEDS_PRODUCER_ID
    assert coordinator.records == []


def test_each_beginning_raises_the_epoch() -> None:
    coordinator = Coordinator()

    assert [coordinator.begin().producer_epoch for _ in range(3)] == [0, 1, 2]
    assert {record.producer_id for _, record in coordinator.records if record} == {1000}


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1])
def test_a_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    coordinator = Coordinator()

    reply = coordinator.initialise(timeout_ms=timeout_ms)

    assert reply == InitProducerIdReply(int(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
    assert coordinator.records == []


def test_the_operators_bound_of_the_timeout_counts() -> None:
    coordinator = Coordinator(settings=TransactionSettings(timeout_ms_max=5_000))

    assert coordinator.initialise(timeout_ms=5_001).error == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert coordinator.initialise(timeout_ms=5_000).error == 0


def test_initialising_during_an_open_transaction_aborts_it_and_returns_the_second_next_epoch() -> None:
    """TXN-5: the epoch of the fence is given to no producer."""
    coordinator, zombie = brought_to(TransactionState.ONGOING)

    assert coordinator.initialise() == BUSY
    (markers,) = coordinator.sent
    assert (markers.producer_epoch, markers.committed) == (1, False)
    assert coordinator.initialise() == BUSY, "while markers are written"
    coordinator.write_markers()
    assert coordinator.initialise() == InitProducerIdReply(0, zombie.producer_id, 2)
    assert coordinator.end(zombie, committed=True) == ErrorCode.PRODUCER_FENCED
    assert coordinator.add(zombie, A) == ErrorCode.PRODUCER_FENCED


def test_nobody_can_write_with_the_epoch_of_a_fence() -> None:
    coordinator = with_epoch(Coordinator(), EPOCH_MAX)
    assert coordinator.add(Producer("tx", 1000, EPOCH_MAX), A) == 0
    assert coordinator.initialise() == BUSY
    coordinator.write_markers()

    assert coordinator.describe().producer_epoch == EPOCH_MAX + 1
    assert coordinator.add(Producer("tx", 1000, EPOCH_MAX + 1), A) == ErrorCode.PRODUCER_FENCED


# -- with the producer id and epoch that the client has ----------------------------------------------------------------


def test_the_current_epoch_is_raised_and_remembered_for_a_retry() -> None:
    coordinator = Coordinator()
    first = coordinator.begin()

    second = coordinator.begin(expected=first.identity)
    again = coordinator.begin(expected=first.identity)

    assert second.producer_epoch == 1
    assert again == second, "the answer was lost: the retry gets the same"
    assert coordinator.begin(expected=second.identity).producer_epoch == 2
    assert coordinator.initialise(expected=first.identity) == FENCED


def test_a_beginning_without_an_epoch_forgets_the_one_before() -> None:
    coordinator = Coordinator()
    first = coordinator.begin()
    coordinator.begin()

    assert coordinator.initialise(expected=first.identity) == FENCED


def test_a_fence_forgets_the_epoch_before() -> None:
    """A retry after the fence must not get the epoch of the fence, which no producer may use."""
    coordinator = Coordinator()
    first = coordinator.begin()
    second = coordinator.begin(expected=first.identity)
    coordinator.add(second, A)
    coordinator.initialise()
    coordinator.write_markers()

    assert coordinator.describe().producer_epoch == 2
    assert coordinator.initialise(expected=first.identity) == FENCED
    assert coordinator.initialise(expected=second.identity) == FENCED


def test_a_retry_stays_possible_after_its_own_retry() -> None:
    coordinator = Coordinator()
    first = coordinator.begin()
    second = coordinator.begin(expected=first.identity)

    for _ in range(3):
        assert coordinator.begin(expected=first.identity) == second


@pytest.mark.parametrize("identity", [(1000, 1), (1000, 30_000), (999, 0), (999, EPOCH_MAX), (2**62, 0)])
def test_an_unexpected_identity_is_fenced(identity: tuple[int, int]) -> None:
    coordinator = Coordinator()
    coordinator.begin()

    assert coordinator.initialise(expected=identity) == FENCED


@pytest.mark.parametrize(
    "state", [TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_ABORT]
)
def test_a_stranger_who_names_another_producer_id_disturbs_nobody(state: TransactionState) -> None:
    coordinator, producer = brought_to(state)
    records = len(coordinator.records)

    assert coordinator.initialise(expected=(producer.producer_id + 1, producer.producer_epoch)) == FENCED
    assert len(coordinator.records) == records


def test_the_epoch_before_counts_with_its_own_producer_id_only() -> None:
    coordinator = Coordinator()
    first = coordinator.begin()
    coordinator.begin(expected=first.identity)

    assert coordinator.initialise(expected=(first.producer_id + 1, first.producer_epoch)) == FENCED


def test_an_expected_identity_of_an_unknown_id_is_ignored() -> None:
    assert Coordinator().initialise(expected=(77, 12)) == InitProducerIdReply(0, 1000, 0)


def test_a_producer_that_was_timed_out_is_fenced() -> None:
    """Kafka 3.9.1, observed: after an abort by time-out the old id and epoch give error 90."""
    coordinator, producer = brought_to(TransactionState.ONGOING)
    coordinator.begin("other")
    coordinator.loop.advance(90_000)
    coordinator.write_markers()

    assert coordinator.state() == "CompleteAbort"
    assert coordinator.initialise(expected=producer.identity) == FENCED


def test_an_expected_epoch_is_not_remembered_by_the_next_coordinator() -> None:
    """Kafka keeps it only in memory, too: a retry after a failover is refused."""
    coordinator = Coordinator()
    first = coordinator.begin()
    second = coordinator.begin(expected=first.identity)
    successor = coordinator.successor()

    assert successor.initialise(expected=first.identity) == FENCED
    assert successor.begin(expected=second.identity).producer_epoch == 2


def test_an_append_that_was_refused_leaves_the_epoch_before_to_retry_with() -> None:
    coordinator = Coordinator()
    first = coordinator.begin()
    second = coordinator.begin(expected=first.identity)
    coordinator.log.refuses = int(ErrorCode.NOT_ENOUGH_REPLICAS)

    assert coordinator.initialise() == InitProducerIdReply(int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    coordinator.log.refuses = 0

    assert coordinator.begin(expected=first.identity) == second


# -- exhausted epochs --------------------------------------------------------------------------------------------------


def with_epoch(coordinator: Coordinator, epoch: int) -> Coordinator:
    """Set the epoch of "tx" directly, as if all earlier epochs had been used."""
    coordinator.begin()
    shard_registry = coordinator.machine.registry
    entry = shard_registry.entry("tx")
    assert entry is not None
    assert entry.visible is not None
    entry.visible = entry.written = entry.visible._replace(producer_epoch=epoch)
    return coordinator


def test_the_last_epoch_is_followed_by_another_producer_id() -> None:
    coordinator = with_epoch(Coordinator(), EPOCH_MAX - 1)

    last = coordinator.begin()
    rotated = coordinator.begin()

    assert last.identity == (1000, EPOCH_MAX)
    assert rotated.identity == (1001, 0)
    assert coordinator.end(last, committed=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_retry_of_the_change_of_producer_ids_gets_the_same() -> None:
    coordinator = with_epoch(Coordinator(), EPOCH_MAX)

    rotated = coordinator.begin(expected=(1000, EPOCH_MAX))

    assert rotated.identity == (1001, 0)
    assert coordinator.begin(expected=(1000, EPOCH_MAX)) == rotated
    assert coordinator.initialise(expected=(1000, EPOCH_MAX - 1)) == FENCED


def test_a_change_of_producer_ids_that_nobody_expected_is_not_remembered() -> None:
    coordinator = with_epoch(Coordinator(), EPOCH_MAX)
    coordinator.begin()

    assert coordinator.initialise(expected=(1000, EPOCH_MAX)) == FENCED


def test_a_fence_may_use_the_epoch_that_was_kept_back() -> None:
    coordinator = with_epoch(Coordinator(), EPOCH_MAX)
    assert coordinator.add(Producer("tx", 1000, EPOCH_MAX), A) == 0

    assert coordinator.initialise() == BUSY
    assert coordinator.sent[0].producer_epoch == EPOCH_MAX + 1
    coordinator.write_markers()

    assert coordinator.begin().identity == (1001, 0)


# -- limits ------------------------------------------------------------------------------------------------------------


def test_transactional_ids_per_instance_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_limits, "TRANSACTIONAL_IDS_PER_INSTANCE_MAX", 2)
    coordinator = Coordinator()
    for name in ("a", "b"):
        coordinator.begin(f"ins-aaaaaaaa.{name}")

    assert coordinator.initialise("ins-aaaaaaaa.c").error == ErrorCode.POLICY_VIOLATION
    assert coordinator.initialise("ins-aaaaaaaa.a").error == 0, "what is there goes on"
    assert coordinator.initialise("ins-bbbbbbbb.c").error == 0, "and another instance has room of its own"


def test_an_id_that_expired_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_limits, "TRANSACTIONAL_IDS_PER_INSTANCE_MAX", 1)
    settings = TransactionSettings(id_expiration_ms=10_000, id_expiration_check_interval_ms=1_000)
    coordinator = Coordinator(settings=settings)
    coordinator.begin("ins-aaaaaaaa.a")
    coordinator.loop.advance(12_000)

    assert coordinator.initialise("ins-aaaaaaaa.b").error == 0


def test_an_instance_with_as_many_ids_as_it_may_have_loses_those_that_nobody_used_for_a_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinator_limits, "TRANSACTIONAL_IDS_PER_INSTANCE_MAX", 2)
    coordinator = Coordinator()
    coordinator.begin("ins-aaaaaaaa.a")
    coordinator.begin("ins-bbbbbbbb.a")
    coordinator.loop.advance(FULL_INSTANCE_EXPIRATION_MS)
    coordinator.begin("ins-aaaaaaaa.b")
    assert coordinator.initialise("ins-aaaaaaaa.c").error == ErrorCode.POLICY_VIOLATION

    coordinator.loop.advance(2 * TransactionSettings().id_expiration_check_interval_ms)

    assert coordinator.initialise("ins-aaaaaaaa.c").error == 0
    assert coordinator.machine.registry.entry("ins-aaaaaaaa.a") is None
    assert coordinator.machine.registry.entry("ins-bbbbbbbb.a") is not None, "there is room"
