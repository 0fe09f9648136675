"""Decisions of dunning (`billing.dunning.decide`): each reminder once, the latest one, and a suspension
after its days.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from billing.dunning.decide import DunningTerms, must_suspend, reminder_due

TERMS = DunningTerms(first_reminder_days=3, second_reminder_days=10, suspend_days=20)
days = st.integers(0, 40)
any_terms = st.builds(DunningTerms, first_reminder_days=days, second_reminder_days=days, suspend_days=days)


def test_reminders_come_on_their_days_and_of_two_that_were_missed_the_later_one() -> None:
    assert [reminder_due(day, TERMS, []) for day in (0, 2, 3, 9, 10, 99)] == [None, None, 1, 1, 2, 2]
    assert reminder_due(99, TERMS, [1]) == 2
    assert reminder_due(99, TERMS, [2]) is None


def test_zero_days_is_never() -> None:
    never = DunningTerms(first_reminder_days=0, second_reminder_days=0, suspend_days=0)
    assert reminder_due(1_000, never, []) is None and not must_suspend(1_000, never)
    assert reminder_due(10, DunningTerms(first_reminder_days=0, second_reminder_days=10, suspend_days=0), []) == 1


@given(any_terms, st.lists(st.integers(0, 60), max_size=30))
def test_whenever_somebody_looks_no_reminder_is_sent_twice_and_none_after_a_later_one(
    terms: DunningTerms, looks: list[int]
) -> None:
    said: list[int] = []
    for day in sorted(looks):
        number = reminder_due(day, terms, said)
        if number is not None:
            assert not said or number > max(said)
            assert day >= terms.reminders[number - 1]
            said.append(number)
    assert len(said) == len(set(said)) <= 2


@given(any_terms, st.integers(0, 60))
def test_a_suspension_once_due_stays_due(terms: DunningTerms, day: int) -> None:
    assert not must_suspend(day, terms) or must_suspend(day + 1, terms)
    assert must_suspend(day, terms) <= (day >= terms.suspend_days > 0)
