"""Fencing: aborts an open transaction because a new producer takes over its id, or because it timed out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from brokers.engine.coordinators.result import CoordinatorResult, Now
from brokers.engine.coordinators.transactions.metadata import TransactionMetadata
from brokers.engine.coordinators.transactions.registry import TransactionRegistry, record_of
from brokers.engine.coordinators.transactions.replies import SendMarkers
from brokers.engine.coordinators.transactions.states import TransactionState


def fence(
    registry: TransactionRegistry, metadata: TransactionMetadata, now: Now, *, reply: Any, failed: Callable[[int], Any]
) -> CoordinatorResult:
    """Decides to abort the transaction under a higher epoch, in one record so that no crash can separate the two.

    `failed(code)` makes the reply if the record cannot be written.
    """
    fenced = metadata.fenced(now.wall_ms)
    return CoordinatorResult(
        reply,
        [record_of(fenced)],
        effects=[markers_effect(registry, fenced)],
        on_refused=lambda code: CoordinatorResult(failed(code)),
        timeout_reply=failed,
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
