"""The end of a transaction: EndTxn, its completion once every partition has its marker (TXN-10…13), and fencing.

Fencing aborts an open transaction because a new producer takes over its id, or because it timed out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.limits import COMPLETION_RETRY_MS
from brokers.engine.coordinators.result import CoordinatorResult, Now
from brokers.engine.coordinators.transactions.entry import Entry
from brokers.engine.coordinators.transactions.metadata import TransactionMetadata
from brokers.engine.coordinators.transactions.registry import TransactionRegistry, record_of
from brokers.engine.coordinators.transactions.replies import SendMarkers, coordinator_error, fatal_refusal
from brokers.engine.coordinators.transactions.states import DECIDED, TransactionState
from brokers.engine.protocol.errors import ErrorCode

# (state, commit requested) → the answer when the outcome was decided before. Other pairs: INVALID_TXN_STATE.
_ANSWERS_AFTER_DECISION: Final[dict[tuple[TransactionState, bool], ErrorCode]] = {
    (TransactionState.COMPLETE_COMMIT, True): ErrorCode.NONE,
    (TransactionState.COMPLETE_ABORT, False): ErrorCode.NONE,
    (TransactionState.PREPARE_COMMIT, True): ErrorCode.CONCURRENT_TRANSACTIONS,
    (TransactionState.PREPARE_ABORT, False): ErrorCode.CONCURRENT_TRANSACTIONS,
}


def fence(
    registry: TransactionRegistry,
    metadata: TransactionMetadata,
    now: Now,
    *,
    reply: Any,
    make_error_reply: Callable[[int], Any],
) -> CoordinatorResult:
    """Decides to abort the transaction under a higher epoch, in one record so that no crash can separate the two.

    `make_error_reply(code)` makes the reply if the record cannot be written.
    """
    fenced = metadata.with_fencing_epoch(now.wall_ms)
    return CoordinatorResult(
        reply,
        [record_of(fenced)],
        effects=[markers_effect(registry, fenced)],
        on_refused=lambda code: CoordinatorResult(make_error_reply(code)),
        make_timeout_reply=make_error_reply,
    )


def markers_effect(registry: TransactionRegistry, decided: TransactionMetadata) -> SendMarkers:
    """Returns the effect that sends a decided transaction's markers to its partitions (TXN-12)."""
    return SendMarkers(
        transactional_id=decided.transactional_id,
        producer_id=decided.producer_id,
        producer_epoch=decided.producer_epoch,
        coordinator_epoch=registry.coordinator_epoch,
        committed=decided.state is TransactionState.PREPARE_COMMIT,
        partitions=decided.partitions,
    )


class CompletionTimer(NamedTuple):
    """Key of the timer that retries the completion of a transaction."""

    transactional_id: str


def end(
    registry: TransactionRegistry,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    now: Now,
) -> CoordinatorResult:
    """Decides to commit or abort a transaction. The reply is an error code, sent once the outcome is durable; the
    markers follow.
    """
    entry = registry.entry(transactional_id)
    metadata = None if entry is None else entry.visible
    if entry is not None and metadata is None:
        return CoordinatorResult(int(ErrorCode.CONCURRENT_TRANSACTIONS))
    if entry is None or metadata is None or metadata.producer_id != producer_id:
        return fatal_refusal(int(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    if metadata.producer_epoch != producer_epoch:
        return fatal_refusal(int(ErrorCode.PRODUCER_FENCED))
    if entry.pending:
        return CoordinatorResult(int(ErrorCode.CONCURRENT_TRANSACTIONS))
    if metadata.state is not TransactionState.ONGOING:
        code = _ANSWERS_AFTER_DECISION.get((metadata.state, committed), ErrorCode.INVALID_TXN_STATE)
        if code == ErrorCode.NONE:
            return _confirm_end(metadata)
        return fatal_refusal(int(code)) if code == ErrorCode.INVALID_TXN_STATE else CoordinatorResult(int(code))
    prepared = metadata.with_decision(committed, now.wall_ms)
    return CoordinatorResult(
        int(ErrorCode.NONE),
        [record_of(prepared)],
        effects=[markers_effect(registry, prepared)],
        on_refused=lambda code: CoordinatorResult(coordinator_error(code)),
        make_timeout_reply=coordinator_error,
    )


def _confirm_end(metadata: TransactionMetadata) -> CoordinatorResult:
    """Confirms a transaction that has already ended with the requested outcome.

    The record is written once more, because the append of a deposed coordinator fails. Otherwise such a coordinator,
    which has no record of this transaction, could confirm it by the end of the previous one.
    """
    return CoordinatorResult(
        int(ErrorCode.NONE),
        [record_of(metadata)],
        on_refused=lambda code: CoordinatorResult(coordinator_error(code)),
        make_timeout_reply=coordinator_error,
    )


def record_written_markers(
    registry: TransactionRegistry, sent: SendMarkers, partitions: Collection[PartitionKey], now: Now
) -> CoordinatorResult:
    """Records that `partitions` of `sent` have their marker or need none any more (TXN-12).

    The reply is False if the transaction no longer waits for these markers, True otherwise, also when this call
    completed it. Repeated and late calls are harmless.
    """
    entry = registry.entry(sent.transactional_id)
    metadata = None if entry is None else entry.visible
    if entry is None or metadata is None or not _matches(sent, registry, metadata):
        return CoordinatorResult(False)
    entry.pending_markers.difference_update(partitions)
    return complete(registry, sent.transactional_id, now)


def complete(registry: TransactionRegistry, transactional_id: str, now: Now) -> CoordinatorResult:
    """Writes the final record of a transaction if no partition waits for a marker (TXN-13). The reply is True."""
    entry = registry.entry(transactional_id)
    if entry is None or not _is_ready_to_complete(entry) or entry.visible is None:
        return CoordinatorResult(True)

    def on_refused(_: int) -> CoordinatorResult:
        key = CompletionTimer(transactional_id)
        return CoordinatorResult(True, timers=[(key, now.monotonic_ms + COMPLETION_RETRY_MS)])

    return CoordinatorResult(
        True, records=[record_of(entry.visible.with_markers_written(now.wall_ms))], on_refused=on_refused
    )


def _matches(sent: SendMarkers, registry: TransactionRegistry, metadata: TransactionMetadata) -> bool:
    """True if `sent` was sent by this coordinator epoch for the outcome that the transaction has now."""
    return (
        metadata.state in DECIDED
        and sent.coordinator_epoch == registry.coordinator_epoch
        and (sent.producer_id, sent.producer_epoch) == (metadata.producer_id, metadata.producer_epoch)
        and sent.committed == (metadata.state is TransactionState.PREPARE_COMMIT)
    )


def _is_ready_to_complete(entry: Entry) -> bool:
    metadata = entry.visible
    return metadata is not None and not entry.pending and metadata.state in DECIDED and not entry.pending_markers
