"""What a partition answers. Named tuples of integers: the hot path makes one per request and nothing else."""

from __future__ import annotations

from typing import NamedTuple

from brokers.engine.storage.files import FileSlice, UncachedFile


class AppendResult(NamedTuple):
    """The answer to one partition of a Produce request (REC-64). Offsets and times are -1 where Kafka says -1.

    `log_start_offset` is -1 with an error in the batch's shape and the real value with one found against the log's
    state. `appended_bytes` is 0 for an error and for a duplicate (IDE-6). `last_offset` + 1 is the high watermark that
    acks=-1 waits for.
    """

    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    appended_bytes: int = 0
    last_offset: int = -1
    record_errors: tuple[tuple[int, str], ...] = ()


# What a partition could not answer without waiting for the disk: `prefetch()` it in a thread, `release()` it in this
# one, then ask again.
Uncached = FileSlice | UncachedFile


class ReadResult(NamedTuple):
    """The answer to one partition of a Fetch request. `slice` is None when there is nothing to send; release it after
    sending. With `uncached` there is no answer yet.
    """

    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    slice: FileSlice | None = None
    uncached: Uncached | None = None


class ListedOffset(NamedTuple):
    """The answer to one partition of a ListOffsets request; -1 everywhere when there is no such record (LOG-26). With
    `uncached` there is no answer yet.
    """

    error_code: int
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1
    uncached: Uncached | None = None
