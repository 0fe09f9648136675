"""Revenue report of operators: rows sum to the totals, and bars have the height of their values."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from billing.reporting import revenue
from billing.reporting.revenue import BAR_HEIGHT_MAX, RevenueRow

CENTS = st.decimals(min_value=0, max_value=10**9, places=2)
ROWS = st.lists(
    st.builds(
        lambda key, currency, invoiced, credited: RevenueRow(key, key, key, currency, invoiced, -credited),
        st.text("abc", max_size=3), st.sampled_from(["EUR", "USD", "CNY"]), CENTS, CENTS,
    ),
    max_size=30,
)  # fmt: skip
NOW = datetime(2026, 3, 15, tzinfo=UTC)


@given(ROWS)
def test_rows_sum_to_the_totals_of_their_currency(rows: list[RevenueRow]) -> None:
    totals = revenue.totals(rows)
    assert [each.currency for each in totals] == sorted({row.currency for row in rows})
    for total in totals:
        own = [row for row in rows if row.currency == total.currency]
        assert total.rows == len(own)
        assert total.revenue == sum(row.revenue for row in own) == total.invoiced + total.credited


@given(ROWS)
def test_order_keeps_every_row_and_has_the_most_first(rows: list[RevenueRow]) -> None:
    result = revenue.sort_rows(rows)
    assert sorted(result) == sorted(rows)
    for before, after in pairwise(result):
        assert before.currency <= after.currency
        if before.currency == after.currency:
            assert before.revenue >= after.revenue


@given(st.lists(st.decimals(min_value=-(10**9), max_value=10**9, places=2), max_size=12))
def test_a_bar_is_as_high_as_its_share_of_the_highest(amounts: list[Decimal]) -> None:
    bars = revenue.bars_of([(NOW, amount) for amount in amounts])
    assert [bar.revenue for bar in bars] == amounts
    assert all(0 <= bar.height <= BAR_HEIGHT_MAX for bar in bars)
    assert all((bar.height > 0) == (bar.revenue > 0) for bar in bars)
    if any(amount > 0 for amount in amounts):
        assert max(bar.height for bar in bars) == BAR_HEIGHT_MAX
    heights = [bar.height for bar in sorted(bars, key=lambda bar: bar.revenue)]
    assert heights == sorted(heights)


@given(
    st.dictionaries(st.tuples(st.sampled_from(["EUR", "USD", "CNY", "GBP"]), st.integers(0, 11)), CENTS, max_size=20)
)
def test_charts_have_every_month_of_the_currencies_with_the_most(found: dict[tuple[str, int], Decimal]) -> None:
    months = revenue.months_until(NOW)
    by_month = {(currency, months[index].start): amount for (currency, index), amount in found.items()}
    charts = revenue.charts(by_month, months)
    assert len(charts) == min(revenue.CHARTS_MAX, len({currency for currency, _ in by_month}))
    for chart in charts:
        assert [bar.month for bar in chart.bars] == sorted(month.start for month in months)
        own = sum(amount for (currency, _), amount in by_month.items() if currency == chart.currency)
        assert sum(bar.revenue for bar in chart.bars) == own


def test_the_last_months_follow_each_other_over_the_turn_of_a_year() -> None:
    months = revenue.months_until(NOW, 4)
    assert [f"{month.start:%Y-%m}" for month in months] == ["2026-03", "2026-02", "2026-01", "2025-12"]
    assert all(later.start == earlier.end for later, earlier in pairwise(months))
