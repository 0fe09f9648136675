"""Reads: sizes and usage of a tenant's instances in a period, as input of rating.

The number of queries does not depend on the number of instances.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime

from django.db.models import DateTimeField, DurationField, F, Func, QuerySet, Sum, Value
from django.db.models.functions import Cast

from billing.metering.hourly import hour_usage
from billing.metering.spans import SizeChange, spans
from billing.models import Direction, UsageHour, UsageMinute, UsagePoint
from billing.rating.terms import HourUsage, InstanceUsage, Period, RatePoint, SizeSpan
from instances.choices import OperationState, OperationType
from instances.models import Operation
from tenants.models import Tenant

POINT_SQL = "5 minutes"
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def of_tenant(tenant: Tenant, period: Period, *, with_rates: bool = False) -> list[InstanceUsage]:
    """Returns the usage of every instance that is charged in the period, including deleted ones, ordered by id.

    With `with_rates` it includes five-minute averages, which a price by percentile needs.
    """
    spans_by_instance = spans_in(Operation.objects.filter(tenant=tenant), period)
    hours = _hours_of(spans_by_instance, period)
    points = _rate_points_of(spans_by_instance, period) if with_rates else {}
    return [
        InstanceUsage(
            instance_id=instance_id,
            spans=instance_spans,
            hours=hours.get(instance_id, []),
            rate_points=points.get(instance_id, []),
        )
        for instance_id, instance_spans in sorted(spans_by_instance.items())
    ]


def spans_in(operations: QuerySet[Operation], period: Period) -> dict[str, list[SizeSpan]]:
    """Returns the spans that overlap the period, by instance id, from all operations of these instances."""
    changes: dict[str, list[SizeChange]] = defaultdict(list)
    rows = operations.filter(created_at__lt=period.end).values_list(
        "instance_id",
        "type",
        "created_at",
        "finished_at",
        "state",
        "plan",
        "bandwidth_mb_s",
        "storage_gb",
        "is_suspended",
    )
    for instance_id, type_, requested_at, finished_at, state, plan, bandwidth_mb_s, storage_gb, is_suspended in rows:
        is_done = state == OperationState.SUCCEEDED
        if not is_done and type_ != OperationType.DELETE:
            continue
        changes[instance_id].append(
            SizeChange(
                type=type_,
                requested_at=requested_at,
                done_at=finished_at if is_done else None,
                plan=plan,
                bandwidth_mb_s=bandwidth_mb_s,
                storage_gb=storage_gb,
                is_suspended=is_suspended,
            )
        )
    result = {}
    for instance_id, instance_changes in changes.items():
        inside = [
            span
            for span in spans(instance_changes)
            if span.start < period.end and (span.end is None or span.end > period.start)
        ]
        if inside:
            result[instance_id] = inside
    return result


def _hours_of(instance_ids: Iterable[str], period: Period) -> dict[str, list[HourUsage]]:
    sums: dict[tuple[str, datetime], dict[str, int]] = defaultdict(dict)
    rows = UsageHour.objects.filter(
        instance_id__in=list(instance_ids), hour__gte=period.start, hour__lt=period.end
    ).order_by("instance_id", "hour")
    for instance_id, hour, direction, count in rows.values_list("instance_id", "hour", "direction", "bytes"):
        sums[instance_id, hour][direction] = count
    result: dict[str, list[HourUsage]] = defaultdict(list)
    for (instance_id, hour), total in sums.items():
        result[instance_id].append(hour_usage(hour, total))
    return result


def _rate_points_of(instance_ids: Iterable[str], period: Period) -> dict[str, list[RatePoint]]:
    sums: dict[tuple[str, datetime], dict[str, int]] = defaultdict(dict)
    start = Func(
        Cast(Value(POINT_SQL), DurationField()), F("minute"), Value(EPOCH, output_field=DateTimeField()),
        function="date_bin", output_field=DateTimeField(),
    )  # fmt: skip
    rows = (
        _minutes(instance_ids, period)
        .annotate(point=start)
        .values("instance_id", "point", "direction")
        .annotate(total=Sum("bytes"))
        .order_by("instance_id", "point")
    )
    for row in rows:
        sums[row["instance_id"], row["point"]][row["direction"]] = row["total"]
    # Points of minutes that were dropped; late minutes of the same time are among the rows above.
    stored_points = UsagePoint.objects.filter(
        instance_id__in=list(instance_ids), point__gte=period.start, point__lt=period.end
    ).order_by()
    for instance_id, point, direction, count in stored_points.values_list("instance_id", "point", "direction", "bytes"):
        total = sums[instance_id, point]
        total[direction] = total.get(direction, 0) + count
    result: dict[str, list[RatePoint]] = defaultdict(list)
    for (instance_id, point), total in sorted(sums.items()):
        result[instance_id].append(
            RatePoint(start=point, bytes_in=total.get(Direction.PRODUCE, 0), bytes_out=total.get(Direction.CONSUME, 0))
        )
    return result


def _minutes(instance_ids: Iterable[str], period: Period) -> QuerySet[UsageMinute]:
    return UsageMinute.objects.filter(
        instance_id__in=list(instance_ids), minute__gte=period.start, minute__lt=period.end
    )
