"""billing.rating.quotes: quotes are exact, add up, and never fall when more is bought."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.rating.quotes import HOURS_PER_MONTH, PlanPrice, quote

PRICE = PlanPrice(
    currency="EUR",
    base_per_hour=Decimal("0.1200"),
    included_mb_s=20,
    per_mb_s_hour=Decimal("0.0045"),
    included_gb=100,
    per_gb_hour=Decimal("0.000150"),
)


def test_a_plan_as_it_is_costs_its_base_price() -> None:
    result = quote(PRICE, bandwidth_mb_s=20, storage_gb=100)
    assert [line.component for line in result.lines] == ["base"]
    assert result.per_hour == Decimal("0.1200")
    assert result.per_month == Decimal("87.60")


def test_what_goes_beyond_the_plan_is_a_line_of_its_own() -> None:
    result = quote(PRICE, bandwidth_mb_s=60, storage_gb=1100)
    assert [(line.component, line.quantity, line.per_hour) for line in result.lines] == [
        ("base", 1, Decimal("0.1200")),
        ("bandwidth", 40, Decimal("0.1800")),
        ("storage", 1000, Decimal("0.1500")),
    ]
    assert result.per_hour == Decimal("0.4500")
    assert result.per_month == Decimal("328.50")


def test_less_than_the_plan_includes_is_never_a_credit() -> None:
    assert quote(PRICE, bandwidth_mb_s=1, storage_gb=1).per_hour == PRICE.base_per_hour


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
