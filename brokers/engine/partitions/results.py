"""Results of partition calls: named tuples of integers; the hot path allocates one per request."""

from __future__ import annotations

from typing import NamedTuple

from brokers.engine.storage.files import FileSlice, UncachedFile


class AppendResult(NamedTuple):
    """Result for one partition of a Produce request (REC-64); offsets and times are -1 where Kafka uses -1.

    `log_start_offset` is set also with an error, except for a batch that is malformed or too large, invalid acks, a
    partition that is not led here, and a disk error. `appended_bytes` is 0 for an error and for a duplicate (IDE-6).
    `last_offset` + 1 is the high watermark that acks=-1 waits for.
    """

    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    appended_bytes: int = 0
    last_offset: int = -1
    record_errors: tuple[tuple[int, str], ...] = ()


# A file that must be read from disk first: `prefetch()` it in another thread, `release()` it in the table's, and retry.
Uncached = FileSlice | UncachedFile


class ReadResult(NamedTuple):
    """Result for one partition of a Fetch request.

    `slice` is None if there is nothing to send; it is released after sending. With `uncached` there is no result yet.
    """

    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    slice: FileSlice | None = None
    uncached: Uncached | None = None


class ListedOffset(NamedTuple):
    """Result for one partition of a ListOffsets request; all values are -1 if there is no such record (LOG-26).

    With `uncached` there is no result yet.
    """

    error_code: int
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1
    uncached: Uncached | None = None
