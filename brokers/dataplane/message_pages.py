"""One page of messages: partitions merged by time, within a budget of bytes, records and time.

The module is independent of sockets: a `PartitionSource` answers the requests of cursors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, Protocol

from brokers.dataplane.inflating import TooLarge
from brokers.dataplane.message_cursor import BudgetExhausted, FetchRange, Head, PartitionCursor
from brokers.dataplane.record_batches import CODEC_MASK, Batch
from brokers.dataplane.record_search import PassedOver
from instances.messages import limits
from instances.messages.interfaces import NEWER, Page, PageRequest, Record

# A page whose budget is used up still scans this many records, so that the next one does not begin at the same place.
SCANNED_MIN: Final = 500
WAIT_S_MIN: Final = 0.005
# Offsets that a scan requests at first, of one partition and of all.
FIRST_WINDOW_MAX: Final = 1_000
FIRST_WINDOWS_MAX: Final = 10_000


@dataclass(slots=True, kw_only=True)
class Fetched:
    """Result for one partition: its complete batches, and aborted transactions of the range."""

    batches: Sequence[Batch] = ()
    size_bytes: int = 0
    aborted: Sequence[tuple[int, int]] = ()
    is_out_of_range: bool = False


@dataclass(slots=True, kw_only=True)
class FetchResult:
    """Results by partition; missing ones did not respond. `throttle_ms` is the delay that the instance must wait."""

    partitions: Mapping[int, Fetched] = field(default_factory=dict)
    throttle_ms: int = 0


class PartitionSource(Protocol):
    """Partitions of one topic, read from their leaders."""

    def begin_fetch(
        self, ranges: Mapping[int, FetchRange], bytes_max: int, timeout_s: float
    ) -> Callable[[], FetchResult]:
        """Requests the available data, without waiting for more; the returned function waits for the responses."""
        ...

    def bounds(self, partition: int) -> tuple[int, int, int] | None:
        """Returns start, end and last stable offset of a partition, None if its leader does not answer."""
        ...


@dataclass(frozen=True, slots=True)
class _Fetching:
    """Ranges that are being fetched, by the index of their partitions, and the cursors that they are for."""

    ranges: Mapping[int, FetchRange]
    cursors: Sequence[PartitionCursor]
    result: Callable[[], FetchResult]


class PageReader:
    """Reads one page. After `read`, `throttled` is True if the page had to wait for the instance's bandwidth."""

    def __init__(
        self,
        source: PartitionSource,
        cursors: Sequence[PartitionCursor],
        request: PageRequest,
        direction: str,
        now_s: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._source = source
        self._cursors = cursors
        self._request = request
        self._direction = direction
        self._now_s = now_s
        self._sleep = sleep
        # Cursors with what each comes to next, in order of time, and those of which that is not known.
        self._ready: list[tuple[int, int, PartitionCursor, Head]] = []
        self._unknown: list[PartitionCursor] = list(cursors)
        # What is fetched while loaded records are searched.
        self._ahead: _Fetching | None = None
        is_scan = request.is_filtered
        self._began_s = now_s()
        self._ends_s = self._began_s + (limits.SCAN_S_MAX if is_scan else limits.READ_S_MAX)
        self._bytes_max = limits.SCAN_READ_BYTES_MAX if is_scan else limits.READ_BYTES_MAX
        self._records_max = limits.SCAN_RECORDS_MAX if is_scan else limits.SCANNED_RECORDS_MAX
        self._read_bytes = 0
        self._inflated_bytes = 0
        self._scanned = 0
        self._is_exhausted = False
        self.throttled = False

    @property
    def _scanned_min(self) -> int:
        return 1 if self._request.is_costly else SCANNED_MIN

    @property
    def has_progress(self) -> bool:
        """True if the position of any partition has changed."""
        return any(cursor.position != cursor.began for cursor in self._cursors)

    def read(self) -> Page:
        """Returns the page, possibly empty with advanced positions."""
        records: list[Record] = []
        shown_bytes = 0
        while len(records) < self._request.limit:
            self._check_budget()
            if self._is_exhausted and self.has_progress and (records or self._scanned >= self._scanned_min):
                break
            self._sort()
            if self._unknown and not self._is_exhausted:
                if self._read_bytes >= self._bytes_max:
                    self._is_exhausted = True
                else:
                    self._fetch(self._unknown)
                    self._read_ahead(len(records))
                continue
            if not self._ready:
                break
            *_, cursor, head = heappop(self._ready)
            if isinstance(head, PassedOver):
                self._scanned += head.count
            else:
                if self._matches_filter(head):
                    size_bytes = self._request.shown_bytes(head)
                    if records and shown_bytes + size_bytes > limits.PAGE_SHOWN_BYTES_MAX:
                        break
                    shown_bytes += size_bytes
                    records.append(head)
                self._scanned += 1
            cursor.pop()
            self._unknown.append(cursor)
        if self._is_exhausted:
            self._pass_over_loaded()
        return self._page(records)

    def _pass_over_loaded(self) -> None:
        """Passes over the loaded records up to the next one that may match, so that they are not fetched again."""
        for cursor in self._cursors:
            while isinstance(head := self._peek(cursor), PassedOver):
                self._scanned += head.count
                cursor.pop()

    def _page(self, records: list[Record]) -> Page:
        available = [cursor for cursor in self._cursors if not cursor.is_unavailable]
        return Page(
            direction=self._direction,
            records=records,
            scanned=self._scanned,
            read_bytes=self._read_bytes,
            began={cursor.index: cursor.began for cursor in self._cursors},
            reached={cursor.index: cursor.position for cursor in self._cursors},
            is_end=len(available) == len(self._cursors) and all(cursor.is_finished for cursor in available),
            unavailable=[cursor.index for cursor in self._cursors if cursor.is_unavailable],
            unreadable=[batch for cursor in self._cursors for batch in cursor.unreadable],
        )

    def _matches_filter(self, record: Record) -> bool:
        if record.marker is not None:
            return not self._request.is_filtered
        return self._request.accepts(record)

    def _sort(self) -> None:
        """Looks at what comes next; cursors that need data first stay unknown.

        The newest record comes first towards OLDER, otherwise the oldest; ties by partition.
        """
        waiting = []
        for cursor in self._unknown:
            head = self._peek(cursor)
            if head is not None:
                key = head.timestamp_ms if self._direction == NEWER else -head.timestamp_ms
                heappush(self._ready, (key, cursor.index, cursor, head))
            elif cursor.needs_data:
                waiting.append(cursor)
        self._unknown = waiting

    def _peek(self, cursor: PartitionCursor) -> Head | None:
        try:
            return cursor.peek(self._inflate)
        except BudgetExhausted:
            self._is_exhausted = True
            return None

    def _inflate(self, batch: Batch) -> bytes | memoryview:
        """Decompresses a batch: the first of a page may have any size, later ones the remaining budget."""
        if not batch.attributes & CODEC_MASK:
            return batch.body(limits.INFLATED_BYTES_MAX)
        remaining = limits.INFLATED_BYTES_MAX - self._inflated_bytes
        try:
            body = batch.body(remaining)
        except TooLarge:
            if self._inflated_bytes:
                raise BudgetExhausted from None
            self._inflated_bytes = limits.INFLATED_BYTES_MAX  # this budget was spent in vain
            raise
        self._inflated_bytes += len(body)
        return body

    def _check_budget(self) -> None:
        if self._scanned >= self._records_max or self._now_s() >= self._ends_s:
            self._is_exhausted = True

    def _fetch(self, waiting: Sequence[PartitionCursor]) -> None:
        """Fetches what the waiting cursors need, and more for others, or takes what was fetched ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            others = [cursor for cursor in self._readable_ahead() if cursor not in waiting]
            fetching = self._begin_fetch([*waiting, *others])
        else:
            fetching = ahead
        result = fetching.result()
        for cursor in fetching.cursors:
            fetch_range, fetched = fetching.ranges[cursor.index], result.partitions.get(cursor.index)
            if fetched is None:
                cursor.is_unavailable = not result.throttle_ms and ahead is None  # it is fetched again
            elif fetched.is_out_of_range:
                self._refresh_bounds(cursor)
            else:
                self._read_bytes += fetched.size_bytes
                if fetched.batches or not result.throttle_ms:
                    cursor.add_batches(fetch_range, fetched.batches, fetched.size_bytes, fetched.aborted)
        if result.throttle_ms:
            self._wait(result.throttle_ms / 1000)

    def _begin_fetch(self, cursors: Sequence[PartitionCursor]) -> _Fetching:
        """Begins to fetch for the first cursors, for as many as fit into what the page may still read."""
        remaining_bytes = min(self._bytes_max - self._read_bytes, limits.READ_BYTES_MAX)
        ranges: dict[int, FetchRange] = {}
        total_bytes = 0
        for cursor in cursors:
            fetch_range = cursor.next_range()
            if ranges and total_bytes + fetch_range.bytes_max > remaining_bytes:
                break
            ranges[cursor.index] = fetch_range
            total_bytes += fetch_range.bytes_max
        timeout_s = max(self._ends_s - self._now_s(), WAIT_S_MIN)
        result = self._source.begin_fetch(ranges, remaining_bytes, timeout_s)
        return _Fetching(ranges, cursors[: len(ranges)], result)

    def _read_ahead(self, found: int) -> None:
        """Begins to fetch what comes after the loaded records, unless the page is likely to be full before."""
        if 2 * found < self._request.limit and not self._is_exhausted and (cursors := self._readable_ahead()):
            self._ahead = self._begin_fetch(cursors)

    def _readable_ahead(self) -> list[PartitionCursor]:
        """Returns the cursors of a scan for which more may be fetched than they need, those with the least first.

        What would not be searched before the page ends, at the pace of the page so far, is not fetched, and nothing
        while the page has to wait for the bandwidth of the instance.
        """
        if not self._request.is_filtered or not self._scanned or self.throttled:
            return []
        loaded_bytes = sum(cursor.loaded_bytes for cursor in self._cursors)
        remaining_bytes = self._bytes_max - self._read_bytes
        if (elapsed_s := self._now_s() - self._began_s) > 0:
            bytes_per_s = (self._read_bytes - loaded_bytes) / elapsed_s
            remaining_bytes = min(remaining_bytes, int(bytes_per_s * (self._ends_s - self._now_s())) - loaded_bytes)
        result = []
        for cursor in sorted(self._cursors, key=lambda cursor: cursor.loaded_bytes):
            if cursor.takes_more and remaining_bytes > 0:
                remaining_bytes -= cursor.next_range().bytes_max
                result.append(cursor)
        return result

    def _refresh_bounds(self, cursor: PartitionCursor) -> None:
        """Refreshes the bounds after offsets expired."""
        bounds = self._source.bounds(cursor.index)
        if bounds is None or bounds[0] <= cursor.start:
            cursor.is_unavailable = True
        else:
            cursor.set_bounds(*bounds)

    def _wait(self, wait_s: float) -> None:
        self.throttled = True
        if self._now_s() + wait_s >= self._ends_s:
            self._is_exhausted = True
        else:
            self._sleep(max(wait_s, WAIT_S_MIN))


def window_of(limit: int, partitions: int, is_filtered: bool) -> int:
    """Returns the number of offsets of the first request to each partition."""
    if is_filtered:
        return max(1, min(FIRST_WINDOW_MAX, FIRST_WINDOWS_MAX // max(1, partitions)))
    return max(1, -(-2 * limit // max(1, partitions)))
