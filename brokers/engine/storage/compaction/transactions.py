"""Transactions as a run sees them: whose data was aborted, and which end markers have served (CMP-18, CMP-22). Pure.

Two passes over the same batches. `Outcomes` learns, from the markers, how each transaction of the head ended; `Markers`
then says of each batch what is to become of it. Transactions of the tail were judged by the run that cleaned it.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

from brokers.engine.records.batch import BatchHeader
from brokers.engine.records.control import ABORT


class Aborted(NamedTuple):
    """An aborted transaction: its first offset and that of its marker."""

    first_offset: int
    marker_offset: int


class Outcomes:
    """Fed with every batch of the head, and beyond it until nothing is open any more."""

    __slots__ = ("_aborted", "_open")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._aborted: dict[int, list[Aborted]] = {}

    @property
    def undecided(self) -> bool:
        return bool(self._open)

    def saw(self, header: BatchHeader, marker: int | None, *, beyond: bool = False) -> None:
        """`marker` is the kind of a control batch. `beyond` the head, only what ends an open transaction counts."""
        producer = header.producer_id
        if header.is_control:
            first = self._open.pop(producer, None)
            if marker == ABORT and first is not None:
                self._aborted.setdefault(producer, []).append(Aborted(first, header.base_offset))
        elif header.is_transactional and not beyond:
            self._open.setdefault(producer, header.base_offset)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the data batch belongs to an aborted transaction."""
        result = self._aborted.get(header.producer_id)
        if result is None or not header.is_transactional or header.is_control:
            return False
        at = bisect_left(result, header.last_offset, key=lambda one: one.marker_offset)
        return at < len(result) and result[at].first_offset <= header.base_offset


class Markers:
    """Fed, in order, with every batch of the segments that are rewritten."""

    __slots__ = ("_with_data",)

    def __init__(self) -> None:
        self._with_data: set[int] = set()

    def has_served(self, header: BatchHeader) -> bool:
        """Of a control batch, whether nothing is left of its transaction; of a data batch, False."""
        if header.is_control:
            if header.record_count and header.producer_id in self._with_data:
                self._with_data.remove(header.producer_id)
                return False
            return True
        if header.is_transactional:
            self._with_data.add(header.producer_id)
        return False
