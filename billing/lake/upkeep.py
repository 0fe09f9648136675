"""Writes: merges files of past days, and reconciles days with the tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

import structlog
from django.db import transaction
from django.db.models import Count

from billing.lake import files, merging, outcomes
from billing.lake.address import LakePlace
from billing.lake.replay import LakeBroken, hours
from billing.models import LakeFile, UsageHour

log = structlog.get_logger(__name__)

# Maximum number of files of a cluster on one day before they are merged.
FILES_PER_DAY_MAX = 60
# Number of past days, from yesterday on, that are reconciled, one an hour, while their outcome is unknown.
DAYS_RECONCILED_MAX = 45
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class HourDifference:
    """Bytes of an hour in the tables and in the lake."""

    instance_id: str
    hour: datetime
    direction: str
    in_tables: int
    in_lake: int


def merge_days(place: LakePlace, today: date) -> int:
    """Merges files of past days and of days with too many files; returns by how many files their number decreased.

    Raises:
        LakeBroken: files are damaged. Nothing of their days is merged; all other days are.
    """
    fewer = 0
    broken: list[LakeBroken] = []
    many = LakeFile.objects.values("day", "cluster_id").annotate(count=Count("id")).filter(count__gt=1).order_by("day")
    for group in many:
        if group["day"] < today or group["count"] > FILES_PER_DAY_MAX:
            try:
                fewer += _merge(place, group["cluster_id"], group["day"])
            except LakeBroken as failure:
                broken.append(failure)
    if broken:
        others = f" (and {len(broken) - 1} other days)" if len(broken) > 1 else ""
        raise LakeBroken(f"{broken[0]}{others}") from broken[0]
    return fewer


def _merge(place: LakePlace, cluster_id: str, day: date) -> int:
    old = list(LakeFile.objects.filter(cluster_id=cluster_id, day=day).order_by("id"))
    try:
        written = merging.merge(place, cluster_id, day, old)
    except (OSError, ValueError, merging.Differs) as trouble:
        raise LakeBroken(f"{day} of {cluster_id}: {trouble}") from trouble
    expected = sum(file.rows for file in old), sum(file.added_bytes for file in old)
    if (written.rows, written.added_bytes) != expected:
        raise LakeBroken(f"{written.path}: merged to {written.rows} rows, {written.added_bytes} bytes; not {expected}")
    with transaction.atomic():
        gone, _ = LakeFile.objects.filter(pk__in=[file.pk for file in old]).delete()
        if gone != len(old):
            transaction.set_rollback(True)
            return 0  # another process merged them
        LakeFile.objects.create(
            path=written.path, cluster_id=cluster_id, day=day, rows=written.rows, added_bytes=written.added_bytes,
            schema_version=files.SCHEMA_VERSION,
        )  # fmt: skip
    try:
        for file in old:
            files.delete(place, file.path)
    except OSError as failure:  # without a row they are strays, which are deleted later
        log.warning("lake_files_not_deleted", day=str(day), cluster=cluster_id, reason=str(failure))
    return len(old) - 1


def has_all_of(day: date) -> bool:
    """True if the lake existed before the day began."""
    return LakeFile.objects.filter(day__lt=day).exists()


def reconcile(place: LakePlace, day: date) -> list[HourDifference]:
    """Compares a day of the lake with the tables; differences are also logged as an error.

    Raises:
        LakeBroken: a file of the lake is damaged.
    """
    start = datetime.combine(day, time(), UTC)
    try:
        result = differences(place, None, start, start + DAY)
    except LakeBroken:
        outcomes.note(day, outcomes.BROKEN)
        raise
    outcomes.note(day, len(result))
    return result


def day_without_outcome(today: date) -> date | None:
    """Returns the latest day before yesterday without an outcome; None if all are known."""
    days = [today - n * DAY for n in range(2, DAYS_RECONCILED_MAX + 1)]
    known = outcomes.of_days(days)
    return next((day for day in days if day not in known and has_all_of(day)), None)


def differences(
    place: LakePlace, instance_ids: Iterable[str] | None, start: datetime, end: datetime
) -> list[HourDifference]:
    """Returns the differing full hours of these instances (None: of all)."""
    in_tables: dict[tuple[str, datetime, str], int] = {}
    rows = UsageHour.objects.filter(hour__gte=start, hour__lt=end)
    if instance_ids is not None:
        instance_ids = list(instance_ids)
        rows = rows.filter(instance_id__in=instance_ids)
    for instance_id, hour, direction, count in rows.values_list("instance_id", "hour", "direction", "bytes"):
        in_tables[instance_id, hour, direction] = count
    in_lake: dict[tuple[str, datetime, str], int] = defaultdict(int)
    for lake_hour in hours(place, instance_ids, start, end):
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
