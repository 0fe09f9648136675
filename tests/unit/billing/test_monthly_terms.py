"""billing.rating: terms of a month belong to a plan and a billing period (decision 135). Worked examples, random months
against a naive twin, and splits of a month that change nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing.rating.engine import rate
from billing.rating.terms import (
    Agreement,
    Bill,
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

D = Decimal
JUNE = Period(start=datetime(2026, 6, 1, tzinfo=UTC), end=datetime(2026, 7, 1, tzinfo=UTC))
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
POINT_DURATION = timedelta(minutes=5)
# A billing period of three days: the twin goes hour by hour, and rating does not know how long a month is.
SHORT = Period(start=JUNE.start, end=JUNE.start + 72 * timedelta(hours=1))
HOURS = 72
GB = 10**9
EUR = Agreement(currency="EUR")


def at(day: int, hour: int = 0) -> datetime:
    return datetime(2026, 6, day, hour, tzinfo=UTC)


def component(meter: Meter, *tiers: tuple[str | None, str] | tuple[str | None, str, str], **more: Any) -> Component:
    """Returns a component; each tier is (up to, unit price) or (up to, unit price, flat)."""
    of = tuple(
        Tier(up_to=None if up_to is None else D(up_to), unit_price=D(price), flat=D(rest[0] if rest else "0"))
        for up_to, price, *rest in tiers
    )
    scheme = more.pop("scheme", Scheme.GRADUATED)
    numbers = {name: D(value) for name, value in more.items()}
    return Component(meter=meter, scheme=scheme, tiers=of, **numbers)


def price_list(*components: Component, plan: str = "stream", since: datetime = EPOCH) -> PriceList:
    return PriceList(plan=plan, currency="EUR", effective_from=since, components=components)


def span(start: datetime, end: datetime | None, plan: str = "stream", **more: Any) -> SizeSpan:
    return SizeSpan(**{"plan": plan, "bandwidth_mb_s": 20, "storage_gb": 100, **more}, start=start, end=end)


def used(*spans: SizeSpan, gb: dict[int, int] | None = None, points: Sequence[RatePoint] = ()) -> InstanceUsage:
    """Returns an instance with these spans; `gb` are incoming gigabytes at noon of the days of June."""
    hours = [HourUsage(hour=at(day, 12), bytes_in=count * GB) for day, count in sorted((gb or {}).items())]
    return InstanceUsage(instance_id="ins-aaaaaaaa", spans=spans, hours=hours, rate_points=points)


def amounts(bill: Bill) -> list[str]:
    return [str(line.amount) for line in bill.lines]


def constant_rate(start: datetime, end: datetime, mb_s: int) -> list[RatePoint]:
    count = (end - start) // POINT_DURATION
    return [RatePoint(start=start + n * POINT_DURATION, bytes_in=mb_s * 300 * 10**6, bytes_out=0) for n in range(count)]


WHOLE = span(EPOCH, None)


@pytest.mark.parametrize(
    ("terms", "gb", "subtotal"),
    [
        (component(Meter.BYTES_IN, (None, "0.02"), commit="500"), {3: 100, 20: 500}, "12.00"),
        (
            component(Meter.BYTES_IN, ("100", "0.06"), (None, "0.03"), scheme=Scheme.VOLUME),
            {3: 100, 20: 100},
            "6.00",
        ),
        (component(Meter.BYTES_IN, (None, "0.02"), commit="500", overage_price="0.04"), {3: 400, 20: 400}, "22.00"),
        (component(Meter.BYTES_IN, (None, "0.02"), included="100"), {3: 80, 20: 80}, "1.20"),
        (component(Meter.BYTES_IN, ("100", "0.05", "2"), (None, "0.03", "1")), {3: 80, 20: 80}, "9.80"),
    ],
    ids=["commitment", "volume tier", "overage", "included", "graduated tiers with fees"],
)
def test_the_same_price_list_written_again_in_the_middle_of_a_month_changes_nothing(
    terms: Component, gb: dict[int, int], subtotal: str
) -> None:
    once = rate(JUNE, [used(WHOLE, gb=gb)], [price_list(terms)], EUR)
    twice = rate(JUNE, [used(WHOLE, gb=gb)], [price_list(terms), price_list(terms, since=at(11))], EUR)

    assert (str(once.subtotal), twice.lines) == (subtotal, once.lines)


def test_a_day_on_a_plan_by_percentile_costs_its_day_and_the_other_days_cost_their_gigabytes() -> None:
    by_percentile = price_list(component(Meter.BANDWIDTH_P95, (None, "100")), plan="peak")
    by_volume = price_list(component(Meter.BYTES_IN, (None, "0.02")), plan="stream")
    spans = (span(at(1), at(2), "peak"), span(at(2), None))
    points = constant_rate(at(1), at(2), 10) + constant_rate(at(2), at(4), 50)

    bill = rate(JUNE, [used(*spans, gb={1: 500, 9: 100}, points=points)], [by_percentile, by_volume], EUR)

    assert [(line.plan, str(line.amount), line.hours) for line in bill.lines] == [
        ("stream", "2.00", None),
        ("peak", "33.33", 24),
    ]


def test_the_last_hour_of_a_month_does_not_price_all_of_it() -> None:
    by_percentile = price_list(component(Meter.BANDWIDTH_P95, (None, "100")), plan="peak")
    cheap = price_list(component(Meter.BANDWIDTH_P95, (None, "1")), plan="quiet")
    spans = (span(at(1), at(30, 23), "peak"), span(at(30, 23), None, "quiet"))
    points = constant_rate(at(1), JUNE.end, 10)

    bill = rate(JUNE, [used(*spans, points=points)], [by_percentile, cheap], EUR)

    assert [(line.plan, str(line.amount)) for line in bill.lines] == [("peak", "998.61"), ("quiet", "0.01")]


def test_an_instance_without_usage_pays_its_commitment() -> None:
    terms = component(Meter.BYTES_IN, (None, "0.02"), commit="500")
    assert amounts(rate(JUNE, [used(WHOLE)], [price_list(terms)], EUR)) == ["10.00"]


@pytest.mark.parametrize(
    ("terms", "gb", "lines"),
    [
        (component(Meter.BYTES_IN, (None, "0.02"), commit="720"), {1: 1}, [("24", "0.48", 24)]),
        (component(Meter.BYTES_IN, (None, "0.02"), included="720"), {1: 100}, [("76", "1.52", 24)]),
        (
            component(Meter.BYTES_IN, ("720", "0.05"), (None, "0.03")), {1: 100},
            [("24", "1.20", 24), ("76", "2.28", 24)],
        ),
        (
            component(Meter.BYTES_IN, (None, "0.03", "30")), {1: 100},
            [("100", "3.00", 24), ("0.033333333", "1.00", 24)],
        ),
    ],
    ids=["commitment", "included", "tiers", "fee"],
)  # fmt: skip
def test_terms_of_a_month_are_prorated_by_the_hours_on_the_plan(
    terms: Component, gb: dict[int, int], lines: list[tuple[str, str, int]]
) -> None:
    bill = rate(JUNE, [used(span(at(1), at(2)), gb=gb)], [price_list(terms)], EUR)
    assert [(f"{line.quantity.normalize():f}", str(line.amount), line.hours) for line in bill.lines] == lines


def test_a_change_of_price_splits_the_amount_and_keeps_the_commitment() -> None:
    lists = [
        price_list(component(Meter.BYTES_IN, (None, price), commit="500"), since=since)
        for price, since in (("0.02", EPOCH), ("0.03", at(16)))
    ]
    bill = rate(JUNE, [used(WHOLE, gb={3: 100, 20: 100})], lists, EUR)
    # 300 are missing, half of them in each half of the month.
    assert [(str(line.quantity.normalize()), str(line.amount)) for line in bill.lines] == [
        ("2.5E+2", "5.00"),
        ("2.5E+2", "7.50"),
    ]


def test_a_changed_commitment_counts_by_the_hours_it_was_in_force() -> None:
    lists = [
        price_list(component(Meter.BYTES_IN, (None, "0.02"), commit=commit), since=since)
        for commit, since in (("600", EPOCH), ("300", at(11)))
    ]
    assert amounts(rate(JUNE, [used(WHOLE)], lists, EUR)) == ["8.00"]


def test_a_bill_of_a_month_that_runs_includes_what_the_whole_month_includes() -> None:
    lists = [price_list(component(Meter.BYTES_IN, (None, "0.02"), included="100"))]
    usage = [used(WHOLE, gb={1: 60, 3: 60})]
    assert amounts(rate(JUNE, usage, lists, EUR, until=at(2))) == []
    assert amounts(rate(JUNE, usage, lists, EUR, until=at(4))) == amounts(rate(JUNE, usage, lists, EUR)) == ["0.40"]


def test_a_commitment_of_a_month_that_runs_is_due_by_the_hours_that_passed() -> None:
    lists = [price_list(component(Meter.BYTES_IN, (None, "0.02"), commit="720"))]
    (line,) = rate(JUNE, [used(WHOLE)], lists, EUR, until=at(2)).lines
    assert (line.quantity, str(line.amount), line.hours) == (D(24), "0.48", 24)


def test_an_hour_on_two_plans_without_hourly_price_is_charged_to_the_one_that_ran() -> None:
    lists = [price_list(component(Meter.BYTES_IN, (None, "0.02"), commit="720"))]
    spans = (span(at(1), at(1) + HOUR / 2, only_storage=True), span(at(1) + HOUR / 2, at(1) + HOUR))
    assert amounts(rate(JUNE, [used(*spans)], lists, EUR)) == ["0.02"]


def test_bytes_moved_in_an_hour_charged_at_a_dearer_suspended_size_are_charged() -> None:
    lists = [price_list(component(Meter.STORAGE, (None, "1"), included="100"), component(Meter.BYTES_IN, (None, "1")))]
    ran = span(at(1), at(1) + HOUR / 2)
    suspended = replace(span(at(1) + HOUR / 2, at(1) + HOUR, only_storage=True), storage_gb=500)
    usage = replace(used(ran, suspended), hours=[HourUsage(hour=at(1), bytes_in=GB)])
    assert amounts(rate(JUNE, [usage], lists, EUR)) == ["400.00", "1.00"]


def test_an_amount_is_the_printed_quantity_times_the_printed_price() -> None:
    lists = [
        # Eight decimals of a price are stored and printed.
        price_list(component(Meter.STORED, (None, "0.000140")), component(Meter.BYTES_IN, (None, "0.000000014999")))
    ]
    hours = [HourUsage(hour=at(1), stored_byte_hours=D(20_832_000 * GB), bytes_in=10**9 * GB)]
    bill = rate(JUNE, [InstanceUsage(instance_id="i", spans=[WHOLE], hours=hours)], lists, EUR)
    assert [(f"{line.unit_price:f}", str(line.amount)) for line in bill.lines] == [
        ("0.000140", "2916.48"),
        ("0.00000001", "10.00"),
    ]


def test_the_worked_example_of_the_docs_comes_to_the_cent() -> None:
    peak = price_list(component(Meter.BANDWIDTH_P95, (None, "100")), plan="peak")
    stream = [
        price_list(component(Meter.BYTES_IN, (None, price), commit="300", overage_price="0.04"), since=since)
        for price, since in (("0.02", EPOCH), ("0.03", at(16)))
    ]
    spans = (span(at(1), at(2), "peak"), span(at(2), None))

    bill = rate(
        JUNE, [used(*spans, gb={5: 200, 20: 150}, points=constant_rate(at(1), at(2), 10))], [peak, *stream], EUR
    )

    assert [(f"{line.quantity.normalize():f}", str(line.amount), line.hours) for line in bill.lines] == [
        ("200", "4.00", 696),
        ("90", "2.70", 696),
        ("60", "2.40", 696),
        ("0.333333333", "33.33", 24),
    ]


# --- a naive twin -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Month:
    """A random month of one instance."""

    usage: InstanceUsage
    lists: Sequence[PriceList]


price_texts = st.integers(0, 5_000).map(lambda n: str(D(n) / 10_000))
volumes = st.integers(0, 400).map(str)


@st.composite
def measured(draw: st.DrawFn, meter: Meter) -> Component:
    edges = sorted(draw(st.sets(st.integers(1, 300), max_size=2)))
    tiers = [
        (None if edge is None else str(edge), draw(price_texts), draw(st.sampled_from(["0", "0", "3"])))
        for edge in (*edges, None)
    ]
    more: dict[str, Any] = {"scheme": draw(st.sampled_from(Scheme))}
    if draw(st.booleans()):
        more["included"] = draw(volumes)
    if draw(st.booleans()):
        more["commit"] = draw(volumes)
        if draw(st.booleans()):
            more["overage_price"] = draw(price_texts)
    return component(meter, *tiers, **more)


@st.composite
def plans(draw: st.DrawFn, plan: str, since: datetime) -> PriceList:
    of = [component(Meter.INSTANCE, (None, draw(price_texts)))]
    meters = (Meter.BYTES_IN, Meter.BYTES_OUT, Meter.PARTITIONS, Meter.BANDWIDTH_P95)
    of += [draw(measured(meter)) for meter in meters if draw(st.booleans())]
    return price_list(*of, plan=plan, since=since)


hours_of_period = st.integers(0, HOURS)


@st.composite
def months(draw: st.DrawFn) -> Month:
    lists = [draw(plans("stream", EPOCH)), draw(plans("peak", EPOCH))]
    if draw(st.booleans()):
        lists.append(draw(plans("stream", SHORT.start + draw(hours_of_period) * HOUR)))
    cuts = sorted(draw(st.sets(st.integers(0, HOURS * 60), min_size=2, max_size=5)))
    spans = []
    for start, end in pairwise(cuts):
        if draw(st.integers(0, 4)):
            begin, stop = (SHORT.start + timedelta(minutes=each) for each in (start, end))
            plan = draw(st.sampled_from(["stream", "stream", "peak"]))
            spans.append(span(begin, stop, plan, only_storage=draw(st.integers(0, 5)) == 0))
    if spans and draw(st.booleans()):
        spans[-1] = replace(spans[-1], end=None)
    numbers = draw(st.lists(st.integers(0, HOURS - 1), max_size=8, unique=True))
    hours = [
        HourUsage(
            hour=SHORT.start + number * HOUR, bytes_in=draw(st.integers(0, 300 * GB)),
            bytes_out=draw(st.integers(0, 300 * GB)), partition_hours=D(draw(st.integers(0, 300 * 60))) / 60,
        )
        for number in sorted(numbers)
    ]  # fmt: skip
    points = [
        RatePoint(start=SHORT.start + number * POINT_DURATION, bytes_in=draw(st.integers(0, 10**12)), bytes_out=0)
        for number in sorted(draw(st.sets(st.integers(0, HOURS * 12 - 1), max_size=20)))
    ]
    return Month(InstanceUsage(instance_id="ins-aaaaaaaa", spans=spans, hours=hours, rate_points=points), lists)


def twin(month: Month) -> dict[tuple[str, str], Fraction]:
    """Returns the charges by plan and meter, computed hour by hour in fractions."""
    usage = month.usage
    plan_of_hour: dict[int, tuple[SizeSpan, PriceList]] = {}
    for number in range(HOURS):
        hour = SHORT.start + number * HOUR
        had = [each for each in usage.spans if each.start < hour + HOUR and (each.end is None or each.end > hour)]
        best = None
        for each in had:
            begun = [one for one in month.lists if one.plan == each.plan and one.effective_from <= hour]
            prices = max(begun, key=lambda one: one.effective_from)
            cost = D(0) if each.only_storage else prices.components[0].tiers[0].unit_price
            if best is None or (cost, not each.only_storage) > best[0]:
                best = ((cost, not each.only_storage), each, prices)
        if best is not None:
            plan_of_hour[number] = best[1:]
    if not plan_of_hour:
        return {}
    moved: dict[int, list[HourUsage]] = defaultdict(list)
    for each in usage.hours:
        number = (each.hour - SHORT.start) // HOUR
        earlier = [other for other in plan_of_hour if other <= number]
        moved[max(earlier) if earlier else min(plan_of_hour)].append(each)
    result: dict[tuple[str, str], Fraction] = {}
    for plan in ("stream", "peak"):
        ran = {n: lists for n, (each, lists) in plan_of_hour.items() if each.plan == plan and not each.only_storage}
        for meter in (Meter.INSTANCE, Meter.BYTES_IN, Meter.BYTES_OUT, Meter.PARTITIONS, Meter.BANDWIDTH_P95):
            by_hour = [
                (number, found[0])
                for number, lists in sorted(ran.items())
                if (found := [one for one in lists.components if one.meter is meter])
            ]
            if not by_hour:
                continue
            if meter is Meter.BANDWIDTH_P95:
                result[plan, meter] = _percentile(usage, by_hour)
                continue
            units = []
            for number, terms in by_hour:
                if meter is Meter.INSTANCE:
                    units.append((Fraction(1), terms))
                    continue
                for each in moved[number]:
                    if meter is Meter.PARTITIONS:
                        if (each.hour - SHORT.start) // HOUR == number:
                            units.append((max(Fraction(0), Fraction(each.partition_hours - terms.included)), terms))
                    else:
                        count = each.bytes_in if meter is Meter.BYTES_IN else each.bytes_out
                        units.append((Fraction(count, GB), terms))
            result[plan, meter] = _due(units, [terms for _, terms in by_hour], meter)
    return result


def _percentile(usage: InstanceUsage, by_hour: Sequence[tuple[int, Component]]) -> Fraction:
    numbers = {number for number, _ in by_hour}
    rates = [each.bytes_in for each in usage.rate_points if (each.start - SHORT.start) // HOUR in numbers]
    rates = sorted(rates + [0] * (12 * len(numbers) - len(rates)), reverse=True)
    level = Fraction(rates[len(rates) * 5 // 100], 300 * 10**6)
    due = Fraction(0)
    for _, terms in by_hour:
        above = max(Fraction(0), level - Fraction(terms.included))
        due += _due([(above, terms)], [terms], None) / HOURS
    return due


def _due(units: Sequence[tuple[Fraction, Component]], terms: Sequence[Component], meter: Meter | None) -> Fraction:
    """Returns the charge of these units. `terms` are those of each hour; without a meter, of a whole month of one
    component.
    """
    hours = HOURS if meter is None else len(terms)
    of_month = terms * HOURS if meter is None else terms
    included = sum((Fraction(each.included) for each in of_month), Fraction(0)) / HOURS
    commit = sum((Fraction(each.commit) for each in of_month), Fraction(0)) / HOURS
    free = included if meter in (Meter.BYTES_IN, Meter.BYTES_OUT) else Fraction(0)
    left = []
    for count, each in units:
        off = min(free, count)
        free -= off
        left.append((count - off, each))
    missing = commit - sum((count for count, _ in left), Fraction(0))
    in_tiers: list[tuple[Fraction, Component]] = []
    due, position = Fraction(0), Fraction(0)
    for count, each in left:
        inside = count
        if each.overage_price is not None:
            inside = max(Fraction(0), min(count, commit - position))
        position += count
        if each.overage_price is not None:
            due += (count - inside) * Fraction(each.overage_price)
        in_tiers.append((inside, each))
    if missing > 0:
        # In the order of time: the part of each piece of equal terms comes with its last unit.
        in_tiers = _with_missing(units, left, of_month, missing)
    total = sum((count for count, _ in in_tiers), Fraction(0))
    position = Fraction(0)
    for count, each in in_tiers:
        low = Fraction(0)
        for place, tier in enumerate(each.tiers):
            high = None if place == len(each.tiers) - 1 else Fraction(tier.up_to or 0) * hours / HOURS
            if each.scheme is Scheme.VOLUME:
                if low < total and (high is None or total <= high):
                    due += count * Fraction(tier.unit_price)
            else:
                stop = position + count if high is None else min(position + count, high)
                due += max(Fraction(0), stop - max(position, low)) * Fraction(tier.unit_price)
            low = high if high is not None else low
        position += count
    for each in of_month:
        low = Fraction(0)
        for place, tier in enumerate(each.tiers):
            high = None if place == len(each.tiers) - 1 else Fraction(tier.up_to or 0) * hours / HOURS
            is_last = high is None or total <= high
            if low < total and (each.scheme is Scheme.GRADUATED or is_last):
                due += Fraction(tier.flat) / HOURS
            low = high if high is not None else low
    return due


def _with_missing(
    units: Sequence[tuple[Fraction, Component]],
    left: Sequence[tuple[Fraction, Component]],
    terms: Sequence[Component],
    missing: Fraction,
) -> list[tuple[Fraction, Component]]:
    """Returns the used units, followed in each run of equal terms by its part of the missing ones."""
    runs: list[Component] = []
    for each in terms:
        if not runs or runs[-1] != each:
            runs.append(each)
    commits = sum((Fraction(each.commit) for each in terms), Fraction(0))
    result = []
    for run in runs:
        result += [(count, each) for count, each in left if each == run]
        part = sum((Fraction(each.commit) for each in terms if each == run), Fraction(0))
        result.append((missing * part / commits, run))
    return result


@settings(max_examples=depth.number_from("PENSTOCK_MONTHS", 300, 10_000), deadline=None)
@given(months())
def test_random_months_cost_what_a_naive_twin_says(month: Month) -> None:
    bill = rate(SHORT, [month.usage], month.lists, EUR)

    exact: dict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for line in bill.lines:
        exact[line.plan, line.meter] += line.quantity * line.unit_price
        assert line.amount == (line.quantity * line.unit_price).quantize(D("0.01"), ROUND_HALF_UP)
        assert -line.quantity.as_tuple().exponent <= 9  # type: ignore[operator]
    expected = twin(month)
    for key in {*exact, *expected}:
        # Each quantity is rounded to a billionth.
        assert abs(Fraction(exact[key]) - expected.get(key, Fraction(0))) < Fraction(1, 10**6), key
    assert bill.subtotal == sum((line.amount for line in bill.lines), D(0))


@settings(max_examples=depth.number_from("PENSTOCK_MONTHS", 200, 10_000), deadline=None)
@given(months(), st.sets(hours_of_period, min_size=1, max_size=5))
def test_a_month_split_into_equal_price_lists_costs_the_same_to_the_cent(month: Month, splits: set[int]) -> None:
    again = list(month.lists)
    for number in splits:
        since = SHORT.start + number * HOUR
        for plan in ("stream", "peak"):
            begun = [each for each in again if each.plan == plan and each.effective_from <= since]
            latest = max(begun, key=lambda each: each.effective_from)
            if latest.effective_from < since:
                again.append(replace(latest, effective_from=since))

    assert rate(SHORT, [month.usage], again, EUR) == rate(SHORT, [month.usage], month.lists, EUR)


@settings(max_examples=depth.number_from("PENSTOCK_MONTHS", 100, 2_000), deadline=None)
@given(st.lists(months(), min_size=2, max_size=3))
def test_a_bill_is_the_sum_of_the_bills_of_its_instances(parts: list[Month]) -> None:
    lists = parts[0].lists
    usage = [replace(each.usage, instance_id=f"ins-{number}") for number, each in enumerate(parts)]
    whole = rate(SHORT, usage, lists, EUR)
    assert list(whole.lines) == [line for each in usage for line in rate(SHORT, [each], lists, EUR).lines]
