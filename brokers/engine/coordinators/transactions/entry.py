"""In-memory entry of one transactional id: its committed record, and the one that is pending."""

from __future__ import annotations

from typing import Final, NamedTuple

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.transactions.metadata import NO_EPOCH, NO_PRODUCER_ID, TransactionMetadata
from brokers.engine.coordinators.transactions.states import DECIDED, TransactionState


class PreviousProducer(NamedTuple):
    """The producer id and epoch before the last bump, by which a repeated InitProducerId is recognised.

    The epoch is -1 if the producer did not request that bump itself (TXN-6).
    """

    producer_id: int
    producer_epoch: int


NO_PREVIOUS: Final = PreviousProducer(NO_PRODUCER_ID, NO_EPOCH)


class Entry:
    """State of one transactional id.

    Attributes:
        visible: the last committed record, on which decisions are based. None if no committed record is known: the id
            is new, or its record lies above the high watermark, which lags in a new leader.
        written: the last appended record. While it differs from `visible` it is pending and may be lost with this
            leader, so no further decision is made (TXN-4).
        offset: log offset of `written`.
        pending_markers: partitions whose markers are not confirmed.
        previous: the producer before the last bump.
        previous_after_init: value of `previous` after the next record of state Empty, which is decided together with
            it. Kafka does not store it in the log either.
    """

    __slots__ = ("offset", "pending_markers", "previous", "previous_after_init", "visible", "written")

    def __init__(self) -> None:
        self.visible: TransactionMetadata | None = None
        self.written: TransactionMetadata | None = None
        self.offset = -1
        self.pending_markers: set[PartitionKey] = set()
        self.previous = NO_PREVIOUS
        self.previous_after_init = NO_PREVIOUS

    def write(self, metadata: TransactionMetadata | None, offset: int) -> None:
        """Applies the record at `offset`; `metadata` None deletes the id."""
        before = self.written
        if metadata is None or metadata.state not in DECIDED:
            self.pending_markers = set()
        elif before is None or before.state not in DECIDED:
            self.pending_markers = set(metadata.partitions)
        if metadata is not None and before is not None:
            if metadata.state is TransactionState.EMPTY:
                self.previous = self.previous_after_init
            elif metadata.producer_epoch != before.producer_epoch:
                # Fenced: the producer with the previous epoch cannot continue by repeating its InitProducerId.
                self.previous = NO_PREVIOUS
        self.written = metadata
        self.offset = offset

    def advance(self, high_watermark: int) -> None:
        """Makes the written record visible if it is below the high watermark."""
        if self.offset < high_watermark:
            self.visible = self.written

    @property
    def pending(self) -> bool:
        """True while the last appended record is not known to be committed."""
        return self.visible is not self.written

    @property
    def is_deleted(self) -> bool:
        """True if the deletion of the id is committed."""
        return self.written is None and self.visible is None
