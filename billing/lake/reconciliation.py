"""Compares days of the lake with the usage tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

import structlog

from billing.lake import outcomes
from billing.lake.address import Lake
from billing.lake.replay import LakeBroken, hours
from billing.models import LakeFile, UsageHour

log = structlog.get_logger(__name__)

# Age in days up to which a day without an outcome is still reconciled; one such day per hour.
RECONCILED_AGE_DAYS = 45
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class HourDifference:
    """Bytes of an hour in the tables and in the lake."""

    instance_id: str
    hour: datetime
    direction: str
    in_tables: int
    in_lake: int


def covers_whole_day(day: date) -> bool:
    """True if the lake has a file of an earlier day, so that it has all reports of this day."""
    return LakeFile.objects.filter(day__lt=day).exists()


def reconcile(lake: Lake, day: date) -> list[HourDifference]:
    """Compares a day of the lake with the tables; differences are also logged as an error.

    Raises:
        LakeBroken: a file of the lake is damaged.
    """
    start = datetime.combine(day, time(), UTC)
    try:
        result = differences(lake, None, start, start + DAY)
    except LakeBroken:
        outcomes.store(day, outcomes.BROKEN)
        raise
    outcomes.store(day, len(result))
    return result


def day_without_outcome(today: date) -> date | None:
    """Returns the latest day without an outcome, the day before yesterday or earlier; None if every day has one."""
    days = [today - n * DAY for n in range(2, RECONCILED_AGE_DAYS + 1)]
    known = outcomes.of_days(days)
    return next((day for day in days if day not in known and covers_whole_day(day)), None)


def differences(lake: Lake, instance_ids: Iterable[str] | None, start: datetime, end: datetime) -> list[HourDifference]:
    """Returns the hours in `[start, end)` in which tables and lake differ, for these instances (None: for all)."""
    in_tables: dict[tuple[str, datetime, str], int] = {}
    rows = UsageHour.objects.filter(hour__gte=start, hour__lt=end)
    if instance_ids is not None:
        instance_ids = list(instance_ids)
        rows = rows.filter(instance_id__in=instance_ids)
    for instance_id, hour, direction, count in rows.values_list("instance_id", "hour", "direction", "bytes"):
        in_tables[instance_id, hour, direction] = count
    in_lake: dict[tuple[str, datetime, str], int] = defaultdict(int)
    for lake_hour in hours(lake, instance_ids, start, end):
        in_lake[lake_hour.instance_id, lake_hour.hour, lake_hour.direction] += lake_hour.bytes
    result = [
        HourDifference(
            instance_id=key[0], hour=key[1], direction=key[2], in_tables=in_tables.get(key, 0),
            in_lake=in_lake.get(key, 0),
        )
        for key in sorted({*in_tables, *in_lake})
        if in_tables.get(key, 0) != in_lake.get(key, 0)
    ]  # fmt: skip
    if result:
        log.error("usage_differs_from_lake", hours=len(result), first=str(result[0]))
    return result
