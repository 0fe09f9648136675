"""Ages of debts: each has one age, and all ages together are the open amount."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.reporting import overdue
from billing.reporting.overdue import Age, AgeSum

NOW = datetime(2026, 11, 27, 3, 4, 5, tzinfo=UTC)
LATE = st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=2_000))


@pytest.mark.parametrize(
    ("days", "age"),
    [
        (0, Age.TO_30), (30, Age.TO_30), (31, Age.TO_60), (60, Age.TO_60), (61, Age.TO_90), (90, Age.TO_90),
        (91, Age.OVER_90), (900, Age.OVER_90),
    ],
)  # fmt: skip
def test_ages_are_full_days(days: int, age: Age) -> None:
    assert overdue.age_of(NOW - timedelta(days=days, seconds=1), NOW) == age


@given(st.one_of(LATE, st.integers(1, 100).map(lambda days: timedelta(days=days))))
def test_each_instant_lies_in_the_span_of_its_age_and_of_no_other(late: timedelta) -> None:
    due_at = NOW - late
    within = []
    for age in Age:
        later_than, latest = overdue.due_between(age, NOW)
        if due_at <= latest and (later_than is None or due_at > later_than):
            within.append(age)
    assert within == [overdue.age_of(due_at, NOW)]


@given(st.lists(st.tuples(LATE, st.decimals(min_value=0, max_value=10**9, places=2)), max_size=40))
def test_ages_partition_what_is_open(owed: list[tuple[timedelta, Decimal]]) -> None:
    sums: dict[tuple[str, Age], AgeSum] = {}
    for late, amount in owed:
        key = "EUR", overdue.age_of(NOW - late, NOW)
        before = sums.get(key, AgeSum(*key, 0, Decimal(0)))
        sums[key] = AgeSum(*key, before.invoices + 1, before.open_amount + amount)
    debts = overdue.receivables(sums.values())
    assert len(debts) == bool(owed)
    for debt in debts:
        assert [each.age for each in debt.ages] == list(Age)
        assert debt.invoices == len(owed)
        assert debt.open_amount == sum(amount for _, amount in owed)
