"""Quotes (`billing.rating.quotes`): exact, additive, and monotonic in size."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rating.engine import rate
from billing.rating.quotes import HOURS_PER_MONTH, quote
from billing.rating.terms import (
    Agreement,
    Component,
    InstanceUsage,
    Meter,
    Period,
    PriceList,
    Scheme,
    SizeSpan,
    Tier,
)

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)


def component(meter: Meter, price: str, included: int) -> Component:
    tiers = (Tier(up_to=None, unit_price=Decimal(price)),)
    return Component(meter=meter, scheme=Scheme.GRADUATED, tiers=tiers, included=Decimal(included))


PRICE = PriceList(
    plan="stream",
    currency="EUR",
    effective_from=NOON - timedelta(days=1),
    components=(
        component(Meter.INSTANCE, "0.1200", 0),
        component(Meter.BANDWIDTH, "0.0045", 20),
        component(Meter.STORAGE, "0.000150", 100),
        component(Meter.BYTES_IN, "1", 0),
    ),
)


def test_a_plan_as_it_is_costs_its_base_price() -> None:
    result = quote(PRICE, bandwidth_mb_s=20, storage_gb=100)
    assert [line.component for line in result.lines] == ["base"]
    assert result.per_hour == Decimal("0.1200")
    assert result.per_month == Decimal("87.60")


def test_bandwidth_and_storage_beyond_the_plan_are_lines_of_their_own() -> None:
    result = quote(PRICE, bandwidth_mb_s=60, storage_gb=1100)
    assert [(line.component, line.quantity, line.per_hour) for line in result.lines] == [
        ("base", 1, Decimal("0.1200")),
        ("bandwidth", 40, Decimal("0.1800")),
        ("storage", 1000, Decimal("0.1500")),
    ]
    assert result.per_hour == Decimal("0.4500")
    assert result.per_month == Decimal("328.50")


def test_less_than_the_plan_includes_is_never_a_credit() -> None:
    assert quote(PRICE, bandwidth_mb_s=1, storage_gb=1).per_hour == Decimal("0.1200")


@pytest.mark.parametrize(("bandwidth_mb_s", "storage_gb"), [(0, 100), (20, 0), (-1, 5)])
def test_a_quantity_that_is_not_positive_is_refused(bandwidth_mb_s: int, storage_gb: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        quote(PRICE, bandwidth_mb_s=bandwidth_mb_s, storage_gb=storage_gb)


@given(st.integers(1, 100_000), st.integers(1, 1_000_000), st.integers(0, 1000), st.integers(0, 1000))
def test_lines_add_up_and_more_never_costs_less(mb_s: int, gb: int, more_mb_s: int, more_gb: int) -> None:
    small = quote(PRICE, bandwidth_mb_s=mb_s, storage_gb=gb)
    large = quote(PRICE, bandwidth_mb_s=mb_s + more_mb_s, storage_gb=gb + more_gb)
    assert small.per_hour == sum(line.per_hour for line in small.lines)
    assert abs(small.per_month - small.per_hour * HOURS_PER_MONTH) <= Decimal("0.005")
    assert large.per_hour >= small.per_hour


def test_a_price_of_six_decimals_is_quoted_with_all_of_them_and_a_month_is_rounded_once() -> None:
    lists = replace(PRICE, components=(component(Meter.STORAGE, "0.000207", 100),))
    result = quote(lists, bandwidth_mb_s=20, storage_gb=177)
    (line,) = result.lines
    assert (line.unit_price, line.per_hour) == (Decimal("0.000207"), Decimal("0.015939"))
    # 0.0159 an hour would be 11.61.
    assert result.per_month == Decimal("11.64")


def test_a_month_in_a_currency_without_decimals_is_quoted_in_whole_units() -> None:
    lists = replace(PRICE, currency="JPY", components=(component(Meter.INSTANCE, "19.3", 0),))
    assert str(quote(lists, bandwidth_mb_s=20, storage_gb=100).per_month) == "14089"


@given(st.integers(1, 100_000), st.integers(1, 1_000_000))
def test_a_quote_is_what_an_invoice_of_that_size_charges(mb_s: int, gb: int) -> None:
    """Over a thousand hours, so that rounding of lines hides no difference."""
    span = SizeSpan(plan="stream", bandwidth_mb_s=mb_s, storage_gb=gb, start=NOON, end=None)
    period = Period(start=NOON, end=NOON + timedelta(hours=1_000))

    bill = rate(period, [InstanceUsage(instance_id="ins-aaaaaaaa", spans=[span])], [PRICE], Agreement(currency="EUR"))

    quoted = quote(PRICE, bandwidth_mb_s=mb_s, storage_gb=gb)
    assert abs(bill.subtotal - quoted.per_hour * 1_000) <= len(quoted.lines) * Decimal("0.005")
