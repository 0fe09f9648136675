"""Writes: partitions of the table of usage minutes are created ahead of time, and old ones dropped.

Each action is a transaction that waits for its lock for two seconds at most, because pipeline and pages wait behind it;
a failed action is retried an hour later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import structlog
from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.db.backends.utils import CursorWrapper

from billing.models import PriceComponent, UsageMinute
from billing.rating.terms import Meter
from billing.retention import weeks
from billing.retention.weeks import DEFAULT_PARTITION, TABLE, Partition, TableState
from instances.models import Operation

log = structlog.get_logger(__name__)

LOCK_TIMEOUT_MS: Final = 2_000

_PARTITIONS: Final = """
SELECT child.relname FROM pg_inherits
JOIN pg_class child ON child.oid = inhrelid JOIN pg_class parent ON parent.oid = inhparent
WHERE parent.relname = %s AND parent.relnamespace = current_schema()::regnamespace
"""

# Five-minute sums for bills by percentile, so that they can be recomputed without the minutes.
_STORE_POINTS: Final = """
INSERT INTO billing_usagepoint (instance_id, point, direction, bytes)
SELECT instance_id, date_bin('5 minutes', minute, '2000-01-01 00:00+00'), direction, sum(bytes)
FROM {table} WHERE instance_id = ANY(%s) AND minute < %s GROUP BY 1, 2, 3
ON CONFLICT (instance_id, point, direction) DO UPDATE SET bytes = billing_usagepoint.bytes + excluded.bytes
"""


class MaintenanceResult(NamedTuple):
    """Names of created and dropped partitions, and the number of rows deleted from the default partition."""

    created: list[str]
    dropped: list[str]
    deleted_rows: int


def retained_since(now: datetime) -> datetime:
    """Returns the midnight (UTC) before which minutes are deleted."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight - timedelta(days=settings.USAGE_MINUTES_KEPT_DAYS)


def existing_partitions() -> list[Partition]:
    """Returns the existing partitions that cover a span of time."""
    with connection.cursor() as cursor:
        cursor.execute(_PARTITIONS, [TABLE])
        return [partition for (name,) in cursor.fetchall() if (partition := weeks.parse_partition(name)) is not None]


def maintain(now: datetime) -> MaintenanceResult:
    """Creates and drops partitions. Safe to run concurrently. If a lock times out, the remaining work is postponed."""
    result = MaintenanceResult([], [], 0)
    try:
        for partition in weeks.missing_partitions(now, existing_partitions()):
            _create(partition)
            result.created.append(partition.name)
        for partition in weeks.expired_partitions(existing_partitions(), retained_since(now)):
            _drop(partition)
            result.dropped.append(partition.name)
        return result._replace(deleted_rows=_delete_expired_others(retained_since(now)))
    except OperationalError as error:
        log.warning("partition.tried_later", reason=type(error.__cause__).__name__)
        return result


@contextmanager
def _lock_table() -> Iterator[CursorWrapper]:
    """Locks the table exclusively until the end of the transaction."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{LOCK_TIMEOUT_MS}ms"])
        cursor.execute(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE")
        yield cursor


def _create(partition: Partition) -> None:
    """Creates a partition and moves the minutes of its week from `OTHER` into it."""
    assert partition.start is not None
    span = [partition.start, partition.end]
    with _lock_table() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [partition.name])
        if cursor.fetchone()[0]:
            return  # another run created it
        cursor.execute(f"CREATE TABLE {partition.name} (LIKE {TABLE} INCLUDING DEFAULTS)")
        cursor.execute(
            f"WITH moved AS (DELETE FROM {DEFAULT_PARTITION} WHERE minute >= %s AND minute < %s RETURNING *)"  # noqa: S608
            f" INSERT INTO {partition.name} SELECT * FROM moved",
            span,
        )
        start, end = (instant.isoformat() for instant in span)
        cursor.execute(
            f"ALTER TABLE {TABLE} ATTACH PARTITION {partition.name} FOR VALUES FROM ('{start}') TO ('{end}')"
        )


def _drop(partition: Partition) -> None:
    with _lock_table() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NULL", [partition.name])
        if cursor.fetchone()[0]:
            return
        cursor.execute(_STORE_POINTS.format(table=partition.name), [_percentile_instances(), partition.end])
        cursor.execute(f"DROP TABLE {partition.name}")
    log.info("partition.dropped", partition=partition.name)


def _delete_expired_others(before: datetime) -> int:
    """Deletes late minutes of weeks that were dropped."""
    if not _has_expired_others(before):
        return 0
    with _lock_table() as cursor:
        cursor.execute(_STORE_POINTS.format(table=DEFAULT_PARTITION), [_percentile_instances(), before])
        cursor.execute(f"DELETE FROM {DEFAULT_PARTITION} WHERE minute < %s", [before])  # noqa: S608
        return int(cursor.rowcount)


def _has_expired_others(before: datetime) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT EXISTS (SELECT FROM {DEFAULT_PARTITION} WHERE minute < %s)", [before])  # noqa: S608
        return bool(cursor.fetchone()[0])


def _percentile_instances() -> list[str]:
    """Returns the instances that ever had a plan with a price by percentile."""
    plans = PriceComponent.objects.filter(meter=Meter.BANDWIDTH_P95.value).values("price__plan__code")
    return list(Operation.objects.filter(plan__in=plans).values_list("instance_id", flat=True).distinct())


ROWS_COUNTED_MAX: Final = 10_000


def state(now: datetime) -> TableState:
    """Returns the state of the table for operators."""
    end = max((partition.end for partition in existing_partitions()), default=None)
    ahead = UsageMinute.objects.filter(minute__gte=end or now).order_by()
    return TableState(end, ahead[:ROWS_COUNTED_MAX].count())
