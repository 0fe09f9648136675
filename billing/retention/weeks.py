"""Partitions of the table of usage minutes: their names and their weeks, which begin on Monday in UTC. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

TABLE: Final = "billing_usageminute"
# Default partition: minutes in the far future, and late ones of a week that was dropped.
DEFAULT_PARTITION: Final = f"{TABLE}_other"
WEEK: Final = timedelta(days=7)
# Number of future weeks with a partition, so that the schedule may be interrupted for a month.
WEEKS_AHEAD: Final = 4
_NAME: Final = re.compile(rf"{TABLE}_(?P<kind>week|before)_(?P<day>\d{{8}})")


class Partition(NamedTuple):
    """Partition with the minutes before `end`, and from `start` on unless that is None."""

    name: str
    start: datetime | None
    end: datetime


class TableState(NamedTuple):
    """End of the partitions, and number of rows with later minutes."""

    end: datetime | None
    rows_ahead: int

    def is_short(self, now: datetime) -> bool:
        """True if the current week has no partition."""
        return self.end is None or self.end <= now


def week_of(instant: datetime) -> datetime:
    """Returns the Monday, 00:00 UTC, on which the week of an aware instant begins."""
    day = instant.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return day - timedelta(days=day.weekday())


def partition_from(start: datetime) -> Partition:
    return Partition(f"{TABLE}_week_{start:%Y%m%d}", start, start + WEEK)


def parse_partition(name: str) -> Partition | None:
    """Parses the name of a partition; None for other tables, such as `DEFAULT_PARTITION`."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    day = datetime.strptime(match["day"], "%Y%m%d").replace(tzinfo=UTC)
    return partition_from(day) if match["kind"] == "week" else Partition(name, None, day)


def missing_partitions(now: datetime, existing: Iterable[Partition]) -> list[Partition]:
    """Returns the partitions to create, oldest first: from the end of the existing ones until `WEEKS_AHEAD`."""
    start = max((partition.end for partition in existing), default=week_of(now))
    result = []
    while start <= week_of(now) + WEEKS_AHEAD * WEEK:
        result.append(partition_from(start))
        start += WEEK
    return result


def expired_partitions(existing: Iterable[Partition], retained_since: datetime) -> list[Partition]:
    """Returns the partitions whose minutes are all expired, oldest first."""
    return sorted(
        (partition for partition in existing if partition.end <= retained_since), key=lambda partition: partition.end
    )
