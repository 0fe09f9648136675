"""95th-percentile billing of bandwidth: five-minute averages of the larger direction; missing points count as zero."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from billing.rating.terms import Period, RatePoint, SizeSpan

POINT_DURATION = timedelta(minutes=5)
POINTS_PER_HOUR = timedelta(hours=1) // POINT_DURATION
BYTES_PER_MB = 1_000_000
DROPPED_SHARE = Decimal("0.05")


class Percentile(NamedTuple):
    """95th percentile of the bandwidth of a period: the rate `mb_s`, which is charged for the part `share` of the
    period.

    `points` is the number of five-minute averages, and `dropped` the number of the largest ones that were discarded.
    """

    points: int
    dropped: int
    mb_s: Decimal
    share: Decimal


def percentile_95(period: Period, spans: Sequence[SizeSpan], rate_points: Sequence[RatePoint]) -> Percentile:
    """Computes the percentile over the time in which the instance existed and was not suspended.

    `share` is that time in relation to the whole period.
    """
    starts = _point_starts(period, spans)
    count = len(starts)
    whole = (period.end - period.start) // POINT_DURATION
    if not count:
        return Percentile(0, 0, Decimal(0), Decimal(0))
    billed = billed_rate([point for point in rate_points if point.start in starts], count)
    return Percentile(count, int(count * DROPPED_SHARE), billed, Decimal(count) / Decimal(whole))


def billed_rate(points: Iterable[RatePoint], count: int) -> Decimal:
    """Returns the 95th percentile in MB/s of `count` five-minute averages; missing points are zero."""
    seconds = int(POINT_DURATION.total_seconds())
    rates = sorted(
        (Decimal(max(point.bytes_in, point.bytes_out)) / (seconds * BYTES_PER_MB) for point in points), reverse=True
    )
    dropped = int(count * DROPPED_SHARE)
    return rates[dropped] if dropped < len(rates) else Decimal(0)


def _point_starts(period: Period, spans: Sequence[SizeSpan]) -> set[datetime]:
    result: set[datetime] = set()
    for span in spans:
        if span.only_storage:
            continue
        start = max(period.start, span.start)
        end = period.end if span.end is None else min(period.end, span.end)
        point_start = start - (start - period.start) % POINT_DURATION
        while point_start < end:
            result.add(point_start)
            point_start += POINT_DURATION
    return result
