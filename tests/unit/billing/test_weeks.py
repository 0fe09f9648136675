"""Partitions of the minutes' table that are to be created and dropped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from billing.retention import weeks
from billing.retention.weeks import WEEK, Partition

SINCE = datetime(2000, 1, 1, tzinfo=UTC)
instants = st.integers(0, 100 * 365 * 24 * 60).map(lambda minutes: SINCE + timedelta(minutes=minutes))
FIRST = Partition(f"{weeks.TABLE}_before_20261130", None, datetime(2026, 11, 30, tzinfo=UTC))


@given(instants, st.integers(0, 400))
def test_weeks_follow_each_other_without_a_hole_whenever_they_were_made_last(now: datetime, days: int) -> None:
    there = [FIRST]
    for moment in (now, now + timedelta(days=days)):
        there += weeks.missing_partitions(moment, there)
        assert weeks.missing_partitions(moment, there) == []
    for earlier, later in pairwise(there):
        assert later.start == earlier.end
    assert there[-1].end > now + timedelta(days=days) + weeks.WEEKS_AHEAD * WEEK or there == [FIRST]


@given(instants)
def test_a_name_says_its_week(now: datetime) -> None:
    partition = weeks.partition_from(weeks.week_of(now))
    assert weeks.parse_partition(partition.name) == partition
    assert partition.start is not None
    assert partition.start <= now < partition.end
    assert partition.start.weekday() == 0


def test_a_week_begins_on_monday_in_utc_wherever_somebody_looks() -> None:
    early = datetime(2026, 11, 30, 1, tzinfo=timezone(timedelta(hours=2)))
    assert weeks.week_of(early) == datetime(2026, 11, 23, tzinfo=UTC)


def test_a_week_with_kept_minutes_is_not_outlived() -> None:
    week = weeks.partition_from(FIRST.end)
    assert weeks.expired_partitions([week, FIRST], week.end - timedelta(days=1)) == [FIRST]
    assert weeks.expired_partitions([week, FIRST], week.end) == [FIRST, week]
    assert weeks.parse_partition(weeks.DEFAULT_PARTITION) is None
