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
from brokers.dataplane.record_search import SkippedRecords, search
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


# Next entry at a cursor: a record, or several skipped records.
Head = Record | SkippedRecords


class BudgetExhausted(Exception):
    """The page has used up its budget."""


@dataclass(frozen=True, slots=True)
class FetchRange:
    """Range of offsets to fetch, from `offset` to below `stop`; the response may contain more."""

    offset: int
    stop: int
    isolation: int
    bytes_max: int


@dataclass(slots=True)
class _FetchedBatch:
    """Fetched batch with the state of its transaction: COMMITTED, ABORTED, or None while it is undecided."""

    batch: Batch
    state: str | None


class PartitionCursor:
    """Position of one partition in a page, with its fetched batches.

    Reading continues at `position`, which is exclusive towards OLDER. `start` and `end` are the bounds of the log,
    `stable` is its last stable offset, below which every transaction is decided. Records that do not match `literals`
    are skipped (`record_search.search`).
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
        self._loaded: deque[_FetchedBatch] = deque()
        self._loaded_bytes = 0
        # Position after all that is loaded, at which the next range begins.
        self._after_loaded = self.position
        self._head: Head | None = None
        self._records: Iterator[Head] | None = None

    @property
    def is_finished(self) -> bool:
        """True at the end of the log in the direction of reading."""
        return self.position >= self.end if self.direction == NEWER else self.position <= self.start

    @property
    def needs_data(self) -> bool:
        """True if records must be fetched before `peek` can return one."""
        return self._head is None and not self._loaded and not self.is_finished and not self.is_unavailable

    @property
    def loaded_bytes(self) -> int:
        """Size of the batches that are fetched and not completely read."""
        return self._loaded_bytes

    @property
    def can_prefetch(self) -> bool:
        """True if data after the loaded records may be fetched before it is needed."""
        is_all_loaded = (
            self._after_loaded >= self.end if self.direction == NEWER else self._after_loaded <= self.start
        )  # fmt: skip
        return not is_all_loaded and not self.is_unavailable and self._loaded_bytes <= PARTITION_BYTES_MAX

    def next_range(self) -> FetchRange:
        """Returns the range to fetch after the loaded batches. Only to be called if the log continues there."""
        isolation, position = READ_COMMITTED, self._after_loaded
        if self.direction == NEWER:
            if position >= self.stable:
                isolation = READ_UNCOMMITTED
            return FetchRange(position, self.end, isolation, self._bytes_to_request(self._window))
        offsets_that_fit = int((PARTITION_BYTES_MAX - self._batch_bytes) / (self._bytes_per_offset * SLACK))
        window = max(1, min(self._window, offsets_that_fit))
        low = max(self.start, position - window)
        if position > self.stable:
            low, isolation = max(low, self.stable), READ_UNCOMMITTED
        return FetchRange(low, position, isolation, self._bytes_to_request(position - low, self._batch_bytes))

    def add_batches(
        self, requested: FetchRange, batches: Sequence[Batch], size_bytes: int, aborted: Sequence[tuple[int, int]]
    ) -> None:
        """Adds the response to `requested`; `aborted` are (producer id, first offset) of aborted transactions."""
        if not batches:
            self._empty_responses += 1
            self.is_unavailable = self._empty_responses >= EMPTY_RESPONSES_MAX
            return
        self._empty_responses = 0
        response_end = batches[-1].last_offset + 1
        self._bytes_per_offset = max(1.0, size_bytes / max(1, response_end - batches[0].base_offset))
        self._batch_bytes = max(len(batch.payload) for batch in batches)
        if self.direction == OLDER and response_end < requested.stop:
            self._window = max(
                1, min((requested.stop - requested.offset) // 2, max(1, response_end - requested.offset))
            )
            return
        is_decided = requested.isolation == READ_COMMITTED
        loaded = (
            self._with_transaction_states(batches, aborted)
            if is_decided
            else [_FetchedBatch(batch, None) for batch in batches]
        )
        if self.direction == NEWER:
            new_batches = [entry for entry in loaded if entry.batch.last_offset >= requested.offset]
            self._after_loaded = min(max(response_end, requested.offset), self.end)
        else:
            new_batches = [entry for entry in reversed(loaded) if entry.batch.base_offset < requested.stop]
            self._after_loaded = max(min(requested.offset, batches[0].base_offset), self.start)
        self._loaded.extend(new_batches)
        self._loaded_bytes += sum(len(entry.batch.payload) for entry in new_batches)
        self._window = min(self._window * WINDOW_GROWTH, WINDOW_MAX)
        if not self._loaded:
            self._advance(self._after_loaded)

    def peek(self, inflate: Inflate) -> Head | None:
        """Returns the next entry without consuming it; None if more data is needed.

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
        """Consumes the entry that `peek` returned."""
        assert self._head is not None, "peek first"
        self.position = self._head.offset + 1 if self.direction == NEWER else self._head.offset
        self._head = None

    def set_bounds(self, start: int, end: int, stable: int) -> None:
        """Updates the bounds: records before `start` were deleted."""
        self.start, self.end, self.stable = start, end, stable
        self.position = min(max(self.position, start), end)
        self._after_loaded = min(max(self._after_loaded, start), end)

    def _bytes_to_request(self, offsets: int, more_bytes: int = 0) -> int:
        """Returns the number of bytes to request for a number of offsets, within the limits of a request."""
        expected = int(offsets * self._bytes_per_offset * SLACK) + more_bytes
        return min(max(expected, PARTITION_BYTES_MIN), PARTITION_BYTES_MAX)

    def _read_batch(self, loaded: _FetchedBatch, inflate: Inflate) -> Iterator[Head]:
        batch = loaded.batch
        if batch.count > BATCH_RECORDS_MAX:
            raise TooLarge("records")
        is_older = self.direction == OLDER
        remaining = range(self.start, self.position) if is_older else range(self.position, self.end)
        return search(self.index, batch, inflate(batch), self._literals, remaining, newest_first=is_older)

    def _finish_batch(self, batch: Batch) -> None:
        """Removes a batch that has been read, and advances past it."""
        self._records = None
        self._loaded_bytes -= len(self._loaded.popleft().batch.payload)
        self._advance(batch.last_offset + 1 if self.direction == NEWER else batch.base_offset)
        if not self._loaded:
            self._advance(self._after_loaded)

    def _advance(self, position: int) -> None:
        """Advances to `position`, unless the cursor is already past it."""
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

    def _transaction(self, loaded: _FetchedBatch) -> Transaction | None:
        if not loaded.batch.is_transactional:
            return None
        return Transaction(producer_id=loaded.batch.producer_id, state=loaded.state)

    def _with_transaction_states(
        self, batches: Sequence[Batch], aborted: Sequence[tuple[int, int]]
    ) -> list[_FetchedBatch]:
        """Returns the batches with the states of their transactions, from the list of aborted ones."""
        pending = deque(sorted(aborted, key=lambda entry: entry[1]))
        open_aborted: set[int] = set()
        result = []
        for batch in batches:
            while pending and pending[0][1] <= batch.last_offset:
                open_aborted.add(pending.popleft()[0])
            is_aborted = batch.producer_id in open_aborted
            if batch.is_control:
                open_aborted.discard(batch.producer_id)
            result.append(_FetchedBatch(batch, ABORTED if is_aborted else COMMITTED))
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
