"""Rating (`billing.rating.engine`): worked bills, percentiles, scenarios to the cent, and a naive twin."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rating.engine import rate
from billing.rating.hours import NoPrice
from billing.rating.percentile import percentile_95
from billing.rating.terms import (
    Agreement,
    Bill,
    Component,
    Discount,
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
from billing.rating.tiers import charges
from tenants.currencies import rounded

D = Decimal
GOLDEN = Path(__file__).parents[2] / "golden" / "billing" / "scenarios.json"
MARCH = Period(start=datetime(2026, 3, 1, tzinfo=UTC), end=datetime(2026, 4, 1, tzinfo=UTC))
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
EUR = Agreement(currency="EUR")


def at(day: int, hour: int = 0, minute: int = 0) -> datetime:
    return datetime(2026, 3, day, hour, minute, tzinfo=UTC)


def component(meter: Meter, price: str, included: str = "0", **more: Any) -> Component:
    tiers = (Tier(up_to=None, unit_price=D(price)),)
    return Component(meter=meter, scheme=Scheme.GRADUATED, tiers=tiers, included=D(included), **more)


def prices(*components: Component, plan: str = "stream", since: datetime = EPOCH, currency: str = "EUR") -> PriceList:
    return PriceList(plan=plan, currency=currency, effective_from=since, components=components)


def span(start: datetime, end: datetime | None, **more: Any) -> SizeSpan:
    return SizeSpan(**{"plan": "stream", "bandwidth_mb_s": 20, "storage_gb": 100, **more}, start=start, end=end)


def usage(*spans: SizeSpan, hours: Sequence[HourUsage] = (), points: Sequence[RatePoint] = ()) -> InstanceUsage:
    return InstanceUsage(instance_id="ins-aaaaaaaa", spans=spans, hours=hours, rate_points=points)


def amounts(bill: Bill) -> list[str]:
    return [str(line.amount) for line in bill.lines]


def test_the_worked_bill_of_ckafka_is_1248_39_and_1137_40_after_the_upgrade() -> None:
    before = prices(
        component(Meter.INSTANCE, "5.16"),
        component(Meter.BANDWIDTH, "0.0225", included="120"),
        component(Meter.STORAGE, "0.0025"),
        component(Meter.PARTITIONS, "0.0031", included="1000"),
        plan="tier",
    )
    after = prices(component(Meter.INSTANCE, "9.4"), plan="larger")
    upgraded_at = at(5, 21)
    small = span(at(1), upgraded_at, plan="tier", bandwidth_mb_s=240, storage_gb=1000)
    large = span(upgraded_at, upgraded_at + 121 * HOUR, plan="larger")
    hours = [HourUsage(hour=at(1) + n * HOUR, partition_hours=D(1100)) for n in range(117)]

    bill = rate(MARCH, [usage(small, large, hours=hours)], [before, after], EUR)

    by_plan = {plan: sum(line.amount for line in bill.lines if line.plan == plan) for plan in ("tier", "larger")}
    assert amounts(bill) == ["603.72", "315.90", "292.50", "1137.40", "36.27"]
    assert by_plan == {"tier": D("1248.39"), "larger": D("1137.40")}


def test_the_percentile_example_bills_the_231st_of_4608_points_for_16_of_31_days() -> None:
    there = span(at(1), at(17))
    rates = [D("20.0")] * 230 + [D("14.3")] + [D("1.0")] * 1000
    points = [
        RatePoint(start=at(1) + number * timedelta(minutes=5), bytes_in=int(mb_s * 300 * 10**6), bytes_out=0)
        for number, mb_s in enumerate(rates)
    ]

    found = percentile_95(MARCH, [there], points)
    bill = rate(MARCH, [usage(there, points=points)], [prices(component(Meter.BANDWIDTH_P95, "100"))], EUR)

    assert (found.points, found.dropped, found.mb_s) == (4608, 230, D("14.3"))
    assert (found.mb_s * 100 * found.share).quantize(D("0.0001")) == D("738.0645")
    assert amounts(bill) == ["738.06"]


def scenarios() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


def _bill_of(scenario: dict[str, Any]) -> Bill:
    start, end = (_instant(text) for text in scenario["period"])
    assert start is not None and end is not None
    lists = [
        PriceList(
            plan=each["plan"],
            currency=each.get("currency", "EUR"),
            effective_from=_instant(each.get("since", "2026-01-01T00:00+00:00")) or EPOCH,
            components=[
                Component(
                    meter=Meter(one["meter"]),
                    scheme=Scheme(one.get("scheme", "graduated")),
                    tiers=[
                        Tier(up_to=None if up_to is None else D(up_to), unit_price=D(price), flat=D(flat))
                        for up_to, price, flat in one["tiers"]
                    ],
                    included=D(one.get("included", "0")),
                    commit=D(one.get("commit", "0")),
                    overage_price=D(one["overage"]) if "overage" in one else None,
                )
                for one in each["components"]
            ],
        )
        for each in scenario["prices"]
    ]
    used = [
        InstanceUsage(
            instance_id=f"ins-{number:08d}",
            spans=[
                SizeSpan(
                    plan=each.get("plan", "stream"),
                    bandwidth_mb_s=each.get("mb_s", 20),
                    storage_gb=each.get("gb", 100),
                    start=_instant(each["start"]) or EPOCH,
                    end=_instant(each.get("end")),
                    only_storage=each.get("only_storage", False),
                )
                for each in instance["spans"]
            ],
            hours=[
                HourUsage(
                    hour=_instant(each["hour"]) or EPOCH,
                    bytes_in=each.get("in", 0),
                    bytes_out=each.get("out", 0),
                    stored_byte_hours=D(each.get("stored", 0)),
                    partition_hours=D(each.get("partitions", 0)),
                    connections_peak=each.get("connections", 0),
                )
                for each in instance.get("hours", ())
            ],
        )
        for number, instance in enumerate(scenario["instances"])
    ]
    agreed = scenario.get("agreement", {})
    agreement = Agreement(
        currency=agreed.get("currency", "EUR"),
        discounts=[
            Discount(
                code=each["code"],
                percent=D(each.get("percent", "0")),
                amount=D(each.get("amount", "0")),
                start=_instant(each.get("start")),
                end=_instant(each.get("end")),
            )
            for each in agreed.get("discounts", ())
        ],
        minimum=D(agreed.get("minimum", "0")),
        tax_percent=D(agreed.get("tax", "0")),
    )
    return rate(Period(start=start, end=end), used, lists, agreement)


@pytest.mark.parametrize("scenario", scenarios(), ids=lambda scenario: scenario["name"].replace(" ", "-"))
def test_a_scenario_comes_to_the_cent_that_was_worked_out_by_hand(scenario: dict[str, Any]) -> None:
    bill = _bill_of(scenario)

    assert amounts(bill) == scenario["lines"], scenario["worked_out"]
    assert [str(bill.subtotal), str(bill.tax), str(bill.total)] == scenario["sums"]
    assert bill.subtotal == sum(line.amount for line in bill.lines)


def test_a_plan_without_a_price_is_said_and_not_given_away() -> None:
    late = prices(component(Meter.INSTANCE, "1"), since=at(10))
    with pytest.raises(NoPrice, match="plan stream has no price at 2026-03-01 00:00 UTC"):
        rate(MARCH, [usage(span(at(1), None))], [late], EUR)


instants = st.integers(0, 31 * 24 * 60).map(lambda minutes: MARCH.start + timedelta(minutes=minutes))
unit_prices = st.decimals("0.0001", "9", places=4)


@st.composite
def histories(draw: st.DrawFn) -> list[SizeSpan]:
    """Consecutive spans, sometimes with a gap; the last one may be open."""
    cuts = sorted(draw(st.sets(instants, min_size=2, max_size=8)))
    result = []
    for start, end in pairwise(cuts):
        if draw(st.integers(0, 4)):
            size = draw(st.sampled_from([(20, 100), (40, 100), (20, 500)]))
            stored = draw(st.integers(0, 5)) == 0
            result.append(span(start, end, bandwidth_mb_s=size[0], storage_gb=size[1], only_storage=stored))
    if result and draw(st.booleans()):
        result[-1] = replace(result[-1], end=None)
    return result


@st.composite
def price_lists(draw: st.DrawFn) -> list[PriceList]:
    starts = [EPOCH, *draw(st.lists(instants, max_size=2, unique=True))]
    return [
        prices(
            component(Meter.INSTANCE, str(draw(unit_prices))),
            component(Meter.BANDWIDTH, str(draw(unit_prices)), included="20"),
            component(Meter.STORAGE, str(draw(unit_prices)), included="100"),
            component(Meter.BYTES_IN, str(draw(unit_prices))),
            since=start,
        )
        for start in starts
    ]


used_hours = st.lists(
    st.tuples(st.integers(0, 743), st.integers(0, 10**13)).map(
        lambda drawn: HourUsage(hour=MARCH.start + drawn[0] * HOUR, bytes_in=drawn[1])
    ),
    max_size=10,
    unique_by=lambda hour: hour.hour,
)


def exact(bill: Bill) -> Decimal:
    return sum((line.quantity * line.unit_price for line in bill.lines), D(0))


def naive(period: Period, used: InstanceUsage, lists: Sequence[PriceList]) -> Decimal:
    """Returns the bill computed hour by hour: bytes at the price of the hour, while the instance existed."""
    total, hour = D(0), period.start
    bytes_in = {each.hour: each.bytes_in for each in used.hours}
    while hour < period.end:
        dearest, price_of_bytes = None, D(0)
        for each in used.spans:
            if each.start < hour + HOUR and (each.end is None or each.end > hour):
                begun = [one for one in lists if one.effective_from <= hour]
                found = max(begun, key=lambda one: one.effective_from).components
                cost = max(0, each.storage_gb - 100) * found[2].tiers[0].unit_price
                if not each.only_storage:
                    cost += found[0].tiers[0].unit_price
                    cost += max(0, each.bandwidth_mb_s - 20) * found[1].tiers[0].unit_price
                    price_of_bytes = found[3].tiers[0].unit_price
                dearest = cost if dearest is None else max(dearest, cost)
        if dearest is not None:
            total += dearest + D(bytes_in.get(hour, 0)) / 10**9 * price_of_bytes
        hour += HOUR
    return total


def within(spans: Sequence[SizeSpan], hours: Sequence[HourUsage]) -> list[HourUsage]:
    """Returns the hours in which the instance existed."""
    return [
        hour
        for hour in sorted(hours, key=lambda each: each.hour)
        if any(each.start < hour.hour + HOUR and (each.end is None or each.end > hour.hour) for each in spans)
    ]


@given(histories(), price_lists(), used_hours)
def test_the_engine_says_what_a_naive_twin_says(
    spans: list[SizeSpan], lists: list[PriceList], hours: list[HourUsage]
) -> None:
    used = usage(*spans, hours=within(spans, hours))

    bill = rate(MARCH, [used], lists, EUR)

    assert exact(bill) == naive(MARCH, used, lists)
    assert bill.total == sum(line.amount for line in bill.lines)
    assert all(line.amount == rounded(line.quantity * line.unit_price) for line in bill.lines)


@given(histories(), price_lists(), used_hours, st.integers(1, 743))
def test_a_period_that_is_cut_at_any_hour_costs_what_its_parts_cost(
    spans: list[SizeSpan], lists: list[PriceList], hours: list[HourUsage], cut: int
) -> None:
    used = usage(*spans, hours=within(spans, hours))
    middle = MARCH.start + cut * HOUR

    whole = rate(MARCH, [used], lists, EUR)
    parts = [rate(part, [used], lists, EUR) for part in (replace(MARCH, end=middle), replace(MARCH, start=middle))]

    assert exact(whole) == sum(exact(part) for part in parts)


@given(
    st.lists(st.tuples(st.integers(1, 1000), unit_prices, st.decimals("0", "5", places=2)), min_size=1, max_size=4),
    st.decimals("0", "3000", places=3),
    st.decimals("0", "3000", places=3),
    st.sampled_from(Scheme),
)
def test_tiers_charge_every_unit_once_and_the_same_whether_they_come_at_once_or_in_two_parts(
    drawn: list[tuple[int, Decimal, Decimal]], first: Decimal, second: Decimal, scheme: Scheme
) -> None:
    edges = [D(sum(width for width, _, _ in drawn[: number + 1])) for number in range(len(drawn))]
    tiers = [
        Tier(up_to=None if number == len(drawn) - 1 else edges[number], unit_price=price, flat=flat)
        for number, (_, price, flat) in enumerate(drawn)
    ]
    tiered = Component(meter=Meter.BYTES_IN, scheme=scheme, tiers=tiers)

    at_once = list(charges(tiered, first + second))
    in_parts = [*charges(tiered, first), *charges(tiered, second, before=first)]

    assert sum((each.quantity for each in at_once), D(0)) == first + second
    if scheme is Scheme.GRADUATED:
        assert sum((each.exact for each in at_once), D(0)) == sum((each.exact for each in in_parts), D(0))


def test_amounts_are_rounded_half_up() -> None:
    assert rounded(D("0.005")) == D("0.01") == D("0.005").quantize(D("0.01"), ROUND_HALF_UP)


def test_a_suspended_instance_pays_for_what_it_stores_and_for_nothing_it_moves() -> None:
    meters = (Meter.BYTES_IN, Meter.BYTES_OUT, Meter.PARTITIONS, Meter.CONNECTIONS, Meter.BANDWIDTH_P95, Meter.STORED)
    used_hour = HourUsage(
        hour=at(1), bytes_in=10**12, bytes_out=10**12, stored_byte_hours=D(10**9), partition_hours=D(9),
        connections_peak=9,
    )  # fmt: skip
    moved = [RatePoint(start=at(1), bytes_in=10**12, bytes_out=10**12)] * 600
    suspended = usage(span(at(1), at(2), only_storage=True), hours=[used_hour], points=moved)

    bill = rate(MARCH, [suspended], [prices(*(component(meter, "1") for meter in meters))], EUR)

    assert [(line.meter, line.amount) for line in bill.lines] == [(Meter.STORED, D("1.00"))]


def test_storage_of_a_deleted_instance_is_not_charged_and_late_bytes_are() -> None:
    meters = (Meter.STORED, Meter.PARTITIONS, Meter.CONNECTIONS, Meter.BYTES_IN)
    later = HourUsage(
        hour=at(3), bytes_in=10**9, stored_byte_hours=D(10**9), partition_hours=D(9), connections_peak=9
    )  # fmt: skip

    bill = rate(
        MARCH,
        [usage(span(at(1), at(2)), hours=[later])],
        [prices(*(component(meter, "1") for meter in meters))],
        EUR,
    )

    assert [(line.meter, line.amount) for line in bill.lines] == [(Meter.BYTES_IN, D("1.00"))]
