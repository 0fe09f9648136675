"""Decisions of budgets (`notifications.budgets.decide`): each mark is reported once, and none early."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from notifications.budgets.decide import FORECAST, MARKS, marks_to_report

amounts = st.decimals("0.01", "10000", places=2)
D = Decimal
NOW = datetime(2026, 3, 14, tzinfo=UTC)


def test_marks_are_said_when_they_are_reached_and_not_before() -> None:
    assert marks_to_report(D(100), D("49.99"), D(0), set(), NOW) == []
    assert marks_to_report(D(100), D(50), D(0), set(), NOW) == [50]
    assert marks_to_report(D(100), D(80), D(0), {50}, NOW) == [80]
    assert marks_to_report(D(100), D(250), D(0), set(), NOW) == [50, 80, 100]


def test_a_forecast_is_said_while_the_budget_lasts_and_once() -> None:
    assert marks_to_report(D(100), D(10), D(101), set(), NOW) == [FORECAST]
    assert marks_to_report(D(100), D(10), D(101), {FORECAST}, NOW) == []
    assert marks_to_report(D(100), D(10), D(100), set(), NOW) == []
    assert FORECAST not in marks_to_report(D(100), D(100), D(300), set(), NOW)


@given(amounts, st.lists(st.decimals("0", "20000", places=2), max_size=8))
def test_each_mark_is_reported_once_in_any_order_of_spending(budget: Decimal, spans: list[Decimal]) -> None:
    said: list[int] = []
    for spent in sorted(spans):
        said += marks_to_report(budget, spent, spent, set(said), NOW)
    assert len(said) == len(set(said))
    highest = max(spans, default=D(0))
    assert [mark for mark in MARKS if mark in said] == [mark for mark in MARKS if highest * 100 >= budget * mark]
