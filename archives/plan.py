"""Choice of the offsets that a run reads next: pure (BAT-2, BAT-6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Range `[start, stop)` of a partition to be read. The `missed` offsets before `start` were deleted unread."""

    partition: int
    start: int
    stop: int
    missed: int = 0


class Gap(Exception):
    """Records were deleted before they were archived, and the archive must not skip them."""


def is_recreated(
    stored_topic_id: str, topic_id: str, stored_offsets: Mapping[int, int], ends: Mapping[int, tuple[int, int]]
) -> bool:
    """True if the topic was deleted and recreated, according to its id.

    If no id is stored, the topic counts as recreated if a stored offset is beyond the end of its log.
    """
    if stored_topic_id:
        return stored_topic_id != topic_id
    return any(offset > ends[partition][1] for partition, offset in stored_offsets.items() if partition in ends)


def next_range(
    partition: int, next_offset: int | None, start_offset: int, stop: int, *, skips_gaps: bool
) -> Range | None:
    """Returns the range from `next_offset` to `stop`, the last stable offset; None if it is empty.

    A partition that was never read (`next_offset` None) is read from `start_offset`, its log start offset.

    Raises:
        Gap: the log begins after the next offset, or ends before it.
    """
    start = start_offset if next_offset is None else next_offset
    if start_offset <= start <= stop:
        return Range(partition=partition, start=start, stop=stop) if start < stop else None
    if start > stop:
        raise Gap(f"Partition {partition} ends at offset {stop}, but was archived to {start}: its broker lost records.")
    missed = start_offset - start
    if not skips_gaps:
        raise Gap(f"Partition {partition} begins at offset {start_offset}: {missed} offsets were deleted before.")
    return Range(partition=partition, start=start_offset, stop=stop, missed=missed)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPace:
    """Time limit and rate of the tasks of a run.

    `deadline_s` is in seconds since 1970. A `bytes_per_s` of None means unlimited.
    """

    deadline_s: float
    bytes_per_s: int | None = None

    def wait_s(self, began_s: float, now_s: float, size_bytes: int) -> float:
        """Returns the seconds that a reader of `size_bytes` since `began_s` must wait before it continues."""
        return 0.0 if self.bytes_per_s is None else max(0.0, size_bytes / self.bytes_per_s - (now_s - began_s))


def task_pace(bytes_per_s_max: int | None, range_count: int, slot_count: int, deadline_s: float) -> TaskPace:
    """Returns the pace of each task: the archive's rate is divided among the tasks that run concurrently.

    There are `range_count` tasks, of which at most `slot_count` run at the same time.
    """
    concurrent_tasks = max(1, min(range_count, slot_count))
    return TaskPace(
        deadline_s=deadline_s,
        bytes_per_s=None if bytes_per_s_max is None else max(1, bytes_per_s_max // concurrent_tasks),
    )


def order_by_waiting_time(ranges: Sequence[Range], read_at: Mapping[int, datetime | None]) -> list[Range]:
    """Returns the ranges ordered by waiting time: partitions that were never read first, then by `read_at`.

    A run may end before the last ranges are read, which therefore come first in the next run.
    """
    never = datetime.min.replace(tzinfo=UTC)
    return sorted(ranges, key=lambda range_: read_at.get(range_.partition) or never)
