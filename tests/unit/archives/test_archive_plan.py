"""Plan of archives: order, pace, and the end of a damaged batch."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from archives.damage import find_damage_end
from archives.plan import Range, TaskPace, order_by_waiting_time, task_pace

NOW = datetime(2026, 11, 1, tzinfo=UTC)


@given(st.integers(0, 10**12), st.integers(1, 200_000), st.integers(0, 100_000))
def test_the_end_of_a_damaged_batch_is_found_in_a_few_reads(base: int, records: int, behind: int) -> None:
    asked: list[int] = []

    def is_damaged(offset: int) -> bool:
        asked.append(offset)
        assert base < offset < base + records + behind
        return offset < base + records

    assert find_damage_end(base, base + records + behind, is_damaged) == base + records
    assert len(asked) <= 2 * math.log2(records) + 2


@given(st.dictionaries(st.integers(0, 50), st.none() | st.integers(0, 100), max_size=20))
def test_the_partition_that_waits_longest_comes_first(read_minutes: dict[int, int | None]) -> None:
    ranges = [Range(partition=number, start=0, stop=1) for number in read_minutes]
    read_at = {
        number: None if minute is None else NOW + timedelta(minutes=minute) for number, minute in read_minutes.items()
    }
    waited = [read_minutes[each.partition] for each in order_by_waiting_time(ranges, read_at)]
    assert sorted(waited, key=lambda minute: -1 if minute is None else minute) == waited


@given(st.integers(1, 10**9), st.integers(0, 1_000), st.integers(1, 64))
def test_tasks_at_once_are_no_faster_together_than_the_archive(bytes_per_s: int, ranges: int, slots: int) -> None:
    pace = task_pace(bytes_per_s, ranges, slots, 30.0)
    at_once = max(1, min(ranges, slots))
    assert pace.bytes_per_s is not None and pace.bytes_per_s * at_once <= max(bytes_per_s, at_once)


@given(st.integers(1, 10**9), st.integers(0, 10**9), st.floats(0, 100))
def test_a_reader_that_waits_the_given_time_keeps_the_pace(bytes_per_s: int, size: int, since_s: float) -> None:
    wait_s = TaskPace(deadline_s=0.0, bytes_per_s=bytes_per_s).wait_s(0.0, since_s, size)
    assert wait_s >= 0 and size <= bytes_per_s * (since_s + wait_s) * 1.000_001 + 1


def test_without_a_pace_nobody_waits() -> None:
    assert task_pace(None, 3, 2, 30.0).wait_s(0.0, 0.0, 10**12) == 0.0
