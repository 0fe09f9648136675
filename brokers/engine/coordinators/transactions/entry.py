"""One transactional id in memory: what is committed of it, and what is on the way to be."""

from __future__ import annotations

from typing import Final, NamedTuple

from brokers.contract.partitions import PartitionKey
from brokers.engine.coordinators.transactions.metadata import NO_EPOCH, NO_PRODUCER_ID, TransactionMetadata
from brokers.engine.coordinators.transactions.states import DECIDED, State


class Previous(NamedTuple):
    """The producer before the last bump, so that a repeated InitProducerId is known as such. The epoch is -1 when
    that bump was not asked for by the producer itself (TXN-6).
    """

    producer_id: int
    producer_epoch: int


NOBODY: Final = Previous(NO_PRODUCER_ID, NO_EPOCH)


class Entry:
    """`visible` is the last committed record and what decisions are made on.

    While `written` is another one it is pending: its record is appended, and may still be lost with this leader.
    Nothing else is decided until it is known (TXN-4). While `visible` is None it is not even known what was committed
    before: the id is new, or was loaded from beyond the high watermark, which lags in a new leader.
    `owed` are the partitions whose markers are not confirmed.
    """

    __slots__ = ("offset", "owed", "previous", "previous_next", "visible", "written")

    def __init__(self) -> None:
        self.visible: TransactionMetadata | None = None
        self.written: TransactionMetadata | None = None
        self.offset = -1
        self.owed: set[PartitionKey] = set()
        self.previous = NOBODY
        # What `previous` becomes with the next record of state Empty, which is decided together with it. Kafka does not
        # keep it in the log either.
        self.previous_next = NOBODY

    def write(self, metadata: TransactionMetadata | None, offset: int) -> None:
        """A record at `offset`; None deletes."""
        before = self.written
        if metadata is None or metadata.state not in DECIDED:
            self.owed = set()
        elif before is None or before.state not in DECIDED:
            self.owed = set(metadata.partitions)
        if metadata is not None and before is not None:
            if metadata.state is State.EMPTY:
                self.previous = self.previous_next
            elif metadata.producer_epoch != before.producer_epoch:
                # Fenced: whoever had the epoch before does not get on by repeating itself.
                self.previous = NOBODY
        self.written = metadata
        self.offset = offset

    def complete(self, high_watermark: int) -> None:
        """Everything below `high_watermark` is committed."""
        if self.offset < high_watermark:
            self.visible = self.written

    @property
    def pending(self) -> bool:
        return self.visible is not self.written

    @property
    def is_gone(self) -> bool:
        """Deleted, for good."""
        return self.written is None and self.visible is None
