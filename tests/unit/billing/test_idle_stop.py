"""Warning and suspension of idle instances."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from billing.idle.decide import NEVER, WARNING_PERIOD_MIN, IdleStep, idle_since, step

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
DAY = timedelta(days=1)
HOUR = timedelta(hours=1)


def test_it_is_warned_of_a_day_before_and_stopped_when_the_days_are_over() -> None:
    assert step(NOON, NOON + 5.9 * DAY, 7, None) is IdleStep.NOTHING
    assert step(NOON, NOON + 6 * DAY, 7, None) is IdleStep.WARN
    assert step(NOON, NOON + 6.9 * DAY, 7, NOON + 6 * DAY) is IdleStep.NOTHING
    assert step(NOON, NOON + 7 * DAY, 7, NOON + 6 * DAY) is IdleStep.STOP


def test_an_instance_found_idle_for_months_is_warned_first() -> None:
    late = NOON + 90 * DAY
    assert step(NOON, late, 7, None) is IdleStep.WARN
    assert step(NOON, late + 23 * HOUR, 7, late) is IdleStep.NOTHING
    assert step(NOON, late + DAY, 7, late) is IdleStep.STOP


def test_a_change_of_the_instance_is_a_use_as_well() -> None:
    assert idle_since(NOON, None) == NOON
    assert idle_since(NOON, NOON - DAY) == NOON
    assert idle_since(NOON, NOON + DAY) == NOON + DAY


@given(st.integers(0, 60), st.lists(st.integers(1, 72), max_size=60))
def test_looked_at_at_whatever_times_nobody_is_stopped_too_early_or_without_a_warning(
    stop_days: int, hours: list[int]
) -> None:
    warned_at, now = None, NOON
    for passed in hours:
        now += passed * HOUR
        due = step(NOON, now, stop_days, warned_at)
        if due is IdleStep.WARN:
            assert warned_at is None and now >= NOON + stop_days * DAY - WARNING_PERIOD_MIN
            warned_at = now
        if due is IdleStep.STOP:
            assert stop_days != NEVER and warned_at is not None
            assert now >= NOON + stop_days * DAY and now >= warned_at + WARNING_PERIOD_MIN
            return
    assert warned_at is None or now < max(NOON + stop_days * DAY, warned_at + WARNING_PERIOD_MIN)
