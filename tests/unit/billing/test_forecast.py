"""billing.rating.forecast: a month that goes on as it went is forecast to the cent, at any of its hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing.rating.engine import rate
from billing.rating.forecast import with_forecast
from billing.rating.hours import HOUR
from billing.rating.percentile import POINT_DURATION
from billing.rating.terms import (
    Agreement,
    Component,
    HourUsage,
    InstanceUsage,
    Meter,
    Period,
    PriceList,
    RatePoint,
    Scheme,
    SizeSpan,
    Tier,
)
from tests.testkit import depth

FEBRUARY = Period(start=datetime(2028, 2, 1, tzinfo=UTC), end=datetime(2028, 3, 1, tzinfo=UTC))
HOURS = 29 * 24
LONG_BEFORE = datetime(2028, 1, 1, tzinfo=UTC)
MB_S = 300 * 10**6


def prices(*meters: Meter, plan: str = "p", price: str = "0.37", **terms: Decimal) -> PriceList:
    tiers = [Tier(up_to=None, unit_price=Decimal(price))]
    of = [Component(meter=meter, scheme=Scheme.GRADUATED, tiers=tiers, **terms) for meter in meters]
    return PriceList(plan=plan, currency="EUR", effective_from=LONG_BEFORE, components=of)


def span(start: datetime = LONG_BEFORE, end: datetime | None = None, **more: Any) -> SizeSpan:
    return SizeSpan(**{"plan": "p", "bandwidth_mb_s": 1, "storage_gb": 1, **more}, start=start, end=end)


def steady(start: datetime, end: datetime, mb_s: int) -> tuple[list[HourUsage], list[RatePoint]]:
    """Usage of hours that are alike."""
    hours = [
        HourUsage(
            hour=start + n * HOUR, bytes_in=mb_s * 12 * MB_S, bytes_out=10**9, stored_byte_hours=Decimal(5 * 10**9),
            partition_hours=Decimal(3), connections_peak=2,
        )
        for n in range((end - start) // HOUR)
    ]  # fmt: skip
    points = [
        RatePoint(start=start + n * POINT_DURATION, bytes_in=mb_s * MB_S, bytes_out=0)
        for n in range((end - start) // POINT_DURATION)
    ]
    return hours, points


@settings(max_examples=depth.examples(60), deadline=None)
@given(passed=st.integers(1, HOURS - 1), mb_s=st.integers(1, 40))
def test_a_steady_month_is_forecast_to_the_cent_at_any_of_its_hours(passed: int, mb_s: int) -> None:
    lists = [prices(*(meter for meter in Meter), commit=Decimal(20), included=Decimal(1))]
    agreement, until = Agreement(currency="EUR"), FEBRUARY.start + passed * HOUR

    def usage(end: datetime) -> InstanceUsage:
        hours, points = steady(FEBRUARY.start, end, mb_s)
        return InstanceUsage(instance_id="i", spans=[span()], hours=hours, rate_points=points)

    whole = rate(FEBRUARY, [usage(FEBRUARY.end)], lists, agreement)
    assert rate(FEBRUARY, [with_forecast(usage(until), until, FEBRUARY)], lists, agreement) == whole


@pytest.mark.parametrize("passed", [1, 3, 24, 35, 36, 400])
def test_a_percentile_is_forecast_from_the_hours_on_its_plan(passed: int) -> None:
    """At 50 MB/s on another plan before; a few points are dropped like at the end of the month."""
    since = FEBRUARY.start + 100 * HOUR
    until = since + passed * HOUR
    before, points_before = steady(FEBRUARY.start, since, 50)
    hours, points = steady(since, until, 10)
    dropped = int(len(points) * Decimal("0.05"))
    points = [RatePoint(start=point.start, bytes_in=90 * MB_S, bytes_out=0) for point in points[:dropped]] + points[
        dropped:
    ]
    usage = InstanceUsage(
        instance_id="i", spans=[span(end=since, plan="other"), span(since)], hours=[*before, *hours],
        rate_points=[*points_before, *points],
    )  # fmt: skip
    lists = [prices(Meter.BANDWIDTH_P95, price="100"), prices(Meter.INSTANCE, plan="other", price="0")]

    (line,) = rate(FEBRUARY, [with_forecast(usage, until, FEBRUARY)], lists, Agreement(currency="EUR")).lines

    assert (line.hours, line.amount) == (
        HOURS - 100,
        (Decimal(1_000) * (HOURS - 100) / HOURS).quantize(Decimal("0.01")),
    )


def test_a_suspended_instance_goes_on_storing_and_a_deleted_one_does_not() -> None:
    until = FEBRUARY.start + 10 * HOUR
    hours, _ = steady(FEBRUARY.start, until, 1)
    for end, expected in ((None, "1287.60"), (until, "18.50")):
        usage = InstanceUsage(instance_id="i", spans=[span(only_storage=True, end=end)], hours=hours)
        lists = [prices(Meter.STORED, Meter.BYTES_IN, Meter.PARTITIONS)]
        bill = rate(FEBRUARY, [with_forecast(usage, until, FEBRUARY)], lists, Agreement(currency="EUR"))
        assert [(line.meter, str(line.amount)) for line in bill.lines] == [("stored", expected)]


def test_an_instance_without_usage_is_forecast_to_use_nothing() -> None:
    usage = InstanceUsage(instance_id="i", spans=[span()])
    assert with_forecast(usage, FEBRUARY.start + timedelta(days=3), FEBRUARY) == usage
