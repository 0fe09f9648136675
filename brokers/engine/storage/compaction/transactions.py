"""Transactions in a cleaning run: aborted data and end markers that may be removed (CMP-18, CMP-22). Pure.

There are two passes over the same batches. `Outcomes` learns from the markers how each transaction of the head ended;
`Markers` then decides about each batch. Transactions of the tail were decided by the run that cleaned it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from brokers.engine.records.batch import BatchHeader
from brokers.engine.records.control import ABORT


class AbortedSpan(NamedTuple):
    """An aborted transaction: its first offset and the offset of its marker."""

    first_offset: int
    marker_offset: int


class Outcomes:
    """Outcomes of transactions, from every batch of the head, and of later ones until no transaction is open."""

    __slots__ = ("_aborted_by_producer", "_first_offset_by_producer")

    def __init__(self) -> None:
        self._first_offset_by_producer: dict[int, int] = {}
        self._aborted_by_producer: dict[int, list[AbortedSpan]] = {}

    @property
    def has_undecided(self) -> bool:
        """True if a transaction has begun whose marker has not been added yet."""
        return bool(self._first_offset_by_producer)

    def add_batch(self, header: BatchHeader, marker: int | None, *, is_beyond_head: bool = False) -> None:
        """Adds a batch; `marker` is the type of a control batch.

        With `is_beyond_head` only ends of open transactions count.
        """
        producer = header.producer_id
        if header.is_control:
            first_offset = self._first_offset_by_producer.pop(producer, None)
            if marker == ABORT and first_offset is not None:
                self._aborted_by_producer.setdefault(producer, []).append(AbortedSpan(first_offset, header.base_offset))
        elif header.is_transactional and not is_beyond_head:
            self._first_offset_by_producer.setdefault(producer, header.base_offset)

    def is_aborted(self, header: BatchHeader) -> bool:
        """True if the data batch belongs to an aborted transaction."""
        transactions = self._aborted_by_producer.get(header.producer_id)
        if transactions is None or not header.is_transactional or header.is_control:
            return False
        number = bisect_left(transactions, header.last_offset, key=lambda aborted: aborted.marker_offset)
        return number < len(transactions) and transactions[number].first_offset <= header.base_offset


class Markers:
    """Determines which end markers still have data, from every batch of the rewritten segments in order."""

    __slots__ = ("_producers_with_data",)

    def __init__(self) -> None:
        self._producers_with_data: set[int] = set()

    def process(self, header: BatchHeader) -> bool:
        """Processes the next batch. Returns True for a control batch whose transaction has no data left."""
        if header.is_control:
            if header.record_count and header.producer_id in self._producers_with_data:
                self._producers_with_data.remove(header.producer_id)
                return False
            return True
        if header.is_transactional:
            self._producers_with_data.add(header.producer_id)
        return False
