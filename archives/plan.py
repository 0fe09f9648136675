"""Choice of the offsets that a run reads next: pure (BAT-2, BAT-6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Records `[start, stop)` of a partition; the `missed` offsets before it are lost."""

    partition: int
    start: int
    stop: int
    missed: int = 0


class Gap(Exception):
    """Records were deleted before they were archived, and the archive must not skip them."""


def is_recreated(known_id: str, topic_id: str, stored: Mapping[int, int], ends: Mapping[int, tuple[int, int]]) -> bool:
    """True if the topic was deleted and recreated, according to its id.

    While no id is known, stored offsets beyond the ends of the logs indicate this.
    """
    if known_id:
        return known_id != topic_id
    return any(offset > ends[partition][1] for partition, offset in stored.items() if partition in ends)


def next_range(partition: int, stored: int | None, low: int, stop: int, *, skips_gaps: bool) -> Range | None:
    """Returns the range after `stored`, the next offset, or None if it is empty.

    A partition that was never read is read from `low`, its log start offset, to `stop`, its last stable offset.

    Raises:
        Gap: the log begins after the next offset, or ends before it.
    """
    start = low if stored is None else stored
    if low <= start <= stop:
        return Range(partition=partition, start=start, stop=stop) if start < stop else None
    if start > stop:
        raise Gap(f"Partition {partition} ends at offset {stop}, but was archived to {start}: its broker lost records.")
    if not skips_gaps:
        raise Gap(f"Partition {partition} begins at offset {low}: {low - start} offsets were deleted before.")
    return Range(partition=partition, start=low, stop=stop, missed=low - start)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPace:
    """Time limit and rate of the tasks of a run: the end in seconds since 1970, and bytes per second (None:
    unlimited).
    """

    ends_s: float
    bytes_per_s: int | None = None

    def wait_s(self, began_s: float, now_s: float, size: int) -> float:
        """Returns the seconds that a reader of `size` bytes since `began_s` must wait before it continues."""
        return 0.0 if self.bytes_per_s is None else max(0.0, size / self.bytes_per_s - (now_s - began_s))


def pace_of(bytes_per_s_max: int | None, ranges: int, slots: int, ends_s: float) -> TaskPace:
    """Returns the pace of each task: the archive's rate is divided among the tasks that run concurrently.

    Of `ranges` tasks, at most `slots` run at the same time.
    """
    at_once = max(1, min(ranges, slots))
    return TaskPace(ends_s=ends_s, bytes_per_s=None if bytes_per_s_max is None else max(1, bytes_per_s_max // at_once))


def in_turn(ranges: Sequence[Range], read_at: Mapping[int, datetime | None]) -> list[Range]:
    """Orders ranges by waiting time: partitions that were never read, then by `read_at`.

    A run may end before the last ones have begun.
    """
    never = datetime.min.replace(tzinfo=UTC)
    return sorted(ranges, key=lambda range_: read_at.get(range_.partition) or never)
