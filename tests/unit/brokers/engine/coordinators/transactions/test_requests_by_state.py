"""Every request in every state of a transaction, by the producer that sends it and the pending record (TXN-4…7, TXN-10,
TXN-27, TXN-28). The codes of the table are those of Apache Kafka 3.9.
"""

from __future__ import annotations

from itertools import product
from typing import Final

import pytest

from brokers.engine.coordinators.transactions.replies import InitProducerIdReply
from brokers.engine.coordinators.transactions.states import PREVIOUS, TransactionState, may_follow
from brokers.engine.protocol.errors import ErrorCode
from tests.unit.brokers.engine.coordinators.fakes import Call
from tests.unit.brokers.engine.coordinators.transactions.coordinator import A, B, Coordinator, Producer, brought_to

OTHER = ("ins-aaaaaaaa.other", 9)
NONE, BUSY, INVALID_STATE = 0, int(ErrorCode.CONCURRENT_TRANSACTIONS), int(ErrorCode.INVALID_TXN_STATE)
FENCED, UNMAPPED = int(ErrorCode.PRODUCER_FENCED), int(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
ABORTABLE = int(ErrorCode.TRANSACTION_ABORTABLE)
E, O, PC, PA, CC, CA = (  # noqa: E741
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
STATES: Final = (E, O, PC, PA, CC, CA)

# Codes by request, one for each of STATES; the request comes from the producer that the coordinator knows.
TABLE: Final = {
    "initialise": (NONE, BUSY, BUSY, BUSY, NONE, NONE),
    "add a partition": (NONE, NONE, BUSY, BUSY, NONE, NONE),
    "add one that is in": (NONE, NONE, BUSY, BUSY, NONE, NONE),
    "commit": (INVALID_STATE, NONE, BUSY, INVALID_STATE, NONE, INVALID_STATE),
    "abort": (INVALID_STATE, NONE, INVALID_STATE, BUSY, INVALID_STATE, NONE),
    "verify one that is in": (ABORTABLE, NONE, BUSY, BUSY, ABORTABLE, ABORTABLE),
    "verify another": (ABORTABLE, ABORTABLE, BUSY, BUSY, ABORTABLE, ABORTABLE),
}


def ask(coordinator: Coordinator, request: str, producer: Producer) -> int:
    """Send a request and return the error code of its reply, after replicating the log if the reply waits for it."""
    match request:
        case "initialise":
            reply = coordinator.initialise(producer.transactional_id)
        case "initialise as expected":
            reply = coordinator.initialise(producer.transactional_id, expected=producer.identity)
        case "add a partition":
            reply = coordinator.add(producer, OTHER)
        case "add one that is in":
            reply = coordinator.add(producer, A)
        case "commit":
            reply = coordinator.end(producer, committed=True)
        case "abort":
            reply = coordinator.end(producer, committed=False)
        case "verify one that is in":
            reply = coordinator.verify(producer, A)[A]
        case "verify another":
            reply = coordinator.verify(producer, OTHER)[OTHER]
        case _:
            raise AssertionError(request)
    if isinstance(reply, Call):
        coordinator.log.replicate()
        (reply,) = reply.replies
    return reply.error if isinstance(reply, InitProducerIdReply) else int(reply)


@pytest.mark.parametrize(("state", "request_"), list(product(STATES, TABLE)), ids=str)
def test_the_known_producer_is_answered_by_the_state(state: TransactionState, request_: str) -> None:
    coordinator, producer = brought_to(state)

    assert ask(coordinator, request_, producer) == TABLE[request_][STATES.index(state)]


@pytest.mark.parametrize(("state", "request_"), list(product(STATES, list(TABLE)[1:])), ids=str)
def test_another_producer_id_is_no_producer_of_this_id(state: TransactionState, request_: str) -> None:
    coordinator, producer = brought_to(state)
    stranger = producer._replace(producer_id=producer.producer_id + 1)

    assert ask(coordinator, request_, stranger) == UNMAPPED
    assert coordinator.describe().partitions == ([A, B] if state in (O, PC, PA) else [])


@pytest.mark.parametrize("request_", list(TABLE)[1:])
def test_an_unknown_id_has_no_producer(request_: str) -> None:
    assert ask(Coordinator(), request_, Producer("unknown", 1, 0)) == UNMAPPED


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize(("state", "request_"), list(product(STATES, list(TABLE)[1:])), ids=str)
def test_another_epoch_is_fenced_whichever_way(state: TransactionState, request_: str, by: int) -> None:
    """TXN-26: requests of a zombie have no effect."""
    coordinator = Coordinator()
    coordinator.begin()
    _, producer = brought_to(state, coordinator)
    before = len(coordinator.log.batches)

    assert ask(coordinator, request_, producer._replace(producer_epoch=producer.producer_epoch + by)) == FENCED
    assert len(coordinator.log.batches) == before


CHANGES: Final = {
    "begins": (E, "initialise"),
    "gets a partition": (O, "add a partition"),
    "commits": (O, "commit"),
    "aborts": (O, "abort"),
    "is fenced": (O, "initialise"),
    "completes": (PC, None),
}


@pytest.mark.parametrize("request_", list(TABLE))
@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_decided_while_a_record_is_not_committed(change: str, request_: str) -> None:
    """TXN-4: no request acts on a record that a failing leader could still lose."""
    state, cause = CHANGES[change]
    coordinator, producer = brought_to(state)
    coordinator.log.stops_committing()
    if cause is None:
        coordinator.write_markers()
    else:
        operation = {
            "initialise": lambda: coordinator.initialise(),
            "add a partition": lambda: coordinator.add(producer, OTHER),
            "commit": lambda: coordinator.end(producer, True),
            "abort": lambda: coordinator.end(producer, False),
        }[cause]
        assert isinstance(operation(), Call)
    before = len(coordinator.log.batches)

    code = ask(coordinator, request_, producer)

    if request_.startswith("verify"):
        assert code == TABLE[request_][STATES.index(state)], "a verification tells of what is committed"
    else:
        assert code == BUSY
    assert len(coordinator.log.batches) == before


def test_only_the_lawful_steps_are_lawful() -> None:
    """The transitions are those of TXN-4."""
    lawful = {
        (E, E), (CC, E), (CA, E),
        (O, O), (E, O), (CC, O), (CA, O),
        (O, PC),
        (O, PA), (TransactionState.PREPARE_EPOCH_FENCE, PA),
        (PC, CC),
        (PA, CA),
        (E, TransactionState.DEAD), (CC, TransactionState.DEAD), (CA, TransactionState.DEAD),
        (O, TransactionState.PREPARE_EPOCH_FENCE),
    }  # fmt: skip
    assert {
        (before, after) for before in TransactionState for after in TransactionState if may_follow(before, after)
    } == lawful
    assert set(PREVIOUS) == set(TransactionState)
