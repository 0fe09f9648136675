"""Selection of a log's oldest segments for deletion (LOG-42 to LOG-44). Pure: sizes and times in, a count out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

UNLIMITED = -1


class SegmentFacts(NamedTuple):
    """Facts about a segment that retention decides on."""

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int


class RetentionRules(NamedTuple):
    """Settings `retention.ms` and `retention.bytes` (-1 = off), and whether `cleanup.policy` contains `delete`."""

    retention_ms: int = 604_800_000
    retention_bytes: int = UNLIMITED
    delete: bool = True


def count_deletable(
    segments: Sequence[SegmentFacts],
    rules: RetentionRules,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """Number of oldest segments to delete; if that is all of them, the log must be rolled first."""
    count = _count_below_start(segments, log_start_offset, log_end_offset)
    if rules.delete:
        count = max(
            count, _count_by_size(segments, rules.retention_bytes), _count_by_time(segments, rules.retention_ms, now_ms)
        )
    # The first remaining segment must not begin above the high watermark.
    while count and _first_remaining_offset(segments, count, log_end_offset) > high_watermark:
        count -= 1
    if count == len(segments) and segments[-1].size_bytes == 0:
        count -= 1  # the next append goes to an empty last segment
    return count


def _first_remaining_offset(segments: Sequence[SegmentFacts], count: int, log_end_offset: int) -> int:
    return segments[count].base_offset if count < len(segments) else log_end_offset


def _count_below_start(segments: Sequence[SegmentFacts], log_start_offset: int, log_end_offset: int) -> int:
    count = 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= log_start_offset:
        count += 1
    # Kafka keeps the last segment. Penstock deletes it, so that an instance without free storage can free it by
    # deleting all its records.
    deletes_all = count + 1 == len(segments) and log_start_offset >= log_end_offset
    return count + 1 if deletes_all else count


def _count_by_size(segments: Sequence[SegmentFacts], retention_bytes: int) -> int:
    if retention_bytes < 0:
        return 0
    excess_bytes = sum(segment.size_bytes for segment in segments) - retention_bytes
    count = 0
    for segment in segments:
        if excess_bytes - segment.size_bytes < 0:
            break
        excess_bytes -= segment.size_bytes
        count += 1
    return count


def _count_by_time(segments: Sequence[SegmentFacts], retention_ms: int, now_ms: int) -> int:
    if retention_ms < 0:
        return 0
    count = 0
    for segment in segments:
        if now_ms - segment.largest_timestamp_ms <= retention_ms:
            break
        count += 1
    return count
