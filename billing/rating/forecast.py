"""Forecast of an instance's usage in the remaining hours of the current month. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from billing.rating.hours import HOUR, ceil_hour, floor_hour
from billing.rating.percentile import BYTES_PER_MB, POINT_DURATION, POINTS_PER_HOUR, billed_rate
from billing.rating.terms import HourUsage, InstanceUsage, Period, RatePoint, SizeSpan

BYTES_PER_POINT_OF_MB_S: Final = BYTES_PER_MB * (POINT_DURATION // timedelta(seconds=1))


def with_forecast(usage: InstanceUsage, until: datetime, month: Period) -> InstanceUsage:
    """Returns the usage of the whole month, given that of its hours before `until`.

    Each remaining hour gets the average of the past hours; the percentile of the plan is assumed to stay as it is. The
    usage of an instance that was deleted, or that used nothing, is returned unchanged.
    """
    last = usage.spans[-1] if usage.spans else None
    if last is None or last.end is not None or not usage.hours:
        return usage
    since = max(month.start, usage.spans[0].start)
    past_hours = max(1, -(-(until - since) // HOUR))
    average = HourUsage(
        hour=until,
        bytes_in=sum(hour.bytes_in for hour in usage.hours) // past_hours,
        bytes_out=sum(hour.bytes_out for hour in usage.hours) // past_hours,
        stored_byte_hours=sum((hour.stored_byte_hours for hour in usage.hours), Decimal(0)) // past_hours,
        partition_hours=sum((hour.partition_hours for hour in usage.hours), Decimal(0)) / past_hours,
        connections_peak=sum(hour.connections_peak for hour in usage.hours) // past_hours,
    )
    remaining = [until + number * HOUR for number in range((month.end - until) // HOUR)]
    return replace(
        usage,
        hours=[*usage.hours, *(replace(average, hour=hour) for hour in remaining)],
        rate_points=[*usage.rate_points, *_points(usage, last, until, month, remaining)],
    )


def _points(
    usage: InstanceUsage, last: SizeSpan, until: datetime, month: Period, remaining: list[datetime]
) -> Iterator[RatePoint]:
    """Yields one point of the present percentile for each remaining hour.

    One of the twelve points of an hour suffices: a percentile discards 5 % of the points, and no new one exceeds it.
    """
    hours = set(_hours_on(last.plan, usage, until, month))
    points = [point for point in usage.rate_points if floor_hour(point.start) in hours]
    percentile_bytes = round(billed_rate(points, len(hours) * POINTS_PER_HOUR) * BYTES_PER_POINT_OF_MB_S)
    if percentile_bytes:
        yield from (RatePoint(start=hour, bytes_in=percentile_bytes, bytes_out=0) for hour in remaining)


def _hours_on(plan: str, usage: InstanceUsage, until: datetime, month: Period) -> Iterator[datetime]:
    """Yields the past hours in which the instance ran on a plan, some of them twice."""
    for span in usage.spans:
        if span.plan != plan or span.only_storage:
            continue
        hour = max(month.start, floor_hour(span.start))
        end = until if span.end is None else min(until, ceil_hour(span.end))
        while hour < end:
            yield hour
            hour += HOUR
