"""The partitions of the minutes' table, by name: one for each week, which begins on Monday in UTC. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

TABLE: Final = "billing_usageminute"
# What no week has room for: minutes far ahead, and late ones of a week that was dropped.
OTHER: Final = f"{TABLE}_other"
WEEK: Final = timedelta(days=7)
# So many weeks after the one that runs have a partition: the schedule may stand still for a month.
WEEKS_AHEAD: Final = 4
_NAME: Final = re.compile(rf"{TABLE}_(?P<kind>week|before)_(?P<day>\d{{8}})")


class Partition(NamedTuple):
    """Of the minutes before `end`; `start` is None where it has all of them."""

    name: str
    start: datetime | None
    end: datetime


class TableState(NamedTuple):
    """Until when there are partitions, and rows of later minutes."""

    ends: datetime | None
    rows_ahead: int

    def is_short(self, now: datetime) -> bool:
        """Whether the week that runs has none."""
        return self.ends is None or self.ends <= now


def week_of(instant: datetime) -> datetime:
    """The Monday, 00:00 UTC, on which the week of an aware instant begins."""
    day = instant.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday())


def partition_from(start: datetime) -> Partition:
    return Partition(f"{TABLE}_week_{start:%Y%m%d}", start, start + WEEK)


def parsed(name: str) -> Partition | None:
    """None of a table that is not of a span of time."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    day = datetime.strptime(found["day"], "%Y%m%d").replace(tzinfo=UTC)
    return partition_from(day) if found["kind"] == "week" else Partition(name, None, day)


def wanted(now: datetime, there: Iterable[Partition]) -> list[Partition]:
    """Those that are to be made, oldest first: from the end of all that are there on, until `WEEKS_AHEAD`."""
    start = max((each.end for each in there), default=week_of(now))
    result = []
    while start <= week_of(now) + WEEKS_AHEAD * WEEK:
        result.append(partition_from(start))
        start += WEEK
    return result


def outlived(there: Iterable[Partition], kept_from: datetime) -> list[Partition]:
    """Those of which no minute is kept any more, oldest first."""
    return sorted((each for each in there if each.end <= kept_from), key=lambda each: each.end)
