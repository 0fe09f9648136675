"""State machine of alerts (`tenants.alert_state`): levels with hysteresis, facts, and durations since an instant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from instances.lifecycle.conditions import STORAGE_TERMS
from tenants.alert_state import (
    FACT_TERMS,
    NO_LEVEL,
    UNKNOWN,
    AlertLevel,
    AlertState,
    AlertStatus,
    AlertTerms,
    Sample,
    Transition,
    advance,
    pending_alert,
    transition,
)

START = datetime(2026, 3, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
durations = st.integers(0, 20).map(lambda seconds: seconds * SECOND)


@st.composite
def all_terms(draw: st.DrawFn) -> AlertTerms:
    """Returns terms with one to four levels, each with an end at or below its start, or none."""
    starts = sorted(draw(st.sets(st.integers(1, 100), min_size=1, max_size=4)))
    levels = [
        AlertLevel(number=number, fires_at=start, ends_below=draw(st.none() | st.integers(0, start)))
        for number, start in enumerate(starts, start=1)
    ]
    return AlertTerms(
        levels=levels,
        fires_after=draw(durations),
        resolves_after=draw(durations),
        fires_every=draw(durations),
        gap_max=draw(st.none() | durations),
    )


samples = st.builds(Sample, value=st.none() | st.integers(0, 120), is_lower_bound=st.booleans())
walks = st.lists(st.tuples(st.integers(1, 30), samples), max_size=40)


def states(terms: AlertTerms, walk: list[tuple[int, Sample]]) -> list[AlertStatus]:
    """Returns the state before the first sample and after each one."""
    now, result = START, [AlertStatus()]
    for seconds, sample in walk:
        now += seconds * SECOND
        result.append(advance(result[-1], terms, sample, now))
    return result


def fact(is_true: bool) -> Sample:
    return Sample(value=int(is_true))


@given(all_terms(), walks)
def test_each_firing_begins_once_and_ends_once_and_only_a_firing_has_a_level(
    terms: AlertTerms, walk: list[tuple[int, Sample]]
) -> None:
    fires = False
    for before, after in pairwise(states(terms, walk)):
        change = transition(before, after)
        assert (change is Transition.FIRED) is (after.fires and not fires)
        assert (change is Transition.RESOLVED) is (fires and not after.fires)
        assert after.fires is (after.level != NO_LEVEL)
        assert (after.since == before.since) is (after.state is before.state)
        fires = after.fires


@given(all_terms(), walks)
def test_a_firing_has_the_highest_level_reached_or_keeps_its_own(
    terms: AlertTerms, walk: list[tuple[int, Sample]]
) -> None:
    by_number = {level.number: level for level in terms.levels}
    for before, after in pairwise(states(terms, walk)):
        if not after.fires or after.is_unknown or after.value is None:
            continue
        assert all(after.value < level.fires_at for level in terms.levels if level.number > after.level)
        if after.value < by_number[after.level].fires_at:
            assert before.level == after.level


@given(all_terms(), walks)
def test_a_firing_at_a_level_without_an_end_is_never_resolved(
    terms: AlertTerms, walk: list[tuple[int, Sample]]
) -> None:
    endless = {level.number for level in terms.levels if level.ends_below is None}
    for before, after in pairwise(states(terms, walk)):
        assert after.fires or before.level not in endless


@given(all_terms(), walks, st.integers(0, 5))
def test_unknown_samples_change_no_state(terms: AlertTerms, walk: list[tuple[int, Sample]], count: int) -> None:
    before = states(terms, walk)[-1]
    after = before
    for number in range(1, count + 1):
        after = advance(after, terms, UNKNOWN, (before.evaluated_at or START) + number * SECOND)
    assert (after.state, after.since, after.level, after.observed_for, after.value) == (
        before.state, before.since, before.level, before.observed_for, before.value,
    )  # fmt: skip


@given(st.lists(st.booleans(), max_size=20))
def test_a_fact_fires_while_it_is_true_and_has_never_fired_before_it_was_true(seen: list[bool]) -> None:
    found = states(FACT_TERMS, [(1, fact(is_true)) for is_true in seen])[1:]
    assert [alert.fires for alert in found] == seen
    for number, alert in enumerate(found):
        assert (alert.state is AlertState.OK) is not any(seen[: number + 1])


@given(durations, st.integers(-5, 40))
def test_a_value_at_its_level_since_an_instant_fires_once_its_duration_is_over(lasts: timedelta, passed_s: int) -> None:
    terms = AlertTerms(levels=FACT_TERMS.levels, fires_after=lasts)
    fires = advance(pending_alert(START), terms, fact(True), START + passed_s * SECOND).fires
    assert fires is (passed_s > 0 and passed_s * SECOND >= lasts)


@given(st.lists(st.integers(0, 130), min_size=1, max_size=20))
def test_a_warning_about_storage_goes_back_only_two_percent_below_its_level(percents: list[int]) -> None:
    level = 0
    for percent, alert in zip(
        percents, states(STORAGE_TERMS, [(1, Sample(value=each)) for each in percents])[1:], strict=True
    ):
        reached = max((each for each in (80, 90, 100) if percent >= each), default=0)
        level = level if reached < level < 100 and percent >= level - 2 else reached
        assert alert.level == level
