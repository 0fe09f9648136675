"""Taxes (`billing.rating.taxes`): a line has the rate in force at its use. Examples and random bills."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing.rating.engine import rate
from billing.rating.spreading import SpreadBill
from billing.rating.taxes import hours_by_rate, split_credit
from billing.rating.terms import (
    Agreement,
    Component,
    Discount,
    HourUsage,
    InstanceUsage,
    Meter,
    Period,
    PriceList,
    Scheme,
    SizeSpan,
    TaxChange,
    TaxSum,
    Tier,
)
from tests.testkit import depth

D = Decimal
HOUR = timedelta(hours=1)
JUNE = Period(start=datetime(2026, 6, 1, tzinfo=UTC), end=datetime(2026, 7, 1, tzinfo=UTC))
# Three days: rating does not know how long a month is.
SHORT = Period(start=JUNE.start, end=JUNE.start + 72 * HOUR)
GB = 10**9
SMALLEST = {"EUR": D("0.01"), "JPY": D(1), "KWD": D("0.001")}


def price(meter: Meter, unit_price: str, **terms: object) -> Component:
    return Component(meter=meter, scheme=Scheme.GRADUATED, tiers=[Tier(up_to=None, unit_price=D(unit_price))], **terms)  # type: ignore[arg-type]


def prices(*components: Component) -> list[PriceList]:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    return [PriceList(plan="p", currency="EUR", effective_from=begin, components=components)]


def instance(*hours: HourUsage, start: datetime = JUNE.start, end: datetime | None = None) -> InstanceUsage:
    span = SizeSpan(plan="p", bandwidth_mb_s=1, storage_gb=1, start=start, end=end)
    return InstanceUsage(instance_id="ins-a", spans=[span], hours=hours)


def agreed(*changes: tuple[datetime, str], **more: object) -> Agreement:
    return Agreement(
        currency="EUR", tax_percent=D(19),
        tax_changes=[TaxChange(effective_from=at, percent=D(percent)) for at, percent in changes], **more,
    )  # type: ignore[arg-type]  # fmt: skip


def test_a_rate_that_changes_in_the_middle_of_a_month_taxes_each_half_by_its_own() -> None:
    """720 hours at 0.10: 240 of them at 19 %, 480 at 16 %; 30 GB before the change and 70 after it at 0.50."""
    middle = JUNE.start + 240 * HOUR
    used = instance(HourUsage(hour=middle - HOUR, bytes_in=30 * GB), HourUsage(hour=middle, bytes_in=70 * GB))
    bill = rate(
        JUNE, [used], prices(price(Meter.INSTANCE, "0.10"), price(Meter.BYTES_IN, "0.50")), agreed((middle, "16"))
    )

    lines = [(each.meter, each.start, each.end, str(each.amount), each.tax_percent) for each in bill.lines]
    assert lines == [
        ("instance", JUNE.start, middle, "24.00", 19), ("instance", middle, JUNE.end, "48.00", 16),
        ("bytes_in", JUNE.start, middle, "15.00", 19), ("bytes_in", middle, JUNE.end, "35.00", 16),
    ]  # fmt: skip
    assert bill.taxes == [
        TaxSum(percent=D(19), base=D("39.00"), tax=D("7.41")), TaxSum(percent=D(16), base=D("83.00"), tax=D("13.28")),
    ]  # fmt: skip
    assert (bill.subtotal, bill.tax, bill.total) == (D("122.00"), D("20.69"), D("142.69"))


def test_a_change_inside_an_hour_counts_from_the_next_full_hour() -> None:
    bill = rate(
        JUNE, [instance()], prices(price(Meter.INSTANCE, "0.10")),
        agreed((JUNE.start + 10 * HOUR + timedelta(minutes=1), "16")),
    )  # fmt: skip
    assert [each.base for each in bill.taxes] == [D("1.10"), D("70.90")]


def test_a_rate_that_comes_back_is_one_row_and_changes_outside_the_month_are_none() -> None:
    changes = (
        (JUNE.start - HOUR, "7"), (JUNE.start + HOUR, "16"), (JUNE.start + 3 * HOUR, "7"), (JUNE.end, "25"),
    )  # fmt: skip
    bill = rate(JUNE, [instance()], prices(price(Meter.INSTANCE, "1")), agreed(*changes))
    assert [(each.percent, each.base) for each in bill.taxes] == [(16, D("2.00")), (7, D("718.00"))]


def test_prices_and_taxes_from_the_last_hour_of_the_calendar_on_change_nothing_before() -> None:
    last = datetime(9999, 12, 31, 23, 30, tzinfo=UTC)
    lists = prices(price(Meter.INSTANCE, "0.10"))
    lists.append(replace(lists[0], effective_from=last))
    bill = rate(JUNE, [instance()], lists, agreed((last, "16")))
    assert [(each.percent, each.base) for each in bill.taxes] == [(19, D("72.00"))]


def test_terms_of_the_month_are_shared_by_both_rates() -> None:
    """10 GB are included and come first; 40 of the 50 committed GB are missing, shared by the hours of each rate."""
    middle = JUNE.start + 180 * HOUR
    used = instance(HourUsage(hour=JUNE.start, bytes_in=20 * GB))
    terms = prices(price(Meter.BYTES_IN, "1", included=D(10), commit=D(50)))
    bill = rate(JUNE, [used], terms, agreed((middle, "16")))
    assert [(each.percent, each.base) for each in bill.taxes] == [(19, D("20.00")), (16, D("30.00"))]


def test_discounts_are_taxed_as_what_they_are_off_and_minimums_by_hours() -> None:
    middle = JUNE.start + 180 * HOUR
    off = Discount(code="half", percent=D(50))
    bill = rate(
        JUNE, [instance()], prices(price(Meter.INSTANCE, "0.10")),
        agreed((middle, "16"), discounts=[off], minimum=D("40.01")),
    )  # fmt: skip
    by_kind = [(each.kind, str(each.amount), each.tax_percent) for each in bill.lines]
    assert by_kind == [
        ("usage", "18.00", 19), ("usage", "54.00", 16), ("discount", "-9.00", 19), ("discount", "-27.00", 16),
        ("minimum", "1.00", 19), ("minimum", "3.01", 16),
    ]  # fmt: skip


percents = st.integers(0, 2_700).map(lambda hundredths: D(hundredths) / 100)
changes = st.dictionaries(st.integers(-10, 4_400).map(lambda minute: minute * 60), percents, max_size=4).map(
    lambda found: [
        TaxChange(effective_from=SHORT.start + timedelta(seconds=at), percent=percent)
        for at, percent in sorted(found.items())
    ]
)
agreements = st.builds(
    Agreement, currency=st.sampled_from(("EUR", "JPY", "KWD")), tax_percent=percents, tax_changes=changes,
    discounts=st.lists(
        st.builds(
            Discount, code=st.just("c"), percent=st.integers(0, 100).map(D), amount=st.integers(0, 50).map(D),
        ),
        max_size=2,
    ),
    minimum=st.integers(0, 300).map(D),
)  # fmt: skip
usages = st.builds(
    lambda hours, start, length: instance(
        *(HourUsage(hour=SHORT.start + n * HOUR, bytes_in=count) for n, count in sorted(hours.items())),
        start=SHORT.start + start * HOUR, end=None if length is None else SHORT.start + (start + length) * HOUR,
    ),
    st.dictionaries(st.integers(0, 71), st.integers(0, 50 * GB), max_size=8), st.integers(0, 60),
    st.none() | st.integers(1, 80),
)  # fmt: skip


def twin(bill_agreement: Agreement, start: datetime) -> Decimal:
    """Returns the rate of an hour, searched from the end."""
    for change in reversed(bill_agreement.tax_changes):
        if change.effective_from <= start:
            return change.percent
    return bill_agreement.tax_percent


@settings(max_examples=depth.examples(300), deadline=None)
@given(usage=usages, agreement=agreements, commit=st.integers(0, 100))
def test_lines_are_taxed_by_their_hours_and_sums_are_those_without_changes(
    usage: InstanceUsage, agreement: Agreement, commit: int
) -> None:
    components = (
        price(Meter.INSTANCE, "0.137"),
        replace(
            price(Meter.BYTES_IN, "0", included=D(10), commit=D(commit)),
            tiers=[Tier(up_to=D(40), unit_price=D("0.31"), flat=D(2)), Tier(up_to=None, unit_price=D("0.29"))],
        ),
    )
    lists = [replace(each, currency=agreement.currency) for each in prices(*components)]
    bill = rate(SHORT, [usage], lists, agreement)
    plain = rate(SHORT, [usage], lists, replace(agreement, tax_changes=()))

    # Each line of usage lies in hours of its rate.
    for line in bill.lines:
        if line.kind == "usage":
            last = line.end - HOUR
            assert {twin(agreement, line.start), twin(agreement, last)} == {line.tax_percent}
    # Tax is that of the lines, each rate rounded once.
    bases: dict[Decimal, Decimal] = defaultdict(Decimal)
    for line in bill.lines:
        bases[line.tax_percent] += line.amount
    assert {each.percent: each.base for each in bill.taxes} == bases
    digits = SMALLEST[agreement.currency]
    assert all(each.tax == (each.base * each.percent / 100).quantize(digits, ROUND_HALF_UP) for each in bill.taxes)
    assert bill.total == bill.subtotal + bill.tax == bill.subtotal + sum(each.tax for each in bill.taxes)
    # A change of tax splits amounts: each line more may round once more.
    units: dict[tuple[str, Decimal], Decimal] = defaultdict(Decimal)
    for of, sign in ((bill, 1), (plain, -1)):
        for line in of.lines:
            if line.kind == "usage":
                units[line.meter + line.unit, line.unit_price] += sign * line.quantity
    assert all(abs(left) <= D("0.000000005") for left in units.values())
    assert abs(bill.subtotal - plain.subtotal) <= digits * (len(bill.lines) + len(plain.lines))
    # Parts of any split sum to the whole.
    spread = SpreadBill(bill, [usage], lists)
    middle = SHORT.start + 29 * HOUR
    halves = zip(spread.between(SHORT.start, middle), spread.between(middle, SHORT.end), strict=True)
    assert [one + other for one, other in halves] == [line.amount for line in bill.lines]


@given(agreement=agreements)
def test_hours_of_rates_are_those_of_the_period(agreement: Agreement) -> None:
    hours = hours_by_rate(agreement, SHORT)
    counted: dict[Decimal, int] = defaultdict(int)
    for n in range(72):
        counted[twin(agreement, SHORT.start + n * HOUR)] += 1
    assert hours == counted


rows_of_taxes = st.lists(
    st.tuples(percents, st.integers(-2_000, 100_000)), min_size=1, max_size=4, unique_by=lambda each: each[0]
)


@settings(max_examples=depth.examples(300), deadline=None)
@given(
    rows=rows_of_taxes, parts=st.lists(st.integers(1, 10_000), min_size=1, max_size=6),
    currency=st.sampled_from(sorted(SMALLEST)),
)  # fmt: skip
def test_credit_notes_sum_to_the_invoice_in_each_rate(
    rows: list[tuple[Decimal, int]], parts: list[int], currency: str
) -> None:
    unit = SMALLEST[currency]
    invoiced = [
        TaxSum(percent=percent, base=units * unit, tax=(units * unit * percent / 100).quantize(unit, ROUND_HALF_UP))
        for percent, units in rows
    ]
    left = {each.percent: each for each in invoiced}
    for part in parts:
        net = sum(each.base for each in left.values())
        if net <= 0:
            break
        amount = min(net, max(unit, (net * part / 10_000).quantize(unit, ROUND_HALF_UP)))
        notes = split_credit(amount, list(left.values()), currency)
        assert sum(each.net for each in notes) == amount
        for each in notes:
            of = left[each.percent]
            left[each.percent] = replace(of, base=of.base - each.net, tax=of.tax - each.tax)
        for before, after in ((one, left[one.percent]) for one in invoiced if one.base > 0):
            assert 0 <= after.base <= before.base
            assert 0 <= after.tax <= before.tax
    net = sum(each.base for each in left.values())
    if net > 0:
        for each in split_credit(net, list(left.values()), currency):
            of = left[each.percent]
            left[each.percent] = replace(of, base=of.base - each.net, tax=of.tax - each.tax)
    if sum(each.base for each in invoiced) > 0:
        assert all((each.base, each.tax) == (0, 0) for each in left.values())


@pytest.mark.parametrize(("net", "taxes"), [("0.01", ["0.00"]), ("0.04", ["0.01"]), ("100.00", ["19.00"])])
def test_a_note_of_one_rate_is_taxed_at_it(net: str, taxes: list[str]) -> None:
    left = [TaxSum(percent=D(19), base=D("200.00"), tax=D("38.00"))]
    assert [str(each.tax) for each in split_credit(D(net), left, "EUR")] == taxes
