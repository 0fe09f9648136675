"""Alert rules on the terms of tenants (`tenants.alert_state`): nothing fires early, unknown values change nothing, no
repetition.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from notifications.limits import FIRES_EVERY, GAP_MAX
from notifications.models.alerts import rule_terms
from tenants.alert_state import UNKNOWN, AlertState, AlertStatus, AlertTerms, Sample, advance

START = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TERMS = rule_terms(80, 5 * MINUTE)

values = st.one_of(st.none(), st.integers(0, 120))
readings = st.builds(Sample, value=values, is_lower_bound=st.booleans())
# (seconds since the sample before, sample): anything, or figures that stay for a while, as they do.
stays = st.tuples(st.integers(20, 100), readings, st.integers(1, 20)).map(lambda each: [each[:2]] * each[2])
steps = st.one_of(
    st.lists(st.tuples(st.integers(1, 400), readings), max_size=60),
    st.lists(stays, min_size=3, max_size=12).map(lambda spans: [step for span in spans for step in span]),
)
terms = st.builds(rule_terms, st.integers(1, 100), st.integers(1, 12).map(lambda minutes: minutes * MINUTE))


def known(value: int) -> Sample:
    return Sample(value=value)


def run(*found: Sample, of: AlertTerms = TERMS, every: timedelta = MINUTE) -> list[AlertStatus]:
    """Returns the rule after each sample, one every minute."""
    rule, now, result = AlertStatus(), START, []
    for sample in found:
        rule, now = advance(rule, of, sample, now), now + every
        result.append(rule)
    return result


def states(*found: Sample) -> list[str]:
    return [str(rule.state) for rule in run(*found)]


def test_it_fires_after_it_held_and_is_resolved_after_it_was_well_below_as_long() -> None:
    assert states(*[known(80)] * 7) == ["pending"] * 5 + ["firing"] * 2
    after = states(*[known(80)] * 6, *[known(71)] * 6, known(90))
    assert after[5:] == ["firing"] * 6 + ["resolved", "pending"]


def test_between_the_threshold_and_nine_tenths_of_it_a_firing_goes_on() -> None:
    assert states(*[known(80)] * 6, *[known(72)] * 20)[-1] == "firing"
    assert states(*[known(80)] * 6, *[known(71), known(72)] * 20)[-1] == "firing"


def test_a_value_that_falls_before_its_time_never_fires() -> None:
    assert set(states(*([known(80)] * 5 + [known(79)]) * 5)) == {"pending", "ok"}


def test_a_figure_that_is_not_known_says_so_and_keeps_the_state_and_its_time_does_not_count() -> None:
    rules = run(*[known(80)] * 5, *[UNKNOWN] * 30, known(80), known(80))
    assert [rule.state for rule in rules[5:]] == [AlertState.PENDING] * 31 + [AlertState.FIRING]
    assert [rule.is_unknown for rule in rules[4:36]] == [False, *[True] * 30, False]
    firing = run(*[known(80)] * 6, *[UNKNOWN] * 30)[-1]
    assert firing.fires and firing.is_unknown and firing.value == 80


def test_a_lower_bound_fires_and_resolves_nothing() -> None:
    assert states(*[Sample(value=80, is_lower_bound=True)] * 6)[-1] == "firing"
    rule = run(*[known(80)] * 6, *[Sample(value=0, is_lower_bound=True)] * 20)[-1]
    assert rule.fires and rule.is_unknown


def test_readings_far_from_each_other_say_nothing_of_the_time_between() -> None:
    assert {rule.state for rule in run(*[known(80)] * 9, every=GAP_MAX + MINUTE)} == {AlertState.PENDING}


def threshold_of(of: AlertTerms) -> int:
    return of.levels[0].fires_at


def fired_at(rules: list[AlertStatus]) -> list[datetime]:
    """Returns each instant at which it began to fire."""
    return [
        after.evaluated_at
        for before, after in pairwise([AlertStatus(), *rules])
        if after.fires and not before.fires and after.evaluated_at is not None
    ]


def walk(of: AlertTerms, found: list[tuple[int, Sample]]) -> list[tuple[datetime, Sample, AlertStatus]]:
    rule, now, result = AlertStatus(), START, []
    for seconds, sample in found:
        now += timedelta(seconds=seconds)
        rule = advance(rule, of, sample, now)
        result.append((now, sample, rule))
    return result


@given(terms, steps)
def test_it_never_fires_before_every_reading_of_its_duration_was_at_the_threshold(
    of: AlertTerms, found: list[tuple[int, Sample]]
) -> None:
    seen = walk(of, found)
    for at in fired_at([rule for _now, _reading, rule in seen]):
        lately = [sample.value for now, sample, _rule in seen if at - of.fires_after <= now <= at]
        known_ones = [value for value in lately if value is not None]
        first = min(now for now, _reading, _rule in seen)
        assert at - first >= of.fires_after
        low = [
            value
            for now, sample, _rule in seen
            if at - of.fires_after <= now <= at and not sample.is_lower_bound and (value := sample.value) is not None
        ]
        assert known_ones and all(value >= threshold_of(of) for value in low)


@given(terms, steps)
def test_a_firing_ends_only_after_every_known_reading_was_well_below_for_its_duration(
    of: AlertTerms, found: list[tuple[int, Sample]]
) -> None:
    seen = walk(of, found)
    rules = [AlertStatus(), *(rule for _now, _reading, rule in seen)]
    ends = [now for (now, _, after), before in zip(seen, rules, strict=False) if before.fires and not after.fires]
    for end in ends:
        lately = [sample for now, sample, _rule in seen if end - of.resolves_after <= now <= end]
        known_ones = [sample.value for sample in lately if sample.value is not None and not sample.is_lower_bound]
        assert known_ones and all(value * 10 < threshold_of(of) * 9 for value in known_ones)
        assert all(sample.value is None or sample.value < threshold_of(of) for sample in lately)


@given(terms, steps)
def test_it_fires_no_more_often_than_the_limit_and_only_after_the_firing_before_ended(
    of: AlertTerms, found: list[tuple[int, Sample]]
) -> None:
    rules = [rule for _now, _reading, rule in walk(of, found)]
    assert all(later - sooner >= FIRES_EVERY for sooner, later in pairwise(fired_at(rules)))
    moves = [(before.state, after.state) for before, after in pairwise([AlertStatus(), *rules])]
    assert {after for before, after in moves if before == AlertState.FIRING} <= {
        AlertState.FIRING,
        AlertState.RESOLVED,
    }
    assert {before for before, after in moves if after == AlertState.FIRING} <= {
        AlertState.PENDING,
        AlertState.FIRING,
    }


@given(terms, steps, readings)
def test_a_second_evaluation_at_the_same_time_or_an_earlier_one_changes_nothing(
    of: AlertTerms, found: list[tuple[int, Sample]], other: Sample
) -> None:
    rule = AlertStatus()
    now = START
    for seconds, sample in found:
        now += timedelta(seconds=seconds)
        rule = advance(rule, of, sample, now)
        assert advance(rule, of, sample, now) == rule
        assert advance(rule, of, other, now - MINUTE) == rule


@given(terms, steps)
def test_unknown_readings_move_no_state(of: AlertTerms, found: list[tuple[int, Sample]]) -> None:
    before = AlertStatus()
    for _now, sample, after in walk(of, found):
        if sample.value is None:
            assert (after.state, after.since, after.observed_for, after.value) == (
                before.state,
                before.since,
                before.observed_for,
                before.value,
            )
        before = after
