"""InitProducerId with a transactional id: decides which producer may use the id from now on (TXN-5, TXN-6)."""

from __future__ import annotations

from brokers.engine.coordinators.result import CoordinatorResult, Now
from brokers.engine.coordinators.transactions.ending import fence
from brokers.engine.coordinators.transactions.entry import Entry, PreviousProducer
from brokers.engine.coordinators.transactions.metadata import (
    EPOCH_MAX,
    NO_EPOCH,
    TransactionMetadata,
    new_metadata,
)
from brokers.engine.coordinators.transactions.registry import TransactionRegistry, instance_of, record_of
from brokers.engine.coordinators.transactions.replies import (
    NEEDS_PRODUCER_ID,
    InitProducerIdReply,
    coordinator_error,
    fatal_refusal,
)
from brokers.engine.coordinators.transactions.states import DECIDED, TransactionState
from brokers.engine.protocol.errors import ErrorCode

# The producer id and epoch that a client says it has.
ExpectedProducer = tuple[int, int]


def init_producer_id(
    registry: TransactionRegistry,
    transactional_id: str,
    timeout_ms: int,
    expected: ExpectedProducer | None,
    fresh_producer_id: int | None,
    now: Now,
) -> CoordinatorResult:
    """Assigns a producer id and epoch; the reply is an `InitProducerIdReply`.

    `expected` is the producer id and epoch that the client has, None for a new producer. `fresh_producer_id` is an
    unused producer id. If one is needed and it is None, the reply is NEEDS_PRODUCER_ID.
    """
    if not 0 < timeout_ms <= registry.settings.timeout_ms_max:
        return CoordinatorResult(InitProducerIdReply(int(ErrorCode.INVALID_TRANSACTION_TIMEOUT)))
    entry = registry.entry(transactional_id)
    if entry is None:
        return _assign_first_producer_id(registry, transactional_id, timeout_ms, fresh_producer_id, now)
    metadata = entry.visible
    if entry.pending or metadata is None:
        return CoordinatorResult(InitProducerIdReply(int(ErrorCode.CONCURRENT_TRANSACTIONS)))
    if expected is not None and not _is_plausible(expected, metadata, entry.previous):
        return fatal_refusal(InitProducerIdReply(int(ErrorCode.PRODUCER_FENCED)))
    if metadata.state in DECIDED:
        return CoordinatorResult(InitProducerIdReply(int(ErrorCode.CONCURRENT_TRANSACTIONS)))
    if metadata.state is TransactionState.ONGOING:
        # No client gets the epoch of the fence; the retry gets the next one. An old epoch of the right producer id may
        # fence as well, as in Kafka; its retry is refused.
        fenced = InitProducerIdReply(int(ErrorCode.CONCURRENT_TRANSACTIONS))
        return fence(registry, metadata, now, reply=fenced, make_error_reply=_error_reply)
    return _reinitialise(entry, metadata, timeout_ms, expected, fresh_producer_id, now)


def _assign_first_producer_id(
    registry: TransactionRegistry, transactional_id: str, timeout_ms: int, fresh_producer_id: int | None, now: Now
) -> CoordinatorResult:
    """Assigns epoch 0 of a fresh producer id to an unknown transactional id, whatever the client expects (TXN-6)."""
    if not registry.may_add_transactional_id(instance_of(transactional_id)):
        return CoordinatorResult(InitProducerIdReply(int(ErrorCode.POLICY_VIOLATION)))
    if fresh_producer_id is None:
        return CoordinatorResult(NEEDS_PRODUCER_ID)
    return _initialised_result(new_metadata(transactional_id, fresh_producer_id, timeout_ms, now.wall_ms))


def _is_plausible(expected: ExpectedProducer, metadata: TransactionMetadata, previous: PreviousProducer) -> bool:
    """True if the client has the current producer id, or the previous one with its epochs used up."""
    producer_id, producer_epoch = expected
    if producer_id == metadata.producer_id:
        return True
    return producer_id == previous.producer_id and producer_epoch >= EPOCH_MAX


def _reinitialise(
    entry: Entry,
    metadata: TransactionMetadata,
    timeout_ms: int,
    expected: ExpectedProducer | None,
    fresh_producer_id: int | None,
    now: Now,
) -> CoordinatorResult:
    """Assigns the next epoch of the producer id to an id at rest, or a fresh producer id if its epochs are used up."""
    expected_epoch = None if expected is None else expected[1]
    is_current = (
        expected_epoch == metadata.producer_epoch and expected is not None and expected[0] == metadata.producer_id
    )
    if expected is not None and not is_current:
        if expected_epoch != entry.previous.producer_epoch:
            return fatal_refusal(InitProducerIdReply(int(ErrorCode.PRODUCER_FENCED)))
        # A retry of a call whose answer was lost: the client gets the same producer id and epoch again.
        entry.previous_after_init = PreviousProducer(metadata.producer_id, entry.previous.producer_epoch)
        return _initialised_result(
            metadata.with_producer(metadata.producer_id, metadata.producer_epoch, timeout_ms, now.wall_ms)
        )
    previous_epoch = NO_EPOCH if expected is None else metadata.producer_epoch
    if not metadata.has_used_up_epochs:
        producer_id, producer_epoch = metadata.producer_id, metadata.producer_epoch + 1
    elif fresh_producer_id is not None:
        producer_id, producer_epoch = fresh_producer_id, 0
    else:
        return CoordinatorResult(NEEDS_PRODUCER_ID)
    entry.previous_after_init = PreviousProducer(metadata.producer_id, previous_epoch)
    return _initialised_result(metadata.with_producer(producer_id, producer_epoch, timeout_ms, now.wall_ms))


def _initialised_result(metadata: TransactionMetadata) -> CoordinatorResult:
    return CoordinatorResult(
        InitProducerIdReply(int(ErrorCode.NONE), metadata.producer_id, metadata.producer_epoch),
        [record_of(metadata)],
        on_refused=_refused_result,
        make_timeout_reply=_error_reply,
    )


def _error_reply(code: int) -> InitProducerIdReply:
    return InitProducerIdReply(coordinator_error(code))


def _refused_result(code: int) -> CoordinatorResult:
    return CoordinatorResult(_error_reply(code))
