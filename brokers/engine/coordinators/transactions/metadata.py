"""Metadata of one transactional id, as a record stores it, and the transitions from one record to the next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.transactions.states import TransactionState, may_follow

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME_MS: Final = -1
# Highest epoch that a producer gets; the one above is reserved for fencing it (TXN-6).
EPOCH_MAX: Final = 32_766

NO_PARTITIONS: Final[frozenset[PartitionKey]] = frozenset()


class TransactionMetadata(NamedTuple):
    """Metadata of one transactional id: its producer, and the state of its transaction.

    `partitions` have internal topic names. `start_ms` and `last_update_ms` are wall time; `start_ms` is -1 before the
    first partition of a transaction.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[PartitionKey]
    last_update_ms: int
    start_ms: int

    def with_producer(self, producer_id: int, producer_epoch: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """Returns the metadata after InitProducerId: state Empty with this producer (TXN-5)."""
        return self._transition_to(
            TransactionState.EMPTY,
            now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timeout_ms=timeout_ms,
            partitions=NO_PARTITIONS,
            start_ms=NO_TIME_MS,
        )

    def with_partitions(self, added: Iterable[PartitionKey], now_ms: int) -> TransactionMetadata:
        """Returns the metadata with more partitions; the first one starts the transaction's clock (TXN-7)."""
        start_ms = self.start_ms if self.state is TransactionState.ONGOING else now_ms
        return self._transition_to(
            TransactionState.ONGOING, now_ms, partitions=self.partitions.union(added), start_ms=start_ms
        )

    def with_decision(self, committed: bool, now_ms: int) -> TransactionMetadata:
        """Returns the metadata in the state that decides to commit or abort; it is final once durable (TXN-11)."""
        return self._transition_to(
            TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT, now_ms
        )

    def with_fencing_epoch(self, now_ms: int) -> TransactionMetadata:
        """Returns the metadata in state PrepareAbort, with an epoch that no client has (TXN-5, TXN-17).

        Every partition then refuses the producer.
        """
        return self._transition_to(TransactionState.PREPARE_ABORT, now_ms, producer_epoch=self.producer_epoch + 1)

    def with_markers_written(self, now_ms: int) -> TransactionMetadata:
        """Returns the metadata after every partition got its marker (TXN-13)."""
        after = (
            TransactionState.COMPLETE_COMMIT
            if self.state is TransactionState.PREPARE_COMMIT
            else TransactionState.COMPLETE_ABORT
        )
        return self._transition_to(after, now_ms, partitions=NO_PARTITIONS)

    @property
    def has_used_up_epochs(self) -> bool:
        """True if the next producer needs another producer id."""
        return self.producer_epoch >= EPOCH_MAX

    @property
    def is_fencing_epoch(self) -> bool:
        """True if the epoch is the one reserved for fencing, which no client was given."""
        return self.producer_epoch > EPOCH_MAX

    def is_overdue(self, now_ms: int) -> bool:
        """True if the transaction is open for longer than its time-out (TXN-17, DEC-14)."""
        return self.state is TransactionState.ONGOING and self.start_ms + self.timeout_ms < now_ms

    def _transition_to(self, state: TransactionState, now_ms: int, **changes: Any) -> TransactionMetadata:
        assert may_follow(self.state, state), f"{state!r} after {self.state!r}"
        # A clock that was set back must not give a record an earlier time than the previous one.
        return self._replace(state=state, last_update_ms=max(now_ms, self.last_update_ms), **changes)


def new_metadata(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """Returns the metadata of a new or expired transactional id: epoch 0 of a new producer id (TXN-5)."""
    return TransactionMetadata(
        transactional_id, producer_id, 0, timeout_ms, TransactionState.EMPTY, NO_PARTITIONS, now_ms, NO_TIME_MS
    )
