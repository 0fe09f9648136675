"""Reading of one page of messages: partitions merged by timestamp, within a budget of bytes, records and time.

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
from brokers.dataplane.record_search import SkippedRecords
from instances.messages import limits
from instances.messages.interfaces import NEWER, Page, PageRequest, Record

# A page whose budget is used up still scans this many records, so that the next one does not begin at the same place.
SCANNED_MIN: Final = 500
WAIT_S_MIN: Final = 0.005
# Number of offsets in the first requests of a scan, for one partition and for all together.
FIRST_WINDOW_MAX: Final = 1_000
FIRST_WINDOWS_MAX: Final = 10_000


@dataclass(slots=True, kw_only=True)
class FetchedPartition:
    """Result for one partition: its complete batches, and aborted transactions of the range."""

    batches: Sequence[Batch] = ()
    size_bytes: int = 0
    aborted: Sequence[tuple[int, int]] = ()
    is_out_of_range: bool = False


@dataclass(slots=True, kw_only=True)
class FetchResult:
    """Results by partition; missing ones did not respond. `throttle_ms` is the delay that the instance must wait."""

    partitions: Mapping[int, FetchedPartition] = field(default_factory=dict)
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
class _PendingFetch:
    """Fetch in progress: the requested ranges by partition, and their cursors. `result` waits for the responses."""

    ranges: Mapping[int, FetchRange]
    cursors: Sequence[PartitionCursor]
    result: Callable[[], FetchResult]


class PageReader:
    """Reads one page. `was_throttled` becomes True if the page had to wait for the instance's bandwidth."""

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
        # Heap of (sort key, partition, cursor, its next entry), and the cursors whose next entry is not known yet.
        self._sorted_heads: list[tuple[int, int, PartitionCursor, Head]] = []
        self._unsorted: list[PartitionCursor] = list(cursors)
        # Fetch that runs while loaded records are searched.
        self._prefetch: _PendingFetch | None = None
        is_scan = request.is_filtered
        self._started_s = now_s()
        self._deadline_s = self._started_s + (limits.SCAN_S_MAX if is_scan else limits.READ_S_MAX)
        self._bytes_max = limits.SCAN_READ_BYTES_MAX if is_scan else limits.READ_BYTES_MAX
        self._records_max = limits.SCAN_RECORDS_MAX if is_scan else limits.SCANNED_RECORDS_MAX
        self._read_bytes = 0
        self._decompressed_bytes = 0
        self._scanned_records = 0
        self._is_exhausted = False
        self.was_throttled = False

    @property
    def _scanned_records_min(self) -> int:
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
            if (
                self._is_exhausted
                and self.has_progress
                and (records or self._scanned_records >= self._scanned_records_min)
            ):
                break
            self._sort_cursors()
            if self._unsorted and not self._is_exhausted:
                if self._read_bytes >= self._bytes_max:
                    self._is_exhausted = True
                else:
                    self._fetch(self._unsorted)
                    self._begin_prefetch(len(records))
                continue
            if not self._sorted_heads:
                break
            *_, cursor, head = heappop(self._sorted_heads)
            if isinstance(head, SkippedRecords):
                self._scanned_records += head.count
            else:
                if self._matches_filter(head):
                    size_bytes = self._request.shown_bytes(head)
                    if records and shown_bytes + size_bytes > limits.PAGE_SHOWN_BYTES_MAX:
                        break
                    shown_bytes += size_bytes
                    records.append(head)
                self._scanned_records += 1
            cursor.pop()
            self._unsorted.append(cursor)
        if self._is_exhausted:
            self._skip_loaded_records()
        return self._page(records)

    def _skip_loaded_records(self) -> None:
        """Skips the loaded records up to the next one that may match, so that they are not fetched again."""
        for cursor in self._cursors:
            while isinstance(head := self._peek(cursor), SkippedRecords):
                self._scanned_records += head.count
                cursor.pop()

    def _page(self, records: list[Record]) -> Page:
        available = [cursor for cursor in self._cursors if not cursor.is_unavailable]
        return Page(
            direction=self._direction,
            records=records,
            scanned=self._scanned_records,
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

    def _sort_cursors(self) -> None:
        """Moves the cursors whose next entry is known to the heap; those that need data first stay unsorted.

        The newest record comes first towards OLDER, otherwise the oldest one. Ties are ordered by partition.
        """
        waiting = []
        for cursor in self._unsorted:
            head = self._peek(cursor)
            if head is not None:
                key = head.timestamp_ms if self._direction == NEWER else -head.timestamp_ms
                heappush(self._sorted_heads, (key, cursor.index, cursor, head))
            elif cursor.needs_data:
                waiting.append(cursor)
        self._unsorted = waiting

    def _peek(self, cursor: PartitionCursor) -> Head | None:
        try:
            return cursor.peek(self._decompress)
        except BudgetExhausted:
            self._is_exhausted = True
            return None

    def _decompress(self, batch: Batch) -> bytes | memoryview:
        """Decompresses a batch: the first of a page may have any size, later ones the remaining budget."""
        if not batch.attributes & CODEC_MASK:
            return batch.body(limits.INFLATED_BYTES_MAX)
        remaining = limits.INFLATED_BYTES_MAX - self._decompressed_bytes
        try:
            body = batch.body(remaining)
        except TooLarge:
            if self._decompressed_bytes:
                raise BudgetExhausted from None
            self._decompressed_bytes = limits.INFLATED_BYTES_MAX  # the failed attempt used the whole budget
            raise
        self._decompressed_bytes += len(body)
        return body

    def _check_budget(self) -> None:
        if self._scanned_records >= self._records_max or self._now_s() >= self._deadline_s:
            self._is_exhausted = True

    def _fetch(self, waiting: Sequence[PartitionCursor]) -> None:
        """Fetches the next ranges of the waiting cursors and of others, or takes the result of the prefetch."""
        prefetch, self._prefetch = self._prefetch, None
        if prefetch is None:
            others = [cursor for cursor in self._cursors_to_prefetch() if cursor not in waiting]
            fetching = self._begin_fetch([*waiting, *others])
        else:
            fetching = prefetch
        result = fetching.result()
        for cursor in fetching.cursors:
            fetch_range, fetched_partition = fetching.ranges[cursor.index], result.partitions.get(cursor.index)
            if fetched_partition is None:
                cursor.is_unavailable = not result.throttle_ms and prefetch is None  # it is fetched again
            elif fetched_partition.is_out_of_range:
                self._refresh_bounds(cursor)
            else:
                self._read_bytes += fetched_partition.size_bytes
                if fetched_partition.batches or not result.throttle_ms:
                    cursor.add_batches(
                        fetch_range, fetched_partition.batches, fetched_partition.size_bytes, fetched_partition.aborted
                    )
        if result.throttle_ms:
            self._wait(result.throttle_ms / 1000)

    def _begin_fetch(self, cursors: Sequence[PartitionCursor]) -> _PendingFetch:
        """Begins to fetch for the first cursors whose ranges fit into the remaining bytes of the page, at least one."""
        remaining_bytes = min(self._bytes_max - self._read_bytes, limits.READ_BYTES_MAX)
        ranges: dict[int, FetchRange] = {}
        total_bytes = 0
        for cursor in cursors:
            fetch_range = cursor.next_range()
            if ranges and total_bytes + fetch_range.bytes_max > remaining_bytes:
                break
            ranges[cursor.index] = fetch_range
            total_bytes += fetch_range.bytes_max
        timeout_s = max(self._deadline_s - self._now_s(), WAIT_S_MIN)
        result = self._source.begin_fetch(ranges, remaining_bytes, timeout_s)
        return _PendingFetch(ranges, cursors[: len(ranges)], result)

    def _begin_prefetch(self, matching_count: int) -> None:
        """Begins to fetch data after the loaded records, unless the page is likely to be full before it is needed."""
        if (
            2 * matching_count < self._request.limit
            and not self._is_exhausted
            and (cursors := self._cursors_to_prefetch())
        ):
            self._prefetch = self._begin_fetch(cursors)

    def _cursors_to_prefetch(self) -> list[PartitionCursor]:
        """Returns the cursors of a scan that may be fetched before they need data, those with the least data first.

        The bytes are limited to those that the page can search before its end at its pace so far. Nothing is prefetched
        if the page had to wait for the bandwidth of the instance.
        """
        if not self._request.is_filtered or not self._scanned_records or self.was_throttled:
            return []
        loaded_bytes = sum(cursor.loaded_bytes for cursor in self._cursors)
        remaining_bytes = self._bytes_max - self._read_bytes
        if (elapsed_s := self._now_s() - self._started_s) > 0:
            bytes_per_s = (self._read_bytes - loaded_bytes) / elapsed_s
            remaining_bytes = min(remaining_bytes, int(bytes_per_s * (self._deadline_s - self._now_s())) - loaded_bytes)
        result = []
        for cursor in sorted(self._cursors, key=lambda cursor: cursor.loaded_bytes):
            if cursor.can_prefetch and remaining_bytes > 0:
                remaining_bytes -= cursor.next_range().bytes_max
                result.append(cursor)
        return result

    def _refresh_bounds(self, cursor: PartitionCursor) -> None:
        """Queries the bounds of a partition again, after records at the cursor's position were deleted."""
        bounds = self._source.bounds(cursor.index)
        if bounds is None or bounds[0] <= cursor.start:
            cursor.is_unavailable = True
        else:
            cursor.set_bounds(*bounds)

    def _wait(self, wait_s: float) -> None:
        self.was_throttled = True
        if self._now_s() + wait_s >= self._deadline_s:
            self._is_exhausted = True
        else:
            self._sleep(max(wait_s, WAIT_S_MIN))


def window_of(limit: int, partitions: int, is_filtered: bool) -> int:
    """Returns the number of offsets of the first request to each partition."""
    if is_filtered:
        return max(1, min(FIRST_WINDOW_MAX, FIRST_WINDOWS_MAX // max(1, partitions)))
    return max(1, -(-2 * limit // max(1, partitions)))
