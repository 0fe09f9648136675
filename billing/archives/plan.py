"""Which offsets a run reads next: pure (BAT-2, BAT-6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Records `[start, stop)` of a partition; `missed` offsets before it are gone for good."""

    partition: int
    start: int
    stop: int
    missed: int = 0


class Gap(Exception):
    """Records that were not archived yet are gone, and the archive is not to skip them."""


def next_range(partition: int, stored: int | None, low: int, stop: int, *, skips_gaps: bool) -> Range | None:
    """What comes after `stored`, the next offset; None: nothing. A partition that was never read is read from `low`,
    its log start offset, to `stop`, its last stable offset.

    Raises:
        Gap: the log begins after what is wanted, or ends before it.
    """
    start = low if stored is None else stored
    if low <= start <= stop:
        return Range(partition=partition, start=start, stop=stop) if start < stop else None
    if start > stop:
        raise Gap(f"Partition {partition} ends at offset {stop}, but was archived to {start}: it was made anew.")
    if not skips_gaps:
        raise Gap(f"Partition {partition} begins at offset {low}: {low - start} offsets were deleted before.")
    return Range(partition=partition, start=low, stop=stop, missed=low - start)


def total_lag(ends: Mapping[int, int], nexts: Mapping[int, int]) -> int:
    """Offsets that are not archived yet."""
    return sum(max(0, end - nexts.get(partition, 0)) for partition, end in ends.items())
