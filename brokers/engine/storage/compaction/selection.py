"""Selection of the next log to clean, and of the range to clean (CMP-10 to CMP-14); grouping of adjacent segments that
are merged into segments of at most the configured size (CMP-19). Pure: facts in, a choice out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from brokers.engine.storage.compaction.settings import LONG_MAX, CompactionRules

Key = TypeVar("Key")
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class CompactionFacts(NamedTuple):
    """Facts about a segment; the timestamps are read only if a compaction lag is set, because they may cost a disk
    read.
    """

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: Callable[[], int]
    first_timestamp_ms: Callable[[], int]


class CleanableRange(NamedTuple):
    """Cleanable range of one log: the clean tail ends at `first_dirty`, the cleanable head at `first_uncleanable`."""

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        """Dirty share of the log; 0 for a log without bytes."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_eligible(self, rules: CompactionRules) -> bool:
        """True if the log is dirty enough, or overdue for compaction (CMP-13)."""
        return self.cleanable_bytes > 0 and (self.is_overdue or self.ratio > rules.dirty_ratio_min)


def first_dirty_offset(checkpoint: int | None, log_start_offset: int, log_end_offset: int) -> tuple[int, bool]:
    """Returns the first dirty offset, and whether the checkpoint was ignored because it lies past the log (CMP-11)."""
    if checkpoint is None or checkpoint < log_start_offset:
        return log_start_offset, False
    if checkpoint > log_end_offset:
        return log_start_offset, True
    return checkpoint, False


def measure(
    segments: Sequence[CompactionFacts],
    rules: CompactionRules,
    *,
    first_dirty: int,
    stable_offset: int,
    now_ms: int,
) -> CleanableRange:
    """Returns the cleanable range of a log; the last of `segments` is the active one and is never cleaned (CMP-8).

    `stable_offset` is the end of the records that are committed, belong to decided transactions and are on disk.
    """
    limit = min(stable_offset, segments[-1].base_offset)
    closed_segments = segments[:-1]
    first_number = _segment_containing(segments, first_dirty)
    dirty_segments = [segment for segment in closed_segments[first_number:] if segment.base_offset < limit]
    if rules.lag_ms_min > 0:
        for segment in dirty_segments:
            if segment.largest_timestamp_ms() > now_ms - rules.lag_ms_min:
                limit = min(limit, segment.base_offset)
                break
    # Only whole segments are cleaned: a segment that reaches past the limit is left to a later run.
    segment_ends = [segment.base_offset for segment in segments[1:]]
    end = max((segment_end for segment_end in segment_ends if segment_end <= limit), default=segments[0].base_offset)
    cleanable_segments = [segment for segment in dirty_segments if segment.base_offset < end]
    is_overdue = rules.lag_ms_max < LONG_MAX and _are_overdue(cleanable_segments, now_ms - rules.lag_ms_max)
    return CleanableRange(
        first_dirty,
        max(end, first_dirty),
        sum(segment.size_bytes for segment in closed_segments[:first_number]),
        sum(segment.size_bytes for segment in cleanable_segments) if end > first_dirty else 0,
        is_overdue,
    )


def _segment_containing(segments: Sequence[CompactionFacts], offset: int) -> int:
    """Returns the number of the segment that contains `offset`."""
    return max(sum(1 for segment in segments if segment.base_offset <= offset) - 1, 0)


def _are_overdue(dirty_segments: Sequence[CompactionFacts], before_ms: int) -> bool:
    """True if any of the segments began before that time; producers' timestamps need not increase and may lie in the
    future.
    """
    return any(segment.size_bytes and 0 <= segment.first_timestamp_ms() < before_ms for segment in dirty_segments)


def find_dirtiest(
    candidates: Iterable[tuple[Key, CleanableRange, CompactionRules]],
) -> tuple[Key, CleanableRange, CompactionRules] | None:
    """Returns the eligible log with the greatest dirty share, None if there is none (CMP-13)."""
    eligible_logs = [candidate for candidate in candidates if candidate[1].is_eligible(candidate[2])]
    return max(eligible_logs, key=lambda candidate: candidate[1].ratio, default=None)


class SourceSegment(NamedTuple):
    """A closed segment on disk; `next_base` is the base offset of the segment after it."""

    base_offset: int
    next_base: int
    size_bytes: int
    index_bytes: int
    time_index_bytes: int


def group_segments(sources: Sequence[SourceSegment], segment_bytes: int, index_bytes: int) -> list[list[SourceSegment]]:
    """Returns groups of adjacent segments that fit together into one segment; a segment that exceeds the limits alone
    forms its own group.
    """
    groups: list[list[SourceSegment]] = []
    for source in sources:
        if groups and _fits_segment(groups[-1], source, segment_bytes, index_bytes):
            groups[-1].append(source)
        else:
            groups.append([source])
    return groups


def _fits_segment(
    members: Sequence[SourceSegment], source: SourceSegment, segment_bytes: int, index_bytes: int
) -> bool:
    return (
        sum(member.size_bytes for member in members) + source.size_bytes <= segment_bytes
        and sum(member.index_bytes for member in members) + source.index_bytes <= index_bytes
        and sum(member.time_index_bytes for member in members) + source.time_index_bytes <= index_bytes
        and source.next_base - 1 - members[0].base_offset <= RELATIVE_OFFSET_MAX
    )
