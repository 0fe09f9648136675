"""InitProducerId with a transactional id: who may write under it from here on (TXN-5, TXN-6)."""

from __future__ import annotations

from brokers.engine.coordinators.result import CoordinatorResult, Now
from brokers.engine.coordinators.transactions.entry import Entry, Previous
from brokers.engine.coordinators.transactions.fencing import fence
from brokers.engine.coordinators.transactions.metadata import (
    EPOCH_MAX,
    NO_EPOCH,
    TransactionMetadata,
    first,
)
from brokers.engine.coordinators.transactions.registry import TransactionRegistry, instance_of, record_of
from brokers.engine.coordinators.transactions.replies import NEEDS_PRODUCER_ID, Initialised, coordinator_error, final
from brokers.engine.coordinators.transactions.states import DECIDED, State
from brokers.engine.protocol.errors import ErrorCode

# A producer id with its epoch, as a client believes to have them.
Expected = tuple[int, int]


def init_producer_id(
    registry: TransactionRegistry,
    transactional_id: str,
    timeout_ms: int,
    expected: Expected | None,
    fresh_producer_id: int | None,
    now: Now,
) -> CoordinatorResult:
    """Answers Initialised. `expected` is what the client has; `fresh_producer_id` one that nobody has, which is taken
    when it is needed; without one, NEEDS_PRODUCER_ID is answered then.
    """
    if not 0 < timeout_ms <= registry.settings.timeout_ms_max:
        return CoordinatorResult(Initialised(int(ErrorCode.INVALID_TRANSACTION_TIMEOUT)))
    entry = registry.entry(transactional_id)
    if entry is None:
        return _first(registry, transactional_id, timeout_ms, fresh_producer_id, now)
    known = entry.visible
    if entry.pending or known is None:
        return CoordinatorResult(Initialised(int(ErrorCode.CONCURRENT_TRANSACTIONS)))
    if expected is not None and not _is_plausible(expected, known, entry.previous):
        return final(Initialised(int(ErrorCode.PRODUCER_FENCED)))
    if known.state in DECIDED:
        return CoordinatorResult(Initialised(int(ErrorCode.CONCURRENT_TRANSACTIONS)))
    if known.state is State.ONGOING:
        # The epoch of the fence is given to nobody: the retry gets one more. Kafka lets an old epoch of the right
        # producer id come so far, too; the retry is refused then.
        fenced = Initialised(int(ErrorCode.CONCURRENT_TRANSACTIONS))
        return fence(registry, known, now, reply=fenced, failed=_failed)
    return _again(entry, known, timeout_ms, expected, fresh_producer_id, now)


def _first(
    registry: TransactionRegistry, transactional_id: str, timeout_ms: int, fresh_producer_id: int | None, now: Now
) -> CoordinatorResult:
    """Whatever the client believes to have, nothing is known of it (TXN-6)."""
    if not registry.has_room(instance_of(transactional_id)):
        return CoordinatorResult(Initialised(int(ErrorCode.POLICY_VIOLATION)))
    if fresh_producer_id is None:
        return CoordinatorResult(NEEDS_PRODUCER_ID)
    return _initialised(first(transactional_id, fresh_producer_id, timeout_ms, now.wall_ms))


def _is_plausible(expected: Expected, known: TransactionMetadata, previous: Previous) -> bool:
    """The producer has this producer id, or had the one before until its epochs were used up."""
    producer_id, producer_epoch = expected
    if producer_id == known.producer_id:
        return True
    return producer_id == previous.producer_id and producer_epoch >= EPOCH_MAX


def _again(
    entry: Entry,
    known: TransactionMetadata,
    timeout_ms: int,
    expected: Expected | None,
    fresh_producer_id: int | None,
    now: Now,
) -> CoordinatorResult:
    """The id is at rest: the next epoch of its producer id, or another producer id when there is none."""
    expected_epoch = None if expected is None else expected[1]
    is_current = expected_epoch == known.producer_epoch and expected is not None and expected[0] == known.producer_id
    if expected is not None and not is_current:
        if expected_epoch != entry.previous.producer_epoch:
            return final(Initialised(int(ErrorCode.PRODUCER_FENCED)))
        # It asks for what it was given already, because the answer did not arrive.
        entry.previous_next = Previous(known.producer_id, entry.previous.producer_epoch)
        return _initialised(known.initialised(known.producer_id, known.producer_epoch, timeout_ms, now.wall_ms))
    remembered = NO_EPOCH if expected is None else known.producer_epoch
    if not known.epochs_used_up:
        producer_id, producer_epoch = known.producer_id, known.producer_epoch + 1
    elif fresh_producer_id is not None:
        producer_id, producer_epoch = fresh_producer_id, 0
    else:
        return CoordinatorResult(NEEDS_PRODUCER_ID)
    entry.previous_next = Previous(known.producer_id, remembered)
    return _initialised(known.initialised(producer_id, producer_epoch, timeout_ms, now.wall_ms))


def _initialised(metadata: TransactionMetadata) -> CoordinatorResult:
    return CoordinatorResult(
        Initialised(int(ErrorCode.NONE), metadata.producer_id, metadata.producer_epoch),
        [record_of(metadata)],
        refused=_refused,
        late=_failed,
    )


def _failed(code: int) -> Initialised:
    return Initialised(coordinator_error(code))


def _refused(code: int) -> CoordinatorResult:
    return CoordinatorResult(_failed(code))
