"""Early retention: choice of an instance's oldest segments to delete before its storage is used up (decision 114).
Pure.

Each broker acts on the partitions that it leads, by the controller's figures for the whole instance, and frees its
proportional part. Its segments are deleted oldest first, over all topics.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from brokers.contract.partitions import PartitionKey

# Percentage of the bought storage at which deletion begins, and below which it ends.
SHORTEN_PERCENT: Final = 95
RELEASE_PERCENT: Final = 90
# From this percentage on, a segment is deleted even if it is much larger than needed.
URGENT_PERCENT: Final = 98
# An active segment is closed at the bought storage divided by this, so that a deletion frees about as much as needed.
ACTIVE_SEGMENT_DIVISOR: Final = 100
ACTIVE_SEGMENT_BYTES_MIN: Final = 1 << 20
MS_PER_MINUTE: Final = 60_000


class StorageFigures(NamedTuple):
    """Storage figures of an instance, all with replicas.

    `reported_bytes` is the use that live brokers reported, by the controller's last answer, and `counted_bytes` this
    broker's part of it. `local_log_bytes` is the current use on this broker.
    """

    bought_bytes: int
    reported_bytes: int
    counted_bytes: int
    local_log_bytes: int


class OldSegment(NamedTuple):
    """A closed segment: its size with replicas, and the timestamp of its newest record."""

    stored_bytes: int
    largest_timestamp_ms: int


def must_shorten(figures: StorageFigures, was_shortened: bool) -> bool:
    """True if the oldest segments must be deleted. Once begun, deletion continues down to RELEASE_PERCENT."""
    percent = RELEASE_PERCENT if was_shortened else SHORTEN_PERCENT
    return _current_use_bytes(figures) * 100 >= figures.bought_bytes * percent


def is_urgent(figures: StorageFigures) -> bool:
    """True if produces are about to be refused."""
    return _current_use_bytes(figures) * 100 >= figures.bought_bytes * URGENT_PERCENT


def excess_bytes(figures: StorageFigures) -> int:
    """Returns the bytes that this broker must free on the partitions that it leads.

    Bytes freed since the controller's answer are subtracted, so that a late answer does not cause a second deletion.
    """
    release_bytes = figures.bought_bytes * RELEASE_PERCENT // 100
    whole_bytes = figures.reported_bytes - release_bytes
    if whole_bytes <= 0 or figures.reported_bytes <= 0:
        return max(0, _current_use_bytes(figures) - release_bytes)
    part_bytes = -(-whole_bytes * max(0, figures.counted_bytes) // figures.reported_bytes)
    return max(0, part_bytes + figures.local_log_bytes - figures.counted_bytes)


def _current_use_bytes(figures: StorageFigures) -> int:
    return figures.reported_bytes - figures.counted_bytes + figures.local_log_bytes


def segments_to_delete(
    logs: Mapping[PartitionKey, Sequence[OldSegment]],
    bytes_to_free: int,
    *,
    now_ms: int,
    age_ms_min: int,
    is_urgent: bool = False,
) -> dict[PartitionKey, int]:
    """Returns the number of segments to delete from the start of each log.

    The oldest segments of all logs are chosen first, until about `bytes_to_free` are freed. The last one is chosen if
    at least half of it is needed, or if it `is_urgent`. A segment whose newest record is younger than `age_ms_min`, and
    all later segments of its log, are kept.
    """
    result: dict[PartitionKey, int] = {}
    heads = [(segments[0].largest_timestamp_ms, key, 0) for key, segments in logs.items() if segments]
    heapq.heapify(heads)
    freed_bytes = 0
    while heads and freed_bytes < bytes_to_free:
        largest_timestamp_ms, key, index = heapq.heappop(heads)
        if now_ms - largest_timestamp_ms < age_ms_min:
            break  # all other segments are younger
        segments = logs[key]
        if not is_urgent and (bytes_to_free - freed_bytes) * 2 < segments[index].stored_bytes:
            break
        freed_bytes += segments[index].stored_bytes
        result[key] = index + 1
        if index + 1 < len(segments):
            heapq.heappush(heads, (segments[index + 1].largest_timestamp_ms, key, index + 1))
    return result


def active_segment_bytes_max(bought_bytes: int, replicas: int) -> int:
    """Returns the size at which an active segment is closed, whatever its topic's configuration."""
    return max(ACTIVE_SEGMENT_BYTES_MIN, bought_bytes // ACTIVE_SEGMENT_DIVISOR // max(1, replicas))
