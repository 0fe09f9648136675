"""Margins of clusters: sold against used capacity."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.reporting import margins
from billing.reporting.margins import CapacityUse, ClusterUse, HourlyUse
from brokers.selectors import ClusterCapacity

HOUR = datetime(2026, 11, 1, tzinfo=UTC)
ROOM = ClusterCapacity(bandwidth_mb_s=100, storage_gb=1_000, sold_bandwidth_mb_s=150, sold_storage_gb=500, instances=3)


@given(st.lists(st.floats(0, 1e12), max_size=60), st.integers(0, 40))
def test_the_percentile_is_exceeded_by_a_twentieth_at_most(values: list[float], missing: int) -> None:
    count = len(values) + missing
    result = margins.percentile(values, count)
    every = [0.0] * missing + values
    assert result in every or (not every and result == 0.0)
    assert sum(value > result for value in every) <= count * 0.05
    if every:
        assert sum(value >= result for value in every) >= max(1, math.floor(count * 0.05))
        assert result == sorted(every)[max(1, math.ceil(count * 95 / 100)) - 1]


def test_a_cluster_uses_the_larger_direction_of_each_hour_and_stores_averages() -> None:
    rows = [
        (HOUR, "produce", 3_600 * 10**6 * 40), (HOUR, "consume", 3_600 * 10**6 * 90),
        (HOUR + timedelta(hours=1), "produce", 3_600 * 10**6 * 60), (HOUR, "stored", 250 * 10**9),
    ]  # fmt: skip
    assert margins.cluster_use(rows, 2) == ClusterUse(
        bandwidth_mb_s=HourlyUse(peak=90.0, p95=90.0), storage_gb=HourlyUse(peak=250.0, p95=250.0)
    )
    assert margins.cluster_use(rows, 720).bandwidth_mb_s == HourlyUse(peak=90.0, p95=0.0)


def test_a_margin_says_how_many_times_capacity_is_sold_and_what_each_mb_s_brings() -> None:
    use = ClusterUse(bandwidth_mb_s=HourlyUse(90.0, 50.0), storage_gb=HourlyUse())
    line = margins.margin_of(None, ROOM, use, {"USD": Decimal(300), "EUR": Decimal(75)})
    assert (line.bandwidth.oversold, line.bandwidth.sold_over_used) == (1.5, 3.0)
    assert (line.storage.oversold, line.storage.sold_over_used) == (0.5, None)
    assert [(each.currency, each.per_mb_s) for each in line.revenues] == [("EUR", Decimal("0.5")), ("USD", Decimal(2))]


def test_without_capacity_use_or_sales_nothing_is_divided() -> None:
    assert CapacityUse(0, 5, None).oversold is None
    assert CapacityUse(5, 5, None).sold_over_used is None
    assert margins.revenues({"EUR": Decimal(1)}, 0)[0].per_mb_s is None


@given(st.lists(st.tuples(st.integers(0, 10**6), st.decimals(0, 10**6, places=2)), min_size=1, max_size=6))
def test_all_clusters_together_are_their_sum(clusters: list[tuple[int, Decimal]]) -> None:
    lines = [
        margins.margin_of(
            None,
            ClusterCapacity(
                bandwidth_mb_s=sold * 2, storage_gb=sold, sold_bandwidth_mb_s=sold, sold_storage_gb=1, instances=1
            ),
            None,
            {"EUR": amount},
        )
        for sold, amount in clusters
    ]
    whole = margins.total_of(lines)
    assert whole.bandwidth[:2] == (2 * sum(sold for sold, _ in clusters), sum(sold for sold, _ in clusters))
    assert whole.revenues[0].revenue == sum(amount for _, amount in clusters)
    assert whole.instances == len(clusters)


@pytest.mark.parametrize("count", [0, -1])
def test_zero_hours_have_no_percentile(count: int) -> None:
    assert margins.percentile([1.0], count) == 0.0
