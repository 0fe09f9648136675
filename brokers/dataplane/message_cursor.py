"""Cursor of one partition for a page of messages, towards newer or older offsets. Pure.

Kafka reads forward only. Towards older offsets a cursor requests windows of offsets, each of which must arrive
completely: a window that is too large for a response is halved, down to a single offset, whose batch always arrives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from brokers.dataplane.inflating import DamagedBatch, TooLarge
from brokers.dataplane.record_batches import Batch, records
from brokers.dataplane.record_search import PassedOver, search
from instances.messages.interfaces import (
    ABORTED,
    COMMITTED,
    DAMAGED,
    NEWER,
    OLDER,
    TOO_LARGE,
    Record,
    Transaction,
    Unreadable,
)

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
# Maximum number of offsets that are requested at a time, and the factor by which a request exceeds the one before.
WINDOW_MAX: Final = 10_000
WINDOW_GROWTH: Final = 4
PARTITION_BYTES_MIN: Final = 65_536
PARTITION_BYTES_MAX: Final = 1_048_576
# Expected bytes per offset before the first response.
RECORD_BYTES_GUESS: Final = 500
# Factor by which more bytes are requested than the offsets are expected to take.
SLACK: Final = 1.25
# Batches with more records are not shown: finding the last of them would take too long.
BATCH_RECORDS_MAX: Final = 500_000
# Number of successive empty responses after which a partition counts as unavailable.
EMPTY_RESPONSES_MAX: Final = 3

# Decompresses a batch. Raises `DamagedBatch`, `TooLarge`, and `BudgetExhausted` if the page's budget is used up.
Inflate = Callable[[Batch], "bytes | memoryview"]


# What a cursor comes to next: a record, or records that are passed over together.
Head = Record | PassedOver


class BudgetExhausted(Exception):
    """The page has used up its budget."""


@dataclass(frozen=True, slots=True)
class FetchRange:
    """Next range that a cursor needs: from `offset` to below `stop`; the response may contain more."""

    offset: int
    stop: int
    isolation: int
    bytes_max: int


@dataclass(slots=True)
class _Loaded:
    """A fetched batch; `state` is that of its transaction, None if it is undecided."""

    batch: Batch
    state: str | None


class PartitionCursor:
    """Position of one partition in a page, with its fetched batches.

    Reading continues at `position`, which is exclusive towards OLDER. Every transaction below `stable` is decided.
    Records that lack all alternatives of one of `literals` are passed over.
    """

    def __init__(
        self,
        index: int,
        *,
        start: int,
        end: int,
        stable: int,
        position: int,
        direction: str,
        window: int,
        literals: Sequence[Sequence[bytes]] = (),
    ) -> None:
        self.index, self.direction = index, direction
        self.start, self.end, self.stable = start, end, stable
        self.position = self.began = min(max(position, start), end)
        self.is_unavailable = False
        self.unreadable: list[Unreadable] = []
        self._window = window
        self._literals = literals
        self._bytes_per_offset = float(RECORD_BYTES_GUESS)
        # Largest batch of the last response: a window begins in the middle of one, which arrives from its start.
        self._batch_bytes = 0
        self._empty_responses = 0
        self._loaded: deque[_Loaded] = deque()
        self._loaded_bytes = 0
        # Position after all that is loaded, at which the next range begins.
        self._after_loaded = self.position
        self._head: Head | None = None
        self._records: Iterator[Head] | None = None

    @property
    def is_finished(self) -> bool:
        """True if nothing is left in the direction of reading."""
        return self.position >= self.end if self.direction == NEWER else self.position <= self.start

    @property
    def needs_data(self) -> bool:
        """True if records must be fetched before `peek` can return one."""
        return self._head is None and not self._loaded and not self.is_finished and not self.is_unavailable

    @property
    def loaded_bytes(self) -> int:
        """Size of the batches that are fetched and not read to their ends."""
        return self._loaded_bytes

    @property
    def takes_more(self) -> bool:
        """True if what comes after the loaded records may be fetched already."""
        is_all_loaded = (
            self._after_loaded >= self.end if self.direction == NEWER else self._after_loaded <= self.start
        )  # fmt: skip
        return not is_all_loaded and not self.is_unavailable and self._loaded_bytes <= PARTITION_BYTES_MAX

    def next_range(self) -> FetchRange:
        """Returns the range to fetch next, after all that is loaded; only to be called if any is left."""
        isolation, position = READ_COMMITTED, self._after_loaded
        if self.direction == NEWER:
            if position >= self.stable:
                isolation = READ_UNCOMMITTED
            return FetchRange(position, self.end, isolation, self._bytes_of(self._window))
        fitting = int((PARTITION_BYTES_MAX - self._batch_bytes) / (self._bytes_per_offset * SLACK))
        window = max(1, min(self._window, fitting))
        low = max(self.start, position - window)
        if position > self.stable:
            low, isolation = max(low, self.stable), READ_UNCOMMITTED
        return FetchRange(low, position, isolation, self._bytes_of(position - low, self._batch_bytes))

    def add_batches(
        self, requested: FetchRange, batches: Sequence[Batch], size_bytes: int, aborted: Sequence[tuple[int, int]]
    ) -> None:
        """Adds the response to `requested`; `aborted` are (producer id, first offset) of aborted transactions."""
        if not batches:
            self._empty_responses += 1
            self.is_unavailable = self._empty_responses >= EMPTY_RESPONSES_MAX
            return
        self._empty_responses = 0
        covered = batches[-1].last_offset + 1
        self._bytes_per_offset = max(1.0, size_bytes / max(1, covered - batches[0].base_offset))
        self._batch_bytes = max(len(batch.payload) for batch in batches)
        if self.direction == OLDER and covered < requested.stop:
            self._window = max(1, min((requested.stop - requested.offset) // 2, max(1, covered - requested.offset)))
            return
        is_decided = requested.isolation == READ_COMMITTED
        loaded = (
            self._with_transaction_states(batches, aborted)
            if is_decided
            else [_Loaded(batch, None) for batch in batches]
        )
        if self.direction == NEWER:
            added = [entry for entry in loaded if entry.batch.last_offset >= requested.offset]
            self._after_loaded = min(max(covered, requested.offset), self.end)
        else:
            added = [entry for entry in reversed(loaded) if entry.batch.base_offset < requested.stop]
            self._after_loaded = max(min(requested.offset, batches[0].base_offset), self.start)
        self._loaded.extend(added)
        self._loaded_bytes += sum(len(entry.batch.payload) for entry in added)
        self._window = min(self._window * WINDOW_GROWTH, WINDOW_MAX)
        if not self._loaded:
            self._advance(self._after_loaded)

    def peek(self, inflate: Inflate) -> Head | None:
        """Returns what comes next without consuming it; None if more data is needed.

        Raises `BudgetExhausted`.
        """
        while self._head is None and self._loaded:
            loaded = self._loaded[0]
            try:
                if self._records is None:
                    self._records = self._read_batch(loaded, inflate)
                self._head = next(self._records, None)
            except (DamagedBatch, TooLarge) as error:
                reason = TOO_LARGE if isinstance(error, TooLarge) else DAMAGED
                self._add_unreadable(loaded.batch, reason)
            if self._head is None:
                self._finish_batch(loaded.batch)
            elif isinstance(self._head, Record):
                self._head.transaction = self._transaction(loaded)
        return self._head

    def pop(self) -> None:
        """Consumes what `peek` returned."""
        assert self._head is not None, "peek first"
        self.position = self._head.offset + 1 if self.direction == NEWER else self._head.offset
        self._head = None

    def set_bounds(self, start: int, end: int, stable: int) -> None:
        """Updates the bounds: records before `start` were deleted."""
        self.start, self.end, self.stable = start, end, stable
        self.position = min(max(self.position, start), end)
        self._after_loaded = min(max(self._after_loaded, start), end)

    def _bytes_of(self, offsets: int, more_bytes: int = 0) -> int:
        """Returns the bytes to request so that the wanted offsets probably arrive."""
        expected = int(offsets * self._bytes_per_offset * SLACK) + more_bytes
        return min(max(expected, PARTITION_BYTES_MIN), PARTITION_BYTES_MAX)

    def _read_batch(self, loaded: _Loaded, inflate: Inflate) -> Iterator[Head]:
        batch = loaded.batch
        if batch.count > BATCH_RECORDS_MAX:
            raise TooLarge("records")
        is_older = self.direction == OLDER
        remaining = range(self.start, self.position) if is_older else range(self.position, self.end)
        return search(self.index, batch, inflate(batch), self._literals, remaining, newest_first=is_older)

    def _finish_batch(self, batch: Batch) -> None:
        """Continues after a batch that has been read."""
        self._records = None
        self._loaded_bytes -= len(self._loaded.popleft().batch.payload)
        self._advance(batch.last_offset + 1 if self.direction == NEWER else batch.base_offset)
        if not self._loaded:
            self._advance(self._after_loaded)

    def _advance(self, position: int) -> None:
        """Advances to `position`, unless it is already beyond."""
        if self.direction == NEWER:
            self.position = min(max(self.position, position), self.end)
        else:
            self.position = max(min(self.position, position), self.start)

    def _add_unreadable(self, batch: Batch, reason: str) -> None:
        self.unreadable.append(
            Unreadable(
                partition=self.index, offset=batch.base_offset, last_offset=batch.last_offset, reason=reason
            )
        )  # fmt: skip

    def _transaction(self, loaded: _Loaded) -> Transaction | None:
        if not loaded.batch.is_transactional:
            return None
        return Transaction(producer_id=loaded.batch.producer_id, state=loaded.state)

    def _with_transaction_states(self, batches: Sequence[Batch], aborted: Sequence[tuple[int, int]]) -> list[_Loaded]:
        """Assigns states by the list of aborted transactions, like a consumer with read_committed."""
        pending = deque(sorted(aborted, key=lambda entry: entry[1]))
        open_aborted: set[int] = set()
        result = []
        for batch in batches:
            while pending and pending[0][1] <= batch.last_offset:
                open_aborted.add(pending.popleft()[0])
            is_aborted = batch.producer_id in open_aborted
            if batch.is_control:
                open_aborted.discard(batch.producer_id)
            result.append(_Loaded(batch, ABORTED if is_aborted else COMMITTED))
        return result


def markers_of(partition: int, batches: Sequence[Batch]) -> list[tuple[int, int, str]]:
    """Returns producer id, offset and kind of the markers among batches, except damaged ones."""
    result = []
    for batch in batches:
        if not batch.is_control or batch.is_damaged:
            continue
        try:
            markers = list(records(partition, batch, batch.payload))
        except DamagedBatch:
            continue
        result += [(batch.producer_id, record.offset, record.marker or "") for record in markers]
    return result
