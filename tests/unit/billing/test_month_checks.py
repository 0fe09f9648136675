"""Checks before a month is closed: the result of each check for a state."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.invoices import unpriced
from billing.invoices.month_runs import STALLED_AFTER, LastClosing, MonthRun, RunKind, RunState
from billing.lake.outcomes import BROKEN
from billing.rating.terms import Period, SizeSpan
from billing.reporting import month_checks, month_state
from billing.reporting.month_checks import Outcome
from billing.reporting.month_state import Adjustments, LakeDays, MonthState, NameSample
from billing.retention.weeks import TableState

MONTH = Period(start=datetime(2026, 10, 1, tzinfo=UTC), end=datetime(2026, 11, 1, tzinfo=UTC))
NOW = datetime(2026, 11, 2, 3, tzinfo=UTC)
LATE = MonthRun(
    kind=RunKind.LATE, month="2026-10", by="ops", state=RunState.DONE, started_at=NOW, noted_at=NOW, done=3, total=3
)
CLOSED = LastClosing(at=NOW, issued=3, nothing_to_charge=1, waiting=(), waiting_in_all=0)
FINE = MonthState(
    period=MONTH, now=NOW, clusters=2, clusters_behind=NameSample(0),
    minutes=TableState(NOW + timedelta(days=21), 0), lake=LakeDays(equal=31), has_seller=True,
    without_profile=NameSample(0), without_tax_details=NameSample(0), unpriced=NameSample(0), unpriced_tenants=0,
    to_invoice=1,
    issued=3, open=0, overdue=0, closing=CLOSED, late=LATE, adjustments=(), webhooks_failed=0,
    mails_rejected=NameSample(0), unreachable_tenants=NameSample(0),
)  # fmt: skip


def failing(state: MonthState, outcome: Outcome = Outcome.FAILED) -> list[str]:
    """Returns the texts of checks with this outcome."""
    return [check.text for check in month_checks.checks(state) if check.outcome == outcome]


def test_where_all_is_well_every_check_passes_and_each_says_a_sentence() -> None:
    checks = month_checks.checks(FINE)
    assert {check.outcome for check in checks} == {Outcome.PASSED}
    assert len({check.title for check in checks}) == len(checks) == 12
    assert all(check.text.endswith(".") for check in checks)


@pytest.mark.parametrize(
    ("changes", "sentence", "link"),
    [
        ({"clusters_behind": NameSample(1, ("eu-1",))}, "Not all is read of: eu-1.", "/usageoffset/"),
        ({"minutes": TableState(NOW, 0)}, "This week has none.", ""),
        ({"lake": LakeDays(equal=30, different=(date(2026, 10, 7),))}, "2026-10-07", ""),
        ({"lake": LakeDays(equal=30, broken=(date(2026, 10, 8),))}, "2026-10-08", ""),
        ({"has_seller": False}, "Nobody said who sells", "/seller/"),
        ({"without_tax_details": NameSample(7, tuple("abcde"))}, "a, b, c, d, e and 2 more", "/billingprofile/"),
        (
            {"unpriced": NameSample(1, ("ghost (EUR)",)), "unpriced_tenants": 2},
            "The bills of 2 tenants would fail. No price early enough: ghost (EUR).",
            "/plan/",
        ),
        (
            {"closing": replace(CLOSED, waiting=(("acme", "plan ghost has no price"),), waiting_in_all=1)},
            "waited: 1. acme: plan ghost has no price",
            "",
        ),
        ({"to_invoice": 2}, "Tenants without one: 2.", ""),
        ({"open": 2, "overdue": 1}, "Open: 2, of which are overdue: 1.", "/overdue/"),
        ({"webhooks_failed": 3}, "Given up: 3.", ""),
        ({"mails_rejected": NameSample(1, ("PS-1",))}, "did not take the mails of: PS-1.", ""),
        ({"unreachable_tenants": NameSample(1, ("Acme",))}, "no profile has one: Acme.", "/billingprofile/"),
    ],
)  # fmt: skip
def test_a_failed_check_has_a_link_to_the_act(changes: dict[str, Any], sentence: str, link: str) -> None:
    state = replace(FINE, **changes)
    (text,) = failing(state)
    assert sentence in text
    (check,) = [each for each in month_checks.checks(state) if each.outcome == Outcome.FAILED]
    assert link in check.link
    assert bool(check.link) == bool(check.act)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"minutes": TableState(NOW + timedelta(days=21), 7)}, "rows of minutes that are weeks ahead: 7."),
        ({"lake": LakeDays(equal=30, unknown=1)}, "1 day was not worked out again yet."),
        ({"lake": LakeDays(without_lake=31)}, "no whole day"),
        ({"without_profile": NameSample(1, ("Acme",))}, "Without a billing profile"),
        ({"closing": None}, "Tenants without one: 1."),
        ({"open": 2}, "Open and not due yet: 2."),
        ({"late": None}, "Nobody looked whether usage came"),
        ({"late": replace(LATE, state=RunState.RUNNING)}, "Nobody looked whether usage came"),
        ({"late": replace(LATE, named=(("acme", "1.00 EUR"),), named_in_all=1)}, "1. acme: 1.00 EUR."),
    ],
)
def test_a_check_that_is_unknown_or_stops_nothing_is_to_be_looked_at(changes: dict[str, Any], sentence: str) -> None:
    state = replace(FINE, **changes)
    assert failing(state) == []
    (text,) = failing(state, Outcome.UNKNOWN)
    assert sentence in text


def test_corrections_that_the_month_charges_are_named() -> None:
    state = replace(FINE, adjustments=(Adjustments("EUR", 2, Decimal("3.50")),))
    assert any("Lines that correct earlier months: € 3.50 (2)." in check.text for check in month_checks.checks(state))


def test_only_a_month_that_is_over_with_somebody_left_is_issued() -> None:
    assert month_checks.may_issue(FINE)
    assert not month_checks.may_issue(replace(FINE, to_invoice=0))
    assert not month_checks.may_issue(replace(FINE, now=MONTH.end - timedelta(seconds=1)))


@given(st.dictionaries(st.integers(0, 30), st.sampled_from([BROKEN, 0, 1, 9])), st.integers(-3, 33) | st.none())
def test_each_day_of_the_lake_is_counted_once(known: dict[int, int], first: int | None) -> None:
    days = month_state.days_of(MONTH, NOW)
    assert len(days) == 31
    outcomes = {days[index]: outcome for index, outcome in known.items()}
    begin = None if first is None else (MONTH.start + timedelta(days=first)).date()
    lake = month_state.lake_days(days, outcomes, begin)
    assert lake.equal + len(lake.different) + len(lake.broken) + lake.unknown + lake.without_lake == 31
    assert all(outcomes[day] > 0 for day in lake.different)
    assert all(begin is not None and day > begin for day in (*lake.different, *lake.broken))


@pytest.mark.parametrize(("at", "count"), [(MONTH.start, 0), (MONTH.start + timedelta(days=1, hours=5), 1), (NOW, 31)])
def test_only_days_that_are_over_are_looked_at(at: datetime, count: int) -> None:
    assert len(month_state.days_of(MONTH, at)) == count


@pytest.mark.parametrize(
    ("first", "lacks"),
    [
        (None, True),
        (MONTH.start, False),
        (MONTH.start + timedelta(hours=1), True),
        (datetime(2020, 1, 1, tzinfo=UTC), False),
    ],
)
def test_a_plan_lacks_a_price_when_an_hour_begins_before_its_first_one(first: datetime | None, lacks: bool) -> None:
    start = MONTH.start - timedelta(days=9)
    span = SizeSpan(plan="brook", bandwidth_mb_s=5, storage_gb=20, start=start, end=None)
    prices = {} if first is None else {("brook", "EUR"): first}
    assert unpriced.plans_without_price([span], MONTH, "EUR", prices) == ({"brook"} if lacks else set())
    assert unpriced.plans_without_price([span], MONTH, "USD", prices) == {"brook"}


def test_a_run_that_is_silent_for_long_is_taken_to_have_died() -> None:
    run = replace(LATE, state=RunState.RUNNING)
    assert run.is_under_way(NOW + STALLED_AFTER / 2)
    assert not run.is_under_way(NOW + STALLED_AFTER)
    assert not LATE.is_under_way(NOW)
