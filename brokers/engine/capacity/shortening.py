"""Which of an instance's oldest segments go before its storage is used up (decision 114). Pure.

Each broker acts on the partitions it leads, by the figures that the controller answered for the whole instance: of what
is to be freed it frees the part that it holds. Its own segments go oldest first, over all topics.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from brokers.contract.partitions import PartitionKey

# Percent of what was bought at which the oldest segments begin to go, and below which no more go.
SHORTEN_PERCENT: Final = 95
RELEASE_PERCENT: Final = 90
# From here on a segment goes that is much larger than what is wanted.
URGENT_PERCENT: Final = 98
# An active segment is closed at this part of what was bought, so that what goes at once is about as much as is wanted.
PIECE_PART: Final = 100
PIECE_BYTES_MIN: Final = 1 << 20
MS_PER_MINUTE: Final = 60_000


class StorageFigures(NamedTuple):
    """What an instance bought, and what live brokers reported of it by the controller's last answer, `counted_bytes` of
    that by this broker, which holds `held_bytes` at the moment. All with replicas.
    """

    bought_bytes: int
    reported_bytes: int
    counted_bytes: int
    held_bytes: int


class OldSegment(NamedTuple):
    """A closed segment: its size with replicas, and its newest record."""

    stored_bytes: int
    largest_timestamp_ms: int


def is_shortened(figures: StorageFigures, was_shortened: bool) -> bool:
    """Whether the oldest segments have to go; once they do, until clearly less is used."""
    percent = RELEASE_PERCENT if was_shortened else SHORTEN_PERCENT
    return _used_now(figures) * 100 >= figures.bought_bytes * percent


def is_urgent(figures: StorageFigures) -> bool:
    """Whether producers are about to be refused."""
    return _used_now(figures) * 100 >= figures.bought_bytes * URGENT_PERCENT


def excess_bytes(figures: StorageFigures) -> int:
    """How much of what this broker leads has to go. What it freed since the controller counted is taken into account,
    so that a late answer has nothing deleted twice.
    """
    release_bytes = figures.bought_bytes * RELEASE_PERCENT // 100
    whole_bytes = figures.reported_bytes - release_bytes
    if whole_bytes <= 0 or figures.reported_bytes <= 0:
        return max(0, _used_now(figures) - release_bytes)
    part_bytes = -(-whole_bytes * max(0, figures.counted_bytes) // figures.reported_bytes)
    return max(0, part_bytes + figures.held_bytes - figures.counted_bytes)


def _used_now(figures: StorageFigures) -> int:
    return figures.reported_bytes - figures.counted_bytes + figures.held_bytes


def segments_to_delete(
    logs: Mapping[PartitionKey, Sequence[OldSegment]],
    wanted_bytes: int,
    *,
    now_ms: int,
    floor_ms: int,
    is_urgent: bool = False,
) -> dict[PartitionKey, int]:
    """How many segments go of each log, from its oldest on: the oldest of all logs first, until about `wanted_bytes`
    are free: the last one goes if at least half of it is wanted, or if it `is_urgent`. Nothing goes whose newest record
    is younger than `floor_ms`, nor what lies behind it in its log.
    """
    result: dict[PartitionKey, int] = {}
    heads = [(segments[0].largest_timestamp_ms, key, 0) for key, segments in logs.items() if segments]
    heapq.heapify(heads)
    freed_bytes = 0
    while heads and freed_bytes < wanted_bytes:
        largest_timestamp_ms, key, at = heapq.heappop(heads)
        if now_ms - largest_timestamp_ms < floor_ms:
            break  # the oldest there is
        segments = logs[key]
        if not is_urgent and (wanted_bytes - freed_bytes) * 2 < segments[at].stored_bytes:
            break
        freed_bytes += segments[at].stored_bytes
        result[key] = at + 1
        if at + 1 < len(segments):
            heapq.heappush(heads, (segments[at + 1].largest_timestamp_ms, key, at + 1))
    return result


def piece_bytes(bought_bytes: int, replicas: int) -> int:
    """At this size an active segment is closed, whatever its topic says."""
    return max(PIECE_BYTES_MIN, bought_bytes // PIECE_PART // max(1, replicas))
